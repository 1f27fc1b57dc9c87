"""Wrong input and bad days: one clear message, the documented exit code, nothing half-written."""

import os
import shutil
import subprocess

import pytest
import small_run
from conftest import BINARY


@pytest.fixture
def recipe(tmp_path):
    return small_run.write(tmp_path)


def refused(trireme, recipe, *overrides, says, run="run"):
    """Exit code 2, a short message that says `says`, and no run directory left with something in it."""
    done = trireme("train", recipe, f"run.dir={run}", *overrides, code=2)
    message = done.stderr.split("trireme: ", 1)[1]
    assert len(message.strip().splitlines()) <= 3 + message.count("\n  "), message
    assert says in message, message
    left = set(os.listdir(recipe.parent / run)) if (recipe.parent / run).is_dir() else set()
    assert "checkpoints" in left or left <= {"lock", "log", "letter.txt"}, left
    return message


def test_missing_source(trireme, recipe):
    refused(trireme, recipe, "data.source=nowhere", says="nowhere")


def test_a_run_that_was_refused_can_start_once_its_input_is_mended(trireme, recipe):
    refused(trireme, recipe, "data.source=nowhere", says="nowhere")
    trireme("train", recipe, "run.dir=run", "run.steps=5")


def test_missing_recipe(trireme, tmp_path):
    assert "absent.toml" in trireme("train", "absent.toml", code=2).stderr


def test_empty_corpus(trireme, recipe, tmp_path):
    (tmp_path / "empty").mkdir()
    refused(trireme, recipe, "data.source=empty", says="empty")


def test_corpus_shorter_than_a_sample(trireme, recipe):
    refused(trireme, recipe, "data.sequence=100000", says="100001")


def test_binary_file_among_the_texts(trireme, recipe, tmp_path):
    (tmp_path / "texts/blob.txt").write_bytes(bytes(range(256)) * 4)
    done = trireme("train", recipe, "run.dir=run", "run.steps=5")
    assert "binary" in done.stderr
    refused(trireme, recipe, "data.source=texts/blob.txt", says="blob.txt", run="other")


def test_invalid_utf8(trireme, recipe, tmp_path):
    (tmp_path / "texts/latin.txt").write_bytes(b"caf\xe9 au lait\n" * 10)
    done = trireme("train", recipe, "run.dir=run", "run.steps=5")
    assert "UTF-8" in done.stderr
    refused(trireme, recipe, "data.source=texts/latin.txt", says="latin.txt", run="other")


def test_directory_that_holds_a_run(trireme, recipe):
    trireme("train", recipe, "run.dir=run", "run.steps=5")
    assert "--resume" in refused(trireme, recipe, says="holds a run")


def test_directory_that_holds_something_else(trireme, recipe, tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run/letter.txt").write_text("dear reader")
    refused(trireme, recipe, says="not empty")
    assert os.listdir(tmp_path / "run") == ["letter.txt"]


def test_directory_that_cannot_be_made(trireme, recipe, tmp_path):
    (tmp_path / "file").write_text("")
    refused(trireme, recipe, says="file", run="file/run")


def test_names_take_the_next_free_number(trireme, recipe, tmp_path):
    for expected in ("runs/small", "runs/small-2"):
        done = trireme("train", recipe, "run.steps=5")
        assert f"run directory {expected}\n" in done.stderr
        assert (tmp_path / expected / "report.html").exists()
    assert "run directory runs/small-2\n" in trireme("train", recipe, "run.steps=5", "--resume").stderr


def test_second_writer(trireme, recipe, tmp_path):
    first = subprocess.Popen([BINARY, "train", recipe, "run.dir=run", "run.steps=100000"], cwd=tmp_path,
                             stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        small_run.wait_for(lambda: (tmp_path / "run/metrics.jsonl").exists(), first)
        done = trireme("train", recipe, "run.dir=run", "--resume", code=2)
        assert "another process is writing" in done.stderr
    finally:
        first.terminate()
        first.wait()


def test_numbers_that_stop_being_finite(trireme, recipe, tmp_path):
    done = trireme("train", recipe, "run.dir=run", "run.steps=12", "checkpoint.every_steps=2", "optimizer.lr=1e38",
                   "schedule.warmup_steps=12", code=1)
    assert "not finite" in done.stderr and "first bad tensor: the " in done.stderr
    kept = sorted(p.name for p in (tmp_path / "run/checkpoints").glob("step-*"))
    assert not any("partial" in name for name in kept)
    assert "failed" in (tmp_path / "run/ledger.json").read_text()
    assert (tmp_path / "run/report.html").exists()


# A file system of 600 kB holds the recipe and the first metrics, and no checkpoint.
def test_full_disk(recipe, tmp_path):
    small = tmp_path / "disk"
    small.mkdir()
    script = f'mount -t tmpfs -o size=600k none "{small}" && cp -r texts small.toml "{small}/" && cd "{small}" && ' \
             f'"{BINARY}" train small.toml run.dir=run run.steps=20 data.cache="{tmp_path}/data"; code=$?; ' \
             f'ls run/checkpoints > "{tmp_path}/listing"; exit $code'
    if shutil.which("unshare") is None or subprocess.run(
            ["unshare", "-m", "sh", "-c", f'mount -t tmpfs -o size=600k none "{small}"'], capture_output=True).returncode:
        pytest.skip("mounting a small file system needs root and unshare(1)")
    done = subprocess.run(["unshare", "-m", "sh", "-c", script], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 1, done.stderr
    assert "No space left" in done.stderr or "free" in done.stderr, done.stderr
    assert "step-00000010\n" not in (tmp_path / "listing").read_text()
