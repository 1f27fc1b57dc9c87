"""Hugging Face directories in and out: what transformers wrote we read, and the other way round, to the bit."""

import json
import os
import pickle
import random
import re
import shutil
import zipfile

import pytest
import small_run
import tiny_models
import tokenizer_files
import torch
from python_worker import Worker
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, AutoTokenizer

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


def same_bits(a, b):
    assert a.keys() == b.keys()
    for name in a:
        assert a[name].dtype == b[name].dtype and a[name].shape == b[name].shape, name
        assert torch.equal(a[name].view(torch.uint8), b[name].view(torch.uint8)), name


def rewrite(folder, change):
    """Changes the tensors of a directory's one file."""
    path = folder / "model.safetensors"
    tensors = load_file(path)
    change(tensors)
    save_file(tensors, path, {"format": "pt"})


def recipe(folder, source, **keys):
    """A recipe of continued pre-training whose optimizer changes nothing unless it is told to."""
    path = small_run.write(folder)
    text = path.read_text()
    text = re.sub(r"\[model\]\n(.+\n)+?\[data\]", f'[model]\nfrom = "{source}"\n[data]', text)
    text = text.replace("tokenizer = { train = \"bpe\", vocab = 280 }\n", "").replace("steps = 50", "steps = 2")
    text = text.replace("warmup_steps = 5", "").replace("lr = 2e-3", "lr = 0.0")
    path.write_text(text)
    return [path, *(f"{key}={value}" for key, value in keys.items())]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("sharded", [False, True])
def test_in_out_in_is_identical(tmp_path, trireme, dtype, sharded):
    model = tiny_models.llama()
    source = tiny_models.save(tmp_path / "in", model, DTYPES[dtype], max_shard_size="60KB" if sharded else "5GB")
    assert (source / "model.safetensors.index.json").exists() == sharded
    trireme("ckpt", "convert", source, "ours", "--to", "trireme")
    trireme("ckpt", "convert", "ours", "out", "--to", "hf", *(["--shard-bytes", 50_000] if sharded else []))
    trireme("ckpt", "convert", "out", "again", "--to", "trireme")
    out = tmp_path / "out"
    assert (out / "model.safetensors.index.json").exists() == sharded
    expected = tiny_models.weights(source)
    for folder in (out, tmp_path / "ours", tmp_path / "again"):
        same_bits(tiny_models.weights(folder), expected)
    for name in ("config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json"):
        assert (out / name).read_bytes() == (source / name).read_bytes()
    loaded = AutoModelForCausalLM.from_pretrained(out, dtype="auto")
    assert loaded.dtype == DTYPES[dtype]
    same_bits(dict(loaded.state_dict()), {name: x.to(DTYPES[dtype]) for name, x in model.state_dict().items()})


@pytest.mark.parametrize("to", DTYPES)
def test_export_in_another_type(tmp_path, trireme, to):
    model = tiny_models.llama()
    source = tiny_models.save(tmp_path / "in", model)
    trireme("ckpt", "convert", source, "out", "--to", "hf", "--dtype", to)
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path / "out", dtype="auto")
    same_bits(dict(loaded.state_dict()), {name: x.to(DTYPES[to]) for name, x in model.state_dict().items()})


@pytest.mark.parametrize("family, dtype", [*((family, "fp32") for family in tiny_models.FAMILIES),
                                           ("llama", "bf16"), ("gpt2", "fp16")])
def test_a_run_begins_with_these_weights(tmp_path, trireme, family, dtype):
    model = tiny_models.make(family)
    source = tiny_models.save(tmp_path / "hf", model, DTYPES[dtype])
    trireme("train", *recipe(tmp_path, source), "run.dir=run")
    checkpoint = tmp_path / "run/checkpoints/step-00000002"
    expected = {name: x.float() for name, x in tiny_models.weights(source).items()}
    same_bits(tiny_models.weights(checkpoint), expected)
    # Everything else that the directory held goes along.
    assert (checkpoint / "tokenizer_config.json").read_bytes() == (source / "tokenizer_config.json").read_bytes()
    config = json.loads((checkpoint / "config.json").read_text())
    assert config == {**json.loads((source / "config.json").read_text()), "dtype": "float32"}
    model = AutoModelForCausalLM.from_pretrained(source, dtype=torch.float32, attn_implementation="eager")
    # The loss of the first step is the one of transformers, on the samples that `data inspect` shows.
    samples = trireme("data", "inspect", tmp_path / "small.toml", "--sample", 0, "--count", 4, "--json").stdout
    nats = count = 0
    for sample in map(json.loads, samples.splitlines()):
        documents = torch.tensor(sample["documents"])
        for document in documents.unique():
            ids = torch.tensor(sample["tokens"])[documents == document]
            labels = torch.tensor(sample["labels"])[documents == document]
            with torch.no_grad():
                logits = model(ids[None]).logits[0].double()
            nats += torch.nn.functional.cross_entropy(logits, labels, ignore_index=-100, reduction="sum").item()
            count += (labels >= 0).sum().item()
    # fp32 logits of the two agree within 2e-5, and so does a mean of log-probabilities.
    assert small_run.steps(tmp_path / "run")[0]["loss"] == pytest.approx(nats / count, abs=2e-5)


def test_a_run_goes_on_from_a_run(tmp_path, trireme):
    path = small_run.write(tmp_path)
    trireme("train", path, "run.dir=first")
    (tmp_path / "next").mkdir()
    arguments = recipe(tmp_path / "next", tmp_path / "first")
    trireme("train", *arguments, f"data.source={tmp_path / 'texts'}", "run.dir=second")
    before = [line for line in small_run.lines(tmp_path / "first") if line.get("kind") == "eval"][-1]
    after = [line for line in small_run.lines(tmp_path / "second") if line.get("kind") == "eval"][-1]
    assert after["loss"] == before["loss"], "same weights, same held-out texts, same order of sums"
    trireme("train", *arguments, f"data.source={tmp_path / 'texts'}", "run.dir=second", "run.steps=4", "--resume")
    assert small_run.steps(tmp_path / "second")[-1]["step"] == 4
    refused = trireme("train", *arguments, f"model.from={tmp_path / 'second'}", "run.dir=second", "--resume", code=2)
    assert "model.from" in refused.stderr


def test_another_tokenizer(tmp_path, trireme):
    source = tiny_models.save(tmp_path / "hf", tiny_models.llama())
    arguments = recipe(tmp_path, source)
    trireme("train", *arguments, "data.tokenizer.train=bpe", "data.tokenizer.vocab=300", "run.dir=run")
    checkpoint = tmp_path / "run/checkpoints/step-00000002"
    assert len(AutoTokenizer.from_pretrained(checkpoint)) == 300
    tokenizer_files.gpt2().save(str(tmp_path / "large.json"))
    refused = trireme("train", *arguments, "data.tokenizer=large.json", "run.dir=other", code=2)
    assert "1500 ids" in refused.stderr and "416" in refused.stderr


def test_keys_that_contradict_are_errors(tmp_path, trireme):
    source = tiny_models.save(tmp_path / "hf", tiny_models.llama())
    arguments = recipe(tmp_path, source)
    for key, value in {"layers": 3, "hidden": 32, "heads": 4, "tie_embeddings": "true", "max_positions": 64}.items():
        assert f"model.{key}" in trireme("train", *arguments, f"model.{key}={value}", code=2).stderr
    contradicts = trireme("train", *arguments, "model.family=llama", code=2).stderr
    assert "model.family contradicts model.from" in contradicts and "small.toml:" in contradicts
    assert "takes at most 64" in trireme("train", *arguments, "data.sequence=65", code=2).stderr
    assert "nowhere" in trireme("train", *arguments, "model.from=nowhere", code=2).stderr
    (source / "tokenizer.json").unlink()
    assert "data.tokenizer" in trireme("train", *arguments, code=2).stderr


def test_tensors_missing_and_unused_are_named(tmp_path, trireme):
    source = tiny_models.save(tmp_path / "hf", tiny_models.llama())
    scores = ["eval", source, "--per-token", "--data", tmp_path / "ids.jsonl"]
    (tmp_path / "ids.jsonl").write_text('{"ids": [1, 2, 3]}\n')
    whole = trireme(*scores).stdout
    spoiled = {
        "model.layers.1.mlp.up_proj.weight is missing": lambda t: t.pop("model.layers.1.mlp.up_proj.weight"),
        "lm_head.weight is missing": lambda t: t.pop("lm_head.weight"),
        "model.layers.2.mlp.up_proj.weight is unexpected":
            lambda t: t.update({"model.layers.2.mlp.up_proj.weight": torch.zeros(2)}),
        "model.norm.weight is [31] and not [32]": lambda t: t.update({"model.norm.weight": torch.ones(31)}),
    }
    for message, spoil in spoiled.items():
        rewrite(source, spoil)
        assert message in trireme(*scores, code=2).stderr
        tiny_models.save(source, tiny_models.llama())
    # Names that the same model has elsewhere.
    rewrite(source, lambda t: t.update({"model.layers.0.self_attn.rotary_emb.inv_freq": torch.ones(4)}))
    assert trireme(*scores).stdout == whole
    rewrite(source, lambda t: [t.update({name.removeprefix("model."): t.pop(name)}) for name in list(t)])
    assert trireme(*scores).stdout == whole


# In every family and type, tied or not, a directory that was written from one that was read holds the same. Each family
# is tried tied and untied, each type several times; all combinations are for --long.
EVERY = [(family, dtype, tied) for family in tiny_models.FAMILIES for dtype in DTYPES for tied in (False, True)]
SOME = [(family, dtype, tied) for i, family in enumerate(tiny_models.FAMILIES)
        for dtype, tied in zip((list(DTYPES) * 3)[i:], (False, True))]


@pytest.mark.parametrize("family, dtype, tied",
                         [pytest.param(*case, marks=[] if case in SOME else pytest.mark.slow) for case in EVERY])
def test_every_family_goes_through(tmp_path, trireme, family, dtype, tied):
    model = tiny_models.make(family, tie_word_embeddings=tied)
    source = tiny_models.save(tmp_path / "in", model, DTYPES[dtype])
    expected = tiny_models.weights(source)
    assert ("lm_head.weight" in expected) == (not tied)
    trireme("ckpt", "convert", source, "ours", "--to", "trireme")
    trireme("ckpt", "convert", "ours", "out", "--to", "hf")
    same_bits(tiny_models.weights(tmp_path / "out"), expected)
    loaded, loading = AutoModelForCausalLM.from_pretrained(tmp_path / "out", dtype="auto", output_loading_info=True)
    assert not any(loading.values()) and loaded.dtype == DTYPES[dtype]
    assert (loaded.lm_head.weight.data_ptr() == loaded.get_input_embeddings().weight.data_ptr()) == tied
    same_bits(dict(loaded.state_dict()), {name: x.to(DTYPES[dtype]) for name, x in model.state_dict().items()})


# What a run writes goes the same way: out of it, and in again, tied and untied.
@pytest.mark.parametrize("family, tied", [("llama", True), ("gpt2", False), ("gemma3_text", True), ("qwen3", False)])
def test_a_runs_weights_come_back(tmp_path, trireme, family, tied):
    source = tiny_models.save(tmp_path / "hf", tiny_models.make(family, tie_word_embeddings=tied))
    trireme("train", *recipe(tmp_path, source, **{"optimizer.lr": 1e-2, "run.dir": "run"}))
    trireme("ckpt", "convert", "run", "out", "--to", "hf")
    trireme("ckpt", "convert", "out", "again", "--to", "trireme")
    out, again = tiny_models.weights(tmp_path / "out"), tiny_models.weights(tmp_path / "again")
    same_bits(out, again)
    same_bits(out, tiny_models.weights(tmp_path / "run/checkpoints/step-00000002"))
    assert out.keys() == tiny_models.weights(source).keys() and not all(
        torch.equal(out[name], tensor) for name, tensor in tiny_models.weights(source).items())
    state = AutoModelForCausalLM.from_pretrained(tmp_path / "out").state_dict()
    assert all(torch.equal(state[name], tensor) for name, tensor in out.items())


def test_tied_weights(tmp_path, trireme):
    model = tiny_models.llama(tie_word_embeddings=True)
    source = tiny_models.save(tmp_path / "hf", model)
    assert "lm_head.weight" not in tiny_models.weights(source)
    scores = ["eval", source, "--per-token", "--data", tmp_path / "ids.jsonl"]
    (tmp_path / "ids.jsonl").write_text('{"ids": [1, 2, 3]}\n')
    whole = trireme(*scores).stdout
    rewrite(source, lambda t: t.update({"lm_head.weight": t["model.embed_tokens.weight"].clone()}))
    assert trireme(*scores).stdout == whole
    rewrite(source, lambda t: t.update({"lm_head.weight": -t["lm_head.weight"]}))
    assert "lm_head.weight" in trireme(*scores, code=2).stderr


# --- pytorch_model.bin

def as_pickle(source, target, legacy=False, shards=1, change=lambda tensors: tensors):
    """The directory with its weights as torch.save() writes them."""
    shutil.copytree(source, target, ignore=shutil.ignore_patterns("*.safetensors"))
    tensors = change(tiny_models.weights(source))
    how = {"_use_new_zipfile_serialization": not legacy}
    if shards == 1:
        torch.save(tensors, target / "pytorch_model.bin", **how)
        return target
    weight_map = {}
    for i in range(shards):
        name = f"pytorch_model-{i + 1:05}-of-{shards:05}.bin"
        part = {key: tensors[key] for key in sorted(tensors)[i::shards]}
        weight_map.update(dict.fromkeys(part, name))
        torch.save(part, target / name, **how)
    (target / "pytorch_model.bin.index.json").write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))
    return target


@pytest.mark.parametrize("dtype, legacy, shards", [("fp32", False, 1), ("bf16", False, 3), ("fp16", True, 1),
                                                   ("fp32", True, 2)])
def test_pytorch_bin(tmp_path, trireme, dtype, legacy, shards):
    source = tiny_models.save(tmp_path / "in", tiny_models.llama(), DTYPES[dtype])
    pickled = as_pickle(source, tmp_path / "bin", legacy, shards)
    trireme("ckpt", "convert", pickled, "out", "--to", "hf")
    same_bits(tiny_models.weights(tmp_path / "out"), tiny_models.weights(source))
    trireme("ckpt", "verify", pickled)
    assert trireme("ckpt", "diff", pickled, source).stderr.startswith("no tensor differs")
    (tmp_path / "ids.jsonl").write_text('{"ids": [1, 2, 3]}\n')
    scores = ["--per-token", "--data", tmp_path / "ids.jsonl"]
    assert trireme("eval", pickled, *scores).stdout == trireme("eval", source, *scores).stdout


# Tensors need not lie in the file as they are: views, one storage under two names, no elements, no dims.
def test_pytorch_bin_of_odd_tensors(tmp_path, trireme):
    base = torch.arange(24.0).reshape(4, 6)
    odd = {"whole": base, "transposed": base.t(), "strided": base[::2, 1:], "empty": torch.zeros(0, 3),
           "scalar": torch.tensor(7.0), "same": base, "flags": torch.tensor([True, False]), "i": torch.arange(3),
           "conjugate": torch.zeros(2, dtype=torch.complex64).conj().imag}
    torch.save(odd, tmp_path / "odd.pt")
    shown = json.loads(trireme("ckpt", "show", tmp_path / "odd.pt", "--json").stdout)
    for tensor in shown["tensors"]:
        assert tensor["shape"] == list(odd[tensor["name"]].shape)
        if tensor["name"] != "empty":
            assert tensor["mean"] == odd[tensor["name"]].double().mean().item()
    assert len(shown["tensors"]) == len(odd)


class Command:
    """Unpickled, it would run a command."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.system, (f"touch {self.path}",)


def test_a_hostile_pytorch_bin_runs_nothing(tmp_path, trireme):
    proof = tmp_path / "it-ran"
    refusals = {
        "posix.system": {"w": Command(proof)},
        "dictionary of tensors": [torch.zeros(2)],
        "step is a int": {"w": torch.zeros(2), "step": 3},
        "no text": {3: torch.zeros(2)},
        "no plain tensor": {"w": torch.eye(3).to_sparse()},
        "torch.complex64": {"w": torch.zeros(2, dtype=torch.complex64)},
    }
    for i, (says, content) in enumerate(refusals.items()):
        torch.save(content, tmp_path / "w.pt", _use_new_zipfile_serialization=i % 2 == 0)
        done = trireme("ckpt", "show", tmp_path / "w.pt", code=2)
        assert says in done.stderr and len(done.stderr.splitlines()) <= 3, done.stderr
    # A plain pickle, and text.
    (tmp_path / "w.pt").write_bytes(pickle.dumps(Command(proof)))
    assert "w.pt" in trireme("ckpt", "show", tmp_path / "w.pt", code=2).stderr
    (tmp_path / "w.pt").write_text("hello")
    assert "w.pt" in trireme("ckpt", "show", tmp_path / "w.pt", code=2).stderr
    # Compressed members: torch never writes them, and mapping them would give their packed bytes.
    torch.save({"w": torch.zeros(1 << 20)}, tmp_path / "w.pt")
    with zipfile.ZipFile(tmp_path / "w.pt") as old, zipfile.ZipFile(tmp_path / "z.pt", "w", zipfile.ZIP_DEFLATED) as new:
        for item in old.infolist():
            new.writestr(item.filename, old.read(item))
    assert "z.pt" in trireme("ckpt", "show", tmp_path / "z.pt", code=2).stderr
    assert not proof.exists()


def damage(generator, data):
    """One of the ways in which a file goes wrong: an end that is missing, bits that flipped, bytes too many."""
    kind, at = generator.randrange(4), generator.randrange(len(data))
    if kind == 0:
        return data[:at]
    if kind == 1:
        return data[:at] + bytes([data[at] ^ 1 << generator.randrange(8)]) + data[at + 1:]
    if kind == 2:
        return data[:at] + generator.randbytes(8) + data[at + 8:]
    return data[:at] + data[at:at + 50] + data[at:]


# Whatever was done to a file, it is read or refused with a message, in bounded time and memory. All of them go through
# one worker, as the binary starts it.
@pytest.mark.parametrize("seed, count", [(1, 60), pytest.param(2, 5000, marks=pytest.mark.slow)])
def test_damaged_pytorch_bin(tmp_path, seed, count):
    generator = random.Random(seed)
    whole = {}
    path = tmp_path / "w.pt"
    for legacy in (False, True):
        torch.save({"a": torch.randn(40, 3), "b": torch.zeros(5, dtype=torch.int64)}, path,
                   _use_new_zipfile_serialization=not legacy)
        whole[legacy] = path.read_bytes()
    worker, refused = Worker("state/torch_file.py"), 0
    for i in range(count):
        path = tmp_path / f"{i}.pt"
        path.write_bytes(damage(generator, whole[i % 2 == 0]))
        reply, _ = worker.ask({"open": str(path)})
        refused += "error" in reply
        for tensor in reply.get("tensors", ()):
            _, payload = worker.ask({"path": str(path), "tensor": tensor["name"], "offset": 0, "bytes": 1})
            assert len(payload) == 1, f"seed {seed}, case {i}"
        path.unlink()
    assert refused > count / 4, "the damage was not seen"
