"""The task ctr: a logistic regression over one row table, on generated clicks whose truth is known."""

import math
import signal
import subprocess

import pytest
import small_run
from conftest import BINARY

RECIPE = """
task = "ctr"
[run]
name = "clicks"
steps = {steps}
seed = 2
threads = {threads}
[data]
source = ["generated-clicks"]
rows = 20000
fields = 4
ids = 50
held_out = 0.2
[model]
family = "lr"
[table]
optimizer = {{ kind = "row_adagrad", lr = 0.1 }}
[batch]
size = 64
micro = {micro}
[optimizer]
lr = 1e-2
weight_decay = 0.0
[checkpoint]
every_steps = 20
[eval]
every_steps = 100
"""


def write(folder, steps=250, threads=2, micro=16):
    path = folder / "clicks.toml"
    path.write_text(RECIPE.format(steps=steps, threads=threads, micro=micro))
    return path


def exact(run):
    keys = ("kind", "step", "samples", "loss", "learning_rate", "grad_norm", "auc", "logloss", "normalized_entropy")
    return [{k: line[k] for k in keys if k in line} for line in small_run.lines(run)]


def test_learns_the_planted_truth(trireme, tmp_path):
    trireme("train", write(tmp_path), "run.dir=run")
    evaluations = [line for line in small_run.lines(tmp_path / "run") if line.get("kind") == "eval"]
    first, last = evaluations[0], evaluations[-1]
    assert last["auc"] > first["auc"] > 0.6
    assert last["normalized_entropy"] < 1 and 0.8 < last["calibration"] < 1.2
    assert "token" not in (tmp_path / "run/metrics.jsonl").read_text()
    assert "token" not in (tmp_path / "run/report.html").read_text().lower()


# Rows take their gradients in the order of samples whatever the lanes are; only the bias's sum may differ in rounding.
def test_lanes_and_micro_batches_change_only_rounding(trireme, tmp_path):
    losses = []
    for name, threads, micro in (("a", 1, 64), ("b", 2, 16), ("c", 2, 8)):
        trireme("train", write(tmp_path, 60, threads, micro), f"run.dir={name}", "precision.compute=fp64")
        losses.append([line["loss"] for line in small_run.steps(tmp_path / name)])
    assert losses[1] == pytest.approx(losses[0], rel=1e-6) and losses[2] == pytest.approx(losses[0], rel=1e-6)


def test_killed_and_resumed_to_the_bit(trireme, tmp_path):
    recipe = write(tmp_path, 100)
    trireme("train", recipe, "run.dir=whole")
    killed = subprocess.Popen([BINARY, "train", recipe, "run.dir=cut"], cwd=tmp_path, stdout=subprocess.DEVNULL,
                              stderr=subprocess.DEVNULL)
    metrics = tmp_path / "cut/metrics.jsonl"
    small_run.wait_for(lambda: metrics.exists() and metrics.read_bytes().count(b"\n") >= 50, killed)
    killed.send_signal(signal.SIGKILL)
    killed.wait()
    trireme("train", recipe, "run.dir=cut", "--resume")
    assert exact(tmp_path / "cut") == exact(tmp_path / "whole")
    whole, cut = (small_run.tensors(tmp_path / run / "checkpoints/step-00000100") for run in ("whole", "cut"))
    assert whole.keys() == cut.keys() and "table/ids/weight" in whole
    for name, tensor in whole.items():
        assert tensor.equal(cut[name]), name


# Bias and rows begin at 0, so the first loss is that of saying one half.
def test_begins_at_log_two(trireme, tmp_path):
    trireme("train", write(tmp_path, 1), "run.dir=run")
    assert small_run.steps(tmp_path / "run")[0]["loss"] == pytest.approx(math.log(2), abs=1e-6)


def test_more_than_one_rank_is_refused(trireme, tmp_path):
    done = trireme("train", write(tmp_path), "run.dir=run", "layout.shard=2", code=2)
    assert "layout.shard" in done.stderr and "one rank" in done.stderr


def test_program_pulls_and_pushes_rows(trireme, tmp_path):
    done = trireme("train", write(tmp_path), "--dry-run")
    assert "pull_rows ids micro 0" in done.stdout and "push_rows ids micro 0" in done.stdout
    assert "update ids" in done.stdout
