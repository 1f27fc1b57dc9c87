"""Stopped in any way and resumed, a run gives what it gives without a stop; on other layouts, the same loss."""

import json
import random
import shutil
import signal
import subprocess

import pytest
import small_run
import torch
from conftest import BINARY

FINAL = "checkpoints/step-00000050"


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The folder of the recipe, and what fifty steps without a stop give."""
    folder = tmp_path_factory.mktemp("whole")
    recipe = small_run.write(folder)
    subprocess.run([BINARY, "train", recipe, "run.dir=run"], cwd=folder, check=True, capture_output=True)
    return folder, small_run.exact(folder / "run"), small_run.tensors(folder / "run" / FINAL)


def expect_the_same(run, whole):
    _, metrics, weights = whole
    assert small_run.exact(run) == metrics
    found = small_run.tensors(run / FINAL)
    assert found.keys() == weights.keys() and len(found) > 30  # weights and both moments
    for name, tensor in weights.items():
        assert torch.equal(found[name], tensor), name


def start(folder, run, *more):
    return subprocess.Popen([BINARY, "train", folder / "small.toml", f"run.dir={run}", "--resume", *more], cwd=folder,
                            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)


def count(run):
    file = run / "metrics.jsonl"
    return file.read_bytes().count(b"\n") if file.exists() else 0


def kill_after(folder, run, metric_lines):
    process = start(folder, run)
    small_run.wait_for(lambda: count(run) >= metric_lines, process)
    process.kill()
    process.communicate()


# Kill points by lines of metrics: before the first checkpoint, around one, in the middle, near the end; and three that
# a printed seed chooses.
SEED = 20261130
POINTS = [1, 10, 11, 23, 49] + random.Random(SEED).sample(range(2, 50), 3)


@pytest.mark.parametrize("point", POINTS)
def test_killed_and_resumed(whole, tmp_path, point):
    folder = whole[0]
    kill_after(folder, tmp_path / "run", point)
    process = start(folder, tmp_path / "run")
    _, error = process.communicate()
    assert process.returncode == 0, error.decode()
    expect_the_same(tmp_path / "run", whole)


def test_killed_again_and_again(whole, tmp_path):
    folder, run = whole[0], tmp_path / "run"
    for more in (12, 15, 27):
        kill_after(folder, run, more)
    process = start(folder, run)
    _, error = process.communicate()
    assert process.returncode == 0, error.decode()
    expect_the_same(run, whole)
    outcomes = [attempt["outcome"] for attempt in json.loads((run / "ledger.json").read_text())["attempts"]]
    assert outcomes == ["unknown"] * 3 + ["finished"]


@pytest.mark.parametrize("number, code", [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_signal_ends_with_a_checkpoint(whole, tmp_path, number, code):
    folder, run = whole[0], tmp_path / "run"
    process = start(folder, run)
    small_run.wait_for(lambda: count(run) >= 13, process)
    process.send_signal(number)
    _, error = process.communicate()
    assert process.returncode == code, error.decode()
    last = small_run.steps(run)[-1]["step"]
    assert 13 <= last < 50
    assert (run / f"checkpoints/step-{last:08}/manifest.json").exists()
    assert (run / "report.html").exists()
    process = start(folder, run)
    _, error = process.communicate()
    assert process.returncode == 0, error.decode()
    expect_the_same(run, whole)


def test_resuming_a_finished_run_changes_nothing(whole, tmp_path, trireme):
    folder, run = whole[0], tmp_path / "run"
    for _ in range(2):
        process = start(folder, run)
        assert process.communicate() and process.returncode == 0
    expect_the_same(run, whole)


# fp64: layouts differ by the order of sums alone, a relative 1e-11 a step; ten steps of Adam may grow that tenfold.
@pytest.mark.parametrize("before, after", [("layout.shard=2", "layout.shard=1"), ("layout.shard=1", "layout.shard=2"),
                                           ("layout.replica=2", "layout.shard=2"), ("layout.shard=2", "layout.replica=2")])
def test_a_checkpoint_goes_on_in_another_layout(whole, tmp_path, before, after):
    folder = whole[0]
    wide = ["precision.compute=fp64"]

    def train(run, *more):
        process = start(folder, run, *wide, *more)
        _, error = process.communicate()
        assert process.returncode == 0, error.decode()
        return {line["step"]: line["loss"] for line in small_run.steps(run)}

    reference = train(tmp_path / "reference", "run.steps=20", before)
    # Without the checkpoint of step 20, the run goes on from that of step 10, written under `before`.
    train(tmp_path / "moved", "run.steps=20", before)
    shutil.rmtree(tmp_path / "moved/checkpoints/step-00000020")
    moved = train(tmp_path / "moved", "run.steps=20", after)
    assert len(moved) == 20
    for step in range(11, 21):
        assert moved[step] == pytest.approx(reference[step], rel=1e-10), f"step {step}"
    shards = len(list((tmp_path / "moved/checkpoints/step-00000020").glob("model*.safetensors")))
    assert shards == (2 if after == "layout.shard=2" else 1)


def test_what_makes_it_another_run_is_refused_by_name(whole, tmp_path, trireme):
    folder, run = whole[0], tmp_path / "run"
    kill_after(folder, run, 12)
    done = trireme("train", folder / "small.toml", f"run.dir={run}", "--resume", "model.ffn=64", code=2, cwd=folder)
    assert "model.ffn: 48 -> 64" in done.stderr
    done = trireme("train", folder / "small.toml", f"run.dir={run}", "--resume", "optimizer.lr=1e-3", cwd=folder)
    assert "optimizer.lr" in done.stderr
