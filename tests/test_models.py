"""Every family against `transformers` in fp32 and against its plain twin in fp64: logits, loss, every gradient, and
weights after 20 steps of AdamW.

The models are tiny and random, made here by `transformers` and saved as it saves them, with norms and biases moved off
their initial values. Ours run through tests/family_probe.cc, which is the engine's own forward and backward.
"""

import json
import os
import pathlib
import subprocess

import pytest
import torch
import transformers
from conftest import BINARY
from oracle.families import FAMILIES
from oracle.optimizer import AdamW
from safetensors.torch import load_file, save_file

PROBE = str(pathlib.Path(BINARY).parent / "family_probe")
SEED = 7
SIZES = dict(vocab_size=97, hidden_size=32, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2,
             intermediate_size=56, max_position_embeddings=24, initializer_range=0.2)
LOCAL = ["sliding_attention", "full_attention", "sliding_attention"]
LLAMA3 = dict(rope_type="llama3", factor=4.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=12)
LONGROPE = dict(rope_type="longrope", short_factor=[1.0, 1.1, 1.3, 2.0], long_factor=[1.0, 1.5, 3.0, 4.0])

# name: (configuration class, keys)
MODELS = {
    "llama": ("LlamaConfig", dict(SIZES, rms_norm_eps=1e-5)),
    "llama tied, biases": ("LlamaConfig", dict(SIZES, attention_bias=True, mlp_bias=True, tie_word_embeddings=True)),
    "llama linear": ("LlamaConfig", dict(SIZES, rope_scaling=dict(rope_type="linear", factor=2.5))),
    "llama dynamic": ("LlamaConfig", dict(SIZES, max_position_embeddings=10, rope_scaling=dict(rope_type="dynamic", factor=2.0))),
    "llama yarn": ("LlamaConfig", dict(SIZES, rope_scaling=dict(rope_type="yarn", factor=4.0, original_max_position_embeddings=6,
                                                               beta_fast=2.0, beta_slow=0.5))),
    "llama llama3": ("LlamaConfig", dict(SIZES, rope_theta=500.0, rope_scaling=LLAMA3)),
    "llama longrope": ("LlamaConfig", dict(SIZES, original_max_position_embeddings=8, rope_scaling=LONGROPE)),
    "mistral": ("MistralConfig", dict(SIZES, sliding_window=5)),
    "mistral without window": ("MistralConfig", dict(SIZES, sliding_window=None, head_dim=10)),
    "qwen2": ("Qwen2Config", dict(SIZES, use_sliding_window=True, sliding_window=4, max_window_layers=1)),
    "qwen2 tied": ("Qwen2Config", dict(SIZES, tie_word_embeddings=True)),
    "qwen3": ("Qwen3Config", dict(SIZES, head_dim=12)),
    "gemma2": ("Gemma2Config", dict(SIZES, head_dim=12, query_pre_attn_scalar=20, sliding_window=4, layer_types=LOCAL,
                                    attn_logit_softcapping=2.0, final_logit_softcapping=3.0)),
    "gemma3": ("Gemma3TextConfig", dict(SIZES, head_dim=12, query_pre_attn_scalar=20, sliding_window=4, layer_types=LOCAL,
                                        rope_theta=1e5, rope_local_base_freq=100.0,
                                        rope_scaling=dict(rope_type="linear", factor=8.0))),
    "gpt2": ("GPT2Config", dict(vocab_size=97, n_embd=32, n_layer=3, n_head=4, n_positions=24, n_inner=56,
                                initializer_range=0.2)),
}
# Of "dynamic" and "longrope" transformers changes the angles with the batch's longest position, so these want a batch
# of full rows, whose length says it all.
CASES = [(name, kind) for name in MODELS for kind in ("padded", "packed", "one token", "longest")
         if kind == "longest" or name not in ("llama dynamic", "llama longrope")]


@pytest.fixture(scope="module", params=MODELS)
def model(request, tmp_path_factory):
    """(transformers' model, its directory, its config.json)"""
    kind, keys = MODELS[request.param]
    torch.manual_seed(SEED)
    theirs = transformers.AutoModelForCausalLM.from_config(getattr(transformers, kind)(**keys), attn_implementation="eager")
    theirs = theirs.float().eval()
    with torch.no_grad():
        for name, p in theirs.named_parameters():
            if p.dim() == 1:
                p.add_(torch.randn(p.shape) * 0.3)
    folder = tmp_path_factory.mktemp("model")
    theirs.save_pretrained(folder)
    return theirs, folder, json.loads((folder / "config.json").read_text())


def batch_of(kind, longest, vocab):
    """Documents in a row, labels and padding as our own data makes them; padding is a document of its own."""
    g = torch.Generator().manual_seed(SEED)
    lengths = {"padded": [[7], [longest], [1]], "packed": [[5, 9, longest - 14], [1, 1, longest - 2]], "one token": [[1]],
               "longest": [[longest], [longest]]}[kind]
    sequence = 1 if kind == "one token" else longest
    tokens = torch.randint(0, vocab, (len(lengths), sequence), generator=g)
    labels = torch.randint(0, vocab, tokens.shape, generator=g)
    positions, documents = torch.zeros(tokens.shape, dtype=torch.int32), torch.zeros(tokens.shape, dtype=torch.int32)
    for row, parts in enumerate(lengths):
        start = 0
        for number, part in enumerate(parts + [sequence - sum(parts)]):
            positions[row, start:start + part] = torch.arange(part)
            documents[row, start:start + part] = number
            if number < len(parts) and part > 1:
                labels[row, start + part - 1] = -100  # the last of a document predicts nothing
            start += part
        labels[row, sum(parts):] = -100
    if kind == "padded":
        labels[1, ::3] = -100
    return {"tokens": tokens, "labels": labels, "positions": positions, "documents": documents}


def probe(folder, batch, out, precision, steps=0):
    save_file({k: v.contiguous() for k, v in batch.items()}, out.with_suffix(".batch"))
    os.rename(out.with_suffix(".batch"), out.with_suffix(".in.safetensors"))
    done = subprocess.run([PROBE, folder, out.with_suffix(".in.safetensors"), out, precision, str(steps)],
                          capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return load_file(out)


def mask_of(batch, config, window):
    place = torch.arange(batch["tokens"].shape[1])
    documents = batch["documents"]
    seen = (place[:, None] >= place[None]) & (documents[:, :, None] == documents[:, None, :])
    if window:
        seen = seen & (place[:, None] - place[None] < window)
    return torch.zeros(seen.shape).masked_fill(~seen, torch.finfo(torch.float32).min)[:, None]


def run_transformers(theirs, config, batch):
    """Logits and gradients of the mean over labels, with documents kept apart by a mask of our making."""
    full, local = mask_of(batch, config, None), mask_of(batch, config, config.get("sliding_window"))
    masks = full
    if config["model_type"] == "mistral":
        masks = local
    elif "layer_types" in config:
        masks = {"full_attention": full, "sliding_attention": local}
    out = theirs(input_ids=batch["tokens"], position_ids=batch["positions"].long(), attention_mask=masks, use_cache=False)
    labels = batch["labels"].flatten()
    total = torch.nn.functional.cross_entropy(out.logits.flatten(0, 1), labels, ignore_index=-100, reduction="sum")
    theirs.zero_grad()
    (total / (labels != -100).sum()).backward()
    gradients = {name: p.grad.clone() for name, p in theirs.named_parameters() if p.grad is not None}
    return out.logits.detach().flatten(0, 1), (total / (labels != -100).sum()).item(), gradients


def gradient_errors(ours, theirs, alone=False):
    """|a - b| / max(|b|, 1e-4 G): G is the norm of the whole gradient. A token that is `alone` gives queries and keys a
    gradient of zero, so theirs are rounding of what cancelled, of the order of G."""
    whole = torch.sqrt(sum(g.double().pow(2).sum() for g in theirs.values()))

    def floor(name):
        return 1 if alone and any(part in name for part in ("q_proj", "k_proj", "q_norm", "k_norm")) else 1e-4

    return {name: ((ours["gradient/" + name].double() - g.double()).norm() / max(g.double().norm(), floor(name) * whole)).item()
            for name, g in theirs.items()}


def varies(config):
    return (config.get("rope_scaling") or {}).get("rope_type") in ("dynamic", "longrope")


@pytest.mark.parametrize("model, kind", CASES, indirect=["model"])
def test_equals_transformers(model, kind, tmp_path):
    theirs, folder, config = model
    longest = 24 if varies(config) else config.get("max_position_embeddings") or config["n_positions"]
    batch = batch_of(kind, longest, config["vocab_size"])
    if kind == "one token" and config["model_type"] == "gpt2":
        batch["positions"] += 3  # learned positions tell places apart
    ours = probe(folder, batch, tmp_path / "out.safetensors", "fp32")
    logits, loss, gradients = run_transformers(theirs, config, batch)
    rows = batch["labels"].flatten() != -100 if kind == "padded" else slice(None)
    # Sums of up to 56 products of order one, in another order: some roundings of 6e-8 on logits of up to about 10.
    assert (ours["logits"][rows] - logits[rows]).abs().max().item() < 2e-5
    assert ours["loss"].item() == pytest.approx(loss, rel=1e-6)
    errors = gradient_errors(ours, gradients, kind == "one token")
    assert set(errors) == {n.removeprefix("gradient/") for n in ours if n.startswith("gradient/")}
    assert max(errors.values()) < 1e-5, max(errors.items(), key=lambda e: e[1])


# Files of other versions of transformers: the same model, said in another way. It reads the first four itself.
STYLES = {
    "head_dim absent": lambda c: c.pop("head_dim"),
    "num_key_value_heads absent": lambda c: c.pop("num_key_value_heads"),
    "torch_dtype": lambda c: c.update(torch_dtype=c.pop("dtype")),
    "type for rope_type": lambda c: c["rope_scaling"].update(type=c["rope_scaling"].pop("rope_type")),
    "rope_parameters": lambda c: c.update(rope_parameters={**c.pop("rope_scaling"), "rope_theta": c.pop("rope_theta")}),
}


def test_configurations_of_every_style(tmp_path):
    keys = dict(SIZES, num_key_value_heads=4, head_dim=8, rope_theta=500.0, rope_scaling=LLAMA3)
    torch.manual_seed(SEED)
    config = transformers.LlamaConfig(**keys)
    transformers.AutoModelForCausalLM.from_config(config).save_pretrained(tmp_path / "model")
    batch = batch_of("longest", 24, keys["vocab_size"])
    whole = json.loads((tmp_path / "model/config.json").read_text())
    expected = probe(tmp_path / "model", batch, tmp_path / "whole.safetensors", "fp32")
    for number, (style, change) in enumerate(STYLES.items()):
        changed = json.loads(json.dumps(whole))
        change(changed)
        assert changed != whole
        (tmp_path / "model/config.json").write_text(json.dumps(changed))
        found = probe(tmp_path / "model", batch, tmp_path / f"{number}.safetensors", "fp32")
        assert found.keys() == expected.keys()
        assert all(torch.equal(found[name], expected[name]) for name in found), style
        if number < 4:
            theirs = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "model", attn_implementation="eager")
            logits, _, _ = run_transformers(theirs.float(), changed, batch)
            assert (found["logits"] - logits).abs().max().item() < 2e-5, style


def twin_of(folder, config, dtype):
    full = dict(config)
    if varies(config):
        full["rope_scaling"] = dict(config["rope_scaling"], original=config.get("original_max_position_embeddings"))
    return FAMILIES[config["model_type"]](full, load_file(folder / "model.safetensors"), dtype)


def test_equals_its_twin_in_double(model, tmp_path):
    theirs, folder, config = model
    longest = config.get("max_position_embeddings") or config["n_positions"]
    batch = batch_of("packed", 24 if varies(config) else longest, config["vocab_size"])
    # The twin is held to transformers, or two of one mind could be wrong together.
    if not varies(config):
        narrow = twin_of(folder, config, torch.float32)
        logits, _, _ = run_transformers(theirs, config, batch)
        with torch.no_grad():
            assert (narrow.logits(batch["tokens"], batch["positions"], batch["documents"]).flatten(0, 1) - logits).abs().max() < 2e-5

    twin = twin_of(folder, config, torch.float64)
    ours = probe(folder, batch, tmp_path / "out.safetensors", "fp64", 20)
    with torch.no_grad():
        logits = twin.logits(batch["tokens"], batch["positions"], batch["documents"]).flatten(0, 1)
    # A thousand roundings of 1e-16 at the very most.
    assert (ours["logits"] - logits).abs().max().item() < 1e-10
    optimizer = AdamW(twin.parameters(), (0.9, 0.95), 1e-8, 0.1, 0)
    for step in range(20):
        loss = twin.loss(batch)
        loss.backward()
        if step == 0:
            assert ours["loss"].item() == pytest.approx(loss.item(), rel=1e-10)
            errors = gradient_errors(ours, {n: p.grad for n, p in twin.parameters().items()})
            assert max(errors.values()) < 1e-10, max(errors.items(), key=lambda e: e[1])
        optimizer.step(1e-3)
    for name, p in twin.parameters().items():
        w = p.detach()
        error = ((ours["weight/" + name] - w).norm() / (w.norm() + 1e-3 * 20 * w.numel() ** 0.5)).item()
        # GPT-2's key bias has a gradient of exactly zero, which Adam turns into steps by the sign of noise.
        if name.endswith("c_attn.bias"):
            third = w.numel() // 3
            keys = torch.arange(w.numel()) // third == 1
            error = ((ours["weight/" + name] - w)[~keys].norm() / w[~keys].norm()).item()
        assert error < 1e-10, name
