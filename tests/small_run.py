"""A run small enough to be made many times: what several test files share."""

import json
import pathlib
import time

from safetensors.torch import load_file

RECIPE = """
task = "pretrain"
[run]
name = "small"
steps = 50
seed = 5
threads = 2
[model]
family = "llama"
layers = 2
hidden = 32
heads = 4
kv_heads = 2
ffn = 48
[data]
source = ["texts"]
tokenizer = { train = "bpe", vocab = 280 }
sequence = 24
held_out = 0.15
[batch]
size = 4
micro = 2
[optimizer]
lr = 2e-3
weight_decay = 0.1
clip = 1.0
[schedule]
kind = "cosine"
warmup_steps = 5
[checkpoint]
every_steps = 10
[eval]
every_steps = 20
samples = 1
sample_tokens = 8
"""

EXACT = ("step", "tokens", "loss", "learning_rate", "grad_norm", "bits_per_byte", "perplexity")


def write(folder):
    """texts/ and small.toml below `folder`; returns the recipe's path."""
    texts = folder / "texts"
    texts.mkdir()
    for i in range(40):
        (texts / f"{i:02}.txt").write_text("".join(f"line {j} of text {i}: {i * j} apples\n" for j in range(2 + i % 7)))
    path = folder / "small.toml"
    path.write_text(RECIPE)
    return path


def lines(run):
    return [json.loads(line) for line in (pathlib.Path(run) / "metrics.jsonl").read_text().splitlines()]


def steps(run):
    return [line for line in lines(run) if "kind" not in line]


def exact(run):
    """What must be equal to the bit after a resume: the fields that the run directory's contract names."""
    return [{key: line[key] for key in ("kind", *EXACT, "prompt", "text") if key in line} for line in lines(run)]


def tensors(checkpoint):
    found = {}
    for file in sorted(pathlib.Path(checkpoint).glob("*.safetensors")):
        found.update(load_file(file))
    return found


def wait_for(condition, process, limit=120):
    """Polls until `condition` holds. A process that ends before is a failure; the limit only ends a broken test."""
    end = time.monotonic() + limit
    while not condition():
        assert process.poll() is None, f"the process ended early with {process.returncode}"
        assert time.monotonic() < end, "waited too long"
        time.sleep(0.005)
