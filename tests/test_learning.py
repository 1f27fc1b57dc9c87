"""Ours learns what a plain torch twin learns, from our initial weights, on our own prepared samples."""

import json

import pytest
import torch
from oracle.families import Llama
from oracle.optimizer import AdamW, learning_rate
from safetensors.torch import load_file

RECIPE = """
task = "pretrain"
[run]
name = "twin"
steps = {steps}
seed = 3
threads = 2
[model]
family = "llama"
layers = 2
hidden = 32
heads = 4
kv_heads = 2
ffn = 56
tie_embeddings = {tied}
[data]
source = ["texts"]
tokenizer = {{ train = "bpe", vocab = 300 }}
sequence = 32
held_out = 0.1
[batch]
size = 6
micro = 2
[optimizer]
kind = "adamw"
lr = 3e-3
weight_decay = 0.1
betas = [0.9, 0.95]
clip = 0.5
[schedule]
kind = "cosine"
warmup_steps = 10
min_ratio = 0.1
[precision]
compute = "{compute}"
[eval]
samples = 0
"""


def write_texts(folder):
    """Small texts with structure to learn, of unequal lengths, so that samples hold several documents."""
    folder.mkdir()
    for i in range(60):
        lines = [f"def function_{i}_{j}(value):\n    return value + {i * j}\n" for j in range(1 + i % 5)]
        (folder / f"t{i:02}.py").write_text("".join(lines))


@pytest.fixture
def recipe(tmp_path):
    write_texts(tmp_path / "texts")

    def make(steps=100, tied="true", compute="fp32"):
        path = tmp_path / "twin.toml"
        path.write_text(RECIPE.format(steps=steps, tied=tied, compute=compute))
        return path

    return make


def samples(trireme, recipe, first, count):
    """Samples [first, first + count) as `data inspect` shows them."""
    done = trireme("data", "inspect", recipe, "--sample", first, "--count", count, "--json")
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(rows) == count
    return {key: torch.tensor([row[key] for row in rows]) for key in ("tokens", "labels", "positions", "documents")}


def metrics(run):
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [line for line in lines if "kind" not in line]


def initial_weights(trireme, recipe, tmp_path):
    """One step of learning rate 0 changes nothing: its checkpoint holds the initial weights."""
    trireme("train", recipe, f"run.dir={tmp_path / 'initial'}", "run.steps=1", "schedule.warmup_steps=0", "optimizer.lr=0")
    checkpoint = tmp_path / "initial/checkpoints/step-00000001"
    return json.loads((checkpoint / "config.json").read_text()), load_file(checkpoint / "model.safetensors")


# The twin sums in another order. In fp32 the losses of 100 steps stay within 1e-4 of one another; in fp64, where
# rounding is nine digits smaller, within 1e-9.
@pytest.mark.parametrize("compute, tied, bound", [("fp32", "true", 1e-4), ("fp64", "false", 1e-9)])
def test_same_losses_as_the_twin(trireme, recipe, tmp_path, compute, tied, bound):
    steps, batch = 100, 6
    path = recipe(steps, tied, compute)
    config, weights = initial_weights(trireme, path, tmp_path)
    trireme("train", path, f"run.dir={tmp_path / 'run'}")
    ours = metrics(tmp_path / "run")
    assert [line["step"] for line in ours] == list(range(1, steps + 1))

    torch.set_num_threads(1)
    dtype = torch.float64 if compute == "fp64" else torch.float32
    twin = Llama(config, weights, dtype)
    optimizer = AdamW(twin.parameters(), (0.9, 0.95), 1e-8, 0.1, 0.5)
    data = samples(trireme, path, 0, steps * batch)
    assert (data["documents"].max(1).values > 0).any(), "no sample holds several documents"
    for i, line in enumerate(ours):
        loss = twin.loss({key: value[i * batch : (i + 1) * batch] for key, value in data.items()})
        loss.backward()
        lr = learning_rate(i + 1, 3e-3, 10, steps, 0.1)
        norm = optimizer.step(lr)
        assert line["loss"] == pytest.approx(loss.item(), abs=bound), f"step {i + 1}"
        assert line["learning_rate"] == pytest.approx(lr, rel=1e-12)
        # The norm is not averaged over tokens: allow it ten times the loss's bound.
        assert line["grad_norm"] == pytest.approx(norm, rel=10 * bound), f"step {i + 1}"
    assert ours[-1]["loss"] < 0.6 * ours[0]["loss"], "it learned nothing"


def test_held_out_bits_per_byte_is_the_twins(trireme, recipe, tmp_path):
    path = recipe(12, "true", "fp64")
    run = tmp_path / "run"
    trireme("train", path, f"run.dir={run}")
    line = [json.loads(x) for x in (run / "metrics.jsonl").read_text().splitlines() if '"eval"' in x][-1]
    checkpoint = run / "checkpoints/step-00000012"
    twin = Llama(json.loads((checkpoint / "config.json").read_text()), load_file(checkpoint / "model.safetensors"),
                 torch.float64)
    nats, labels, text_bytes = 0.0, 0, 0
    index = 0
    while True:
        done = trireme("data", "inspect", path, "--sample", index, "--split", "held_out", "--json", code=None)
        if done.returncode != 0:
            break
        row = json.loads(done.stdout)
        sample = {key: torch.tensor([row[key]]) for key in ("tokens", "labels", "positions", "documents")}
        valid = sum(label != -100 for label in row["labels"])
        if valid:
            nats += twin.loss(sample).item() * valid
        labels += valid
        text_bytes += row["label_bytes"]
        index += 1
    assert index > 1
    assert line["loss"] == pytest.approx(nats / labels, rel=1e-10)
    assert line["bits_per_byte"] == pytest.approx(nats / text_bytes / 0.6931471805599453, rel=1e-10)
