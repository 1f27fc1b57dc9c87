"""Ranks that are processes: the bits of ranks that are threads, and one message however one of them ends."""

import os
import pathlib
import random
import signal
import subprocess
import time

import pytest
import small_run
import torch
from conftest import BINARY

LONG = ["run.steps=1000000", "checkpoint.every_steps=0", "eval.every_steps=0"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("ranks")
    small_run.write(folder)
    return folder


def start(folder, run, *more, **options):
    return subprocess.Popen([BINARY, "train", folder / "small.toml", f"run.dir={run}", "--fabric", "process", *more],
                            cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options)


def children(process):
    """Process ids by rank: they were started in order."""
    return [int(pid) for pid in pathlib.Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()]


def state(pid):
    """The letter of /proc/PID/stat; None once it is gone."""
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return None


def lines_of(run):
    file = run / "metrics.jsonl"
    return file.read_bytes().count(b"\n") if file.exists() else 0


def ended(process, pids, code=1):
    """What it wrote to stderr, once. The limit only ends a broken test."""
    _, text = process.communicate(timeout=120)
    assert process.returncode == code, text
    assert [state(pid) for pid in pids] == [None] * len(pids)
    return text


def the_message(text):
    found = [line for line in text.splitlines() if line.startswith("trireme: ")]
    assert len(found) == 1, text
    return found[0]


@pytest.mark.parametrize("layout", ["layout.shard=2", "layout.replica=2"])
def test_processes_write_what_threads_write(trireme, folder, tmp_path, layout):
    for fabric in ["thread", "process"]:
        trireme("train", folder / "small.toml", f"run.dir={tmp_path / fabric}", "run.steps=12", layout,
                "--ranks", 2, "--fabric", fabric, cwd=folder)
    assert small_run.exact(tmp_path / "process") == small_run.exact(tmp_path / "thread")
    threads, processes = (small_run.tensors(tmp_path / f / "checkpoints/step-00000012") for f in ["thread", "process"])
    assert threads.keys() == processes.keys() and len(threads) > 30
    for name, tensor in threads.items():
        assert torch.equal(processes[name], tensor), name
    assert (tmp_path / "process/log/rank-1.txt").exists()


def test_resumed_on_another_number_of_ranks(trireme, folder, tmp_path):
    """Sums in another order: the losses agree to fp32's rounding over the few steps behind the resume."""
    for run, ranks in [("a", 2), ("b", 4)]:
        common = ["train", folder / "small.toml", f"run.dir={tmp_path / run}", "batch.micro=1", "--fabric", "process"]
        trireme(*common, "run.steps=10", "schedule.kind=constant", "--ranks", 2, cwd=folder)
        trireme(*common, "run.steps=14", "schedule.kind=constant", "--resume", "--ranks", ranks, cwd=folder)
    a, b = (small_run.steps(tmp_path / run) for run in "ab")
    assert len(a) == len(b) == 14 and a[:10] != [] and [x["loss"] for x in a[:10]] == [x["loss"] for x in b[:10]]
    for x, y in zip(a[10:], b[10:]):
        assert x["loss"] == pytest.approx(y["loss"], rel=1e-5)


def end_one(folder, run, how, rank, at_line, ranks=3):
    process = start(folder, run, f"--ranks={ranks}", "batch.size=6", "--timeout=2", *LONG)
    small_run.wait_for(lambda: lines_of(run) >= at_line, process)
    pids = children(process)
    assert len(pids) == ranks
    os.kill(pids[rank], how)
    return the_message(ended(process, pids)), rank


def expect_named(message, rank, how):
    if how == signal.SIGKILL:
        assert message.startswith(f"trireme: rank {rank}: was ended by signal 9 (Killed); it was at step "), message
    else:
        assert f"rank {rank} did not arrive within 2 s" in message or f"rank {rank}: has stood stopped for 2 s; it was at step " in message, message


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
@pytest.mark.parametrize("rank", [0, 2])
def test_a_rank_that_ends_or_stands_still(folder, tmp_path, how, rank):
    message, _ = end_one(folder, tmp_path / "run", how, rank, 3)
    expect_named(message, rank, how)


@pytest.mark.slow
@pytest.mark.parametrize("number", range(50))
def test_fifty_ends(folder, tmp_path, number):
    chance = random.Random(1000 + number)
    how, rank = chance.choice([signal.SIGKILL, signal.SIGSTOP]), chance.randrange(3)
    message, _ = end_one(folder, tmp_path / "run", how, rank, chance.randrange(1, 30))
    expect_named(message, rank, how)


def test_a_rank_that_never_arrives(folder, tmp_path):
    process = start(folder, tmp_path / "run", "--ranks=3", "batch.size=6", "--timeout=2", *LONG)
    small_run.wait_for(lambda: len(children(process)) == 3, process)
    pids = children(process)
    os.kill(pids[1], signal.SIGSTOP)
    message = the_message(ended(process, pids))
    assert "rank 1 did not arrive within 2 s" in message or "rank 1: has stood stopped for 2 s; it was at " in message, message


def test_a_rank_that_throws(folder, tmp_path):
    process = start(folder, tmp_path / "run", "--ranks=2", "optimizer.lr=1e30", "optimizer.clip=", *LONG)
    message = the_message(ended(process, []))
    assert "rank " in message and "is not finite" in message, message


def test_wrong_input_is_said_once(folder, tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run/note").touch()
    message = the_message(ended(start(folder, tmp_path / "run", "--ranks=2"), [], code=2))
    assert "is not empty" in message


def test_ranks_that_the_layout_does_not_make(trireme, folder):
    text = trireme("train", "small.toml", "layout.shard=2", "--ranks", 4, code=2, cwd=folder).stderr
    assert "= 2 ranks, --ranks says 4" in text


def test_stopped_by_a_signal(folder, tmp_path):
    process = start(folder, tmp_path / "run", "--ranks=2", *LONG)
    small_run.wait_for(lambda: lines_of(tmp_path / "run") >= 2, process)
    pids = children(process)
    process.send_signal(signal.SIGTERM)
    text = ended(process, pids, code=143)
    assert "trireme: " not in text
    assert list((tmp_path / "run/checkpoints").glob("step-*"))


def test_ranks_end_with_the_one_who_started_them(folder, tmp_path):
    process = start(folder, tmp_path / "run", "--ranks=2", *LONG)
    small_run.wait_for(lambda: lines_of(tmp_path / "run") >= 2, process)
    pids = children(process)
    process.kill()
    process.wait(timeout=120)
    end = time.monotonic() + 60  # only ends a broken test
    left = pids
    while left and time.monotonic() < end:
        left = [pid for pid in pids if state(pid) not in (None, "Z")]
        time.sleep(0.01)
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    process.communicate(timeout=120)
    assert not left


@pytest.mark.parametrize(("name", "variables"), [
    ("torchrun", {"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"}),
    ("Slurm", {"SLURM_PROCID": "1", "SLURM_STEP_NUM_TASKS": "2"}),
    ("Open MPI", {"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2"})])
def test_another_launcher_is_refused_by_name(trireme, folder, name, variables):
    text = trireme("train", "small.toml", code=2, cwd=folder, env={**os.environ, **variables}).stderr
    assert text.startswith(f"trireme: {name} started this process as rank 1 of 2")
