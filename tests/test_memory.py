"""What --dry-run predicts of a step's memory is what the run then counts."""

import asyncio
import json
import pathlib
import re

import pytest
import small_run
import torch

RECIPE = """
task = "pretrain"
[run]
name = "memory"
steps = 3
[model]
family = "{family}"
layers = 4
hidden = 128
heads = 4
kv_heads = 2
ffn = 352
tie_embeddings = {tied}
[data]
source = ["{texts}"]
tokenizer = {{ train = "bpe", vocab = 2048 }}
sequence = 128
[batch]
size = {size}
micro = {micro}
[layout]
recompute = "{recompute}"
[optimizer]
lr = 1e-3
[eval]
samples = 0
max_samples = 1
"""
TEXTS = pathlib.Path(asyncio.__file__).parent  # half a megabyte of text
UNITS = {"B": 1, "kB": 1e3, "MB": 1e6, "GB": 1e9}


# Within 5 %, since batches, scalars and what the evaluation holds are not in the program.
# One micro-batch a lane, where the second lane's gradients go as they are summed, and several, where they stay.
@pytest.mark.parametrize("recompute", ["none", "selective", "block"])
@pytest.mark.parametrize(
    ("family", "tied", "threads", "size", "micro"),
    [("llama", "true", 1, 4, 2), ("llama", "false", 2, 4, 4), ("llama", "true", 2, 8, 4), ("qwen3", "true", 2, 4, 4)],
)
def test_predicted_peak(trireme, tmp_path, family, tied, threads, size, micro, recompute):
    recipe = tmp_path / "memory.toml"
    recipe.write_text(RECIPE.format(family=family, tied=tied, texts=TEXTS, size=size, micro=micro, recompute=recompute))
    arguments = [recipe, f"run.dir={tmp_path / 'run'}", f"run.threads={threads}", f"data.cache={tmp_path / 'data'}"]
    shown = trireme("train", *arguments, "--dry-run").stdout
    number, unit = re.search(r"predicted peak +([0-9.]+) (\w+)", shown).groups()
    trireme("train", *arguments)
    lines = [json.loads(line) for line in (tmp_path / "run/metrics.jsonl").read_text().splitlines()]
    counted = max(line["peak_memory_bytes"] for line in lines if "kind" not in line)
    assert abs(float(number) * UNITS[unit] / counted - 1) < 0.05, (number, unit, counted)


# Two ranks are threads of one process, which counts the bytes of both.
@pytest.mark.parametrize("zero", [1, 2, 3])
def test_predicted_peak_of_zero_stages(trireme, tmp_path, zero):
    recipe = tmp_path / "memory.toml"
    recipe.write_text(RECIPE.format(family="llama", tied="false", texts=TEXTS, size=8, micro=2, recompute="none"))
    arguments = [recipe, f"run.dir={tmp_path / 'run'}", "run.threads=2", f"data.cache={tmp_path / 'data'}", "layout.shard=2",
                 f"layout.zero={zero}"]
    shown = trireme("train", *arguments, "--dry-run").stdout
    number, unit = re.search(r"predicted peak +([0-9.]+) (\w+)", shown).groups()
    trireme("train", *arguments)
    counted = max(step["peak_memory_bytes"] for step in small_run.steps(tmp_path / "run"))
    assert abs(2 * float(number) * UNITS[unit] / counted - 1) < 0.05, (number, unit, counted)


@pytest.mark.parametrize("family", ["llama", "qwen3", "gpt2", "gemma2"])
def test_recomputation_changes_memory_and_no_bit(trireme, tmp_path, family):
    runs = {}
    for recompute in ("none", "selective", "block"):
        recipe = tmp_path / "memory.toml"
        text = RECIPE.format(family=family, tied="true", texts=TEXTS, size=4, micro=4, recompute=recompute)
        recipe.write_text(text.replace("kv_heads = 2\n", "") if family == "gpt2" else text)
        run = tmp_path / recompute
        trireme("train", recipe, f"run.dir={run}", "run.threads=2", "run.steps=4", f"data.cache={tmp_path / 'data'}")
        runs[recompute] = run
    exact = {name: small_run.exact(run) for name, run in runs.items()}
    assert exact["none"] == exact["selective"] == exact["block"]
    weights = {name: small_run.tensors(run / "checkpoints/step-00000004") for name, run in runs.items()}
    for name in ("selective", "block"):
        assert all(torch.equal(tensor, weights[name][key]) for key, tensor in weights["none"].items())
    peak = {name: max(step["peak_memory_bytes"] for step in small_run.steps(run)) for name, run in runs.items()}
    assert peak["none"] > 1.05 * peak["selective"] > 1.05 * peak["block"]
