"""The verb `data` from outside: corpora against numpy and Hugging Face's tokenizers, bad input, bad days."""

import json
import os
import pathlib
import pty
import re
import resource
import signal
import subprocess
import time

import numpy as np
import pytest
import tokenizers
from conftest import BINARY

MODEL = """
task = "pretrain"
[run]
steps = 1
threads = 2
[model]
family = "llama"
layers = 1
hidden = 8
heads = 1
ffn = 8
[batch]
size = 1
[optimizer]
lr = 1e-3
[data]
"""
DATA = """
source = ["text"]
tokenizer = { train = "bpe", vocab = 300 }
sequence = 32
held_out = 0.2
cache = "cache"
"""
RECORD = np.dtype([(name, "<u8") for name in ("first_token", "tokens", "bytes", "hash", "line", "file")])
"""A document in documents.bin, by docs/data.md."""


@pytest.fixture
def recipe(tmp_path):
    """recipe(data) writes a recipe with this [data] section and returns its path."""

    def write(data=DATA):
        path = tmp_path / "recipe.toml"
        path.write_text(MODEL + data)
        return path

    return write


def write_texts(folder, count=20):
    folder.mkdir(exist_ok=True)
    for i in range(count):
        (folder / f"f{i}.py").write_text(f"# {i} ä€\n" + "".join(f"x{j % (i + 1)} = {j}\n" for j in range(30)))


def corpora(cache):
    return sorted(p.name for p in cache.iterdir() if re.fullmatch("[0-9a-f]{16}", p.name)) if cache.exists() else []


class Corpus:
    """Reads a corpus by docs/data.md alone."""

    def __init__(self, directory):
        self.manifest = json.loads((directory / "manifest.json").read_text())
        self.tokens = np.fromfile(directory / "tokens.bin", f"<u{self.manifest['token_bytes']}").astype(np.int64)
        self.records = np.fromfile(directory / "documents.bin", RECORD)
        self.tokenizer = tokenizers.Tokenizer.from_file(str(directory / "tokenizer.json"))

    def stream(self, split, part=0):
        s = self.manifest["streams"][2 * part + (split == "held_out")]
        return (self.tokens[s["first_token"]:s["first_token"] + s["tokens"]],
                self.records[s["first_document"]:s["first_document"] + s["documents"]])

    def documents(self, split):
        """(record, ids without the end of text)"""
        tokens, records = self.stream(split)
        for r in records:
            ids = tokens[r["first_token"]:r["first_token"] + r["tokens"]]
            assert ids[-1] == self.manifest["end_of_text"]
            yield r, ids[:-1]


def test_building_again_does_nothing(trireme, recipe, tmp_path):
    write_texts(tmp_path / "text")
    first = trireme("data", "build", recipe()).stdout
    assert re.fullmatch(r"cache/[0-9a-f]{16}\n", first)
    before = {p: p.stat().st_mtime_ns for p in (tmp_path / first.strip()).iterdir()}
    assert trireme("data", "build", recipe()).stdout == first
    again = json.loads(trireme("data", "build", recipe(), "--json").stdout)
    assert again == {"directory": first.strip(), "built": False}
    assert before == {p: p.stat().st_mtime_ns for p in (tmp_path / first.strip()).iterdir()}
    other = json.loads(trireme("data", "build", recipe(), "--json", "data.held_out=0.3").stdout)
    assert other["built"] and other["directory"] != first.strip()


def test_ids_are_those_of_tokenizers(trireme, recipe, tmp_path):
    write_texts(tmp_path / "text")
    corpus = Corpus(tmp_path / trireme("data", "build", recipe()).stdout.strip())
    seen = set()
    for split in ("train", "held_out"):
        for record, ids in corpus.documents(split):
            name = corpus.manifest["files"][record["file"]]["name"]
            text = (tmp_path / name).read_text()
            assert ids.tolist() == corpus.tokenizer.encode(text, add_special_tokens=False).ids
            assert record["bytes"] == len(text.encode())
            seen.add(name)
    assert len(seen) == 20


def test_manifest_names_what_went_in(trireme, recipe, tmp_path):
    write_texts(tmp_path / "text")
    directory = tmp_path / trireme("data", "build", recipe()).stdout.strip()
    manifest = json.loads((directory / "manifest.json").read_text())
    assert manifest["id"] == directory.name
    for file in manifest["files"]:
        content = (tmp_path / file["name"]).read_bytes()
        assert file["bytes"] == len(content)
        assert re.fullmatch("[0-9a-f]{32}", file["xxh128"])
    assert len({f["xxh128"] for f in manifest["files"]}) == len(manifest["files"])
    assert sum(s["text_bytes"] for s in manifest["streams"]) == sum(f["bytes"] for f in manifest["files"])


def test_python_stdlib(trireme, recipe, tmp_path):
    """Documents, bytes and split of the named source against a walk in Python."""
    data = DATA.replace('"text"', '"python-stdlib"').replace("300", "512").replace("0.2", "0.05")
    text = trireme("data", "inspect", recipe(data)).stdout
    assert "PSF-2.0" in text
    summary = json.loads(trireme("data", "inspect", recipe(data), "--json").stdout)
    root = pathlib.Path(summary["sources"][0]["origin"])
    left_out = {"test", "tests", "idle_test", "site-packages", "dist-packages", "__pycache__"}
    expected, files = {}, set()
    for path in sorted(root.rglob("*.py"), key=lambda p: bytes(p.relative_to(root))):
        parts = path.relative_to(root).parts
        if left_out & set(parts[:-1]) or any(p.startswith(".") for p in parts) or not path.is_file():
            continue
        content = path.read_bytes()
        try:
            content.decode()
        except UnicodeDecodeError:
            continue
        identity = os.stat(path).st_ino  # Debian has links from one file to another
        if content and identity not in files:
            files.add(identity)
            expected["/".join(("python-stdlib",) + parts)] = content
    corpus = Corpus(tmp_path / summary["directory"])
    found = {corpus.manifest["files"][r["file"]]["name"]: r["bytes"] for r in corpus.records}
    assert found == {name: len(content) for name, content in expected.items()}
    held_out = summary["held_out"]["documents"] / len(found)
    assert 0.04 <= held_out <= 0.06
    train = {expected[corpus.manifest["files"][r["file"]]["name"]] for r in corpus.stream("train")[1]}
    held = {expected[corpus.manifest["files"][r["file"]]["name"]] for r in corpus.stream("held_out")[1]}
    assert not train & held


def test_held_out_samples_are_the_stream(trireme, recipe, tmp_path):
    write_texts(tmp_path / "text")
    corpus = Corpus(tmp_path / trireme("data", "build", recipe()).stdout.strip())
    tokens, _ = corpus.stream("held_out")
    end = corpus.manifest["end_of_text"]
    labels = []
    count = -(-len(tokens) // 32)
    lines = trireme("data", "inspect", recipe(), "--sample", 0, "--count", count, "--split", "held_out", "--json",
                    "data.document_attention=false").stdout.splitlines()
    assert len(lines) == count > 1
    for sample in map(json.loads, lines):
        assert len(sample["labels"]) == 32
        labels += [label for label in sample["labels"] if label != -100]
        assert sample["documents"] == [0] * 32
    assert labels == tokens.tolist()
    first = json.loads(trireme("data", "inspect", recipe(), "--sample", 0, "--split", "held_out", "--json").stdout)
    assert first["tokens"] == [end] + tokens[:31].tolist()
    assert first["labels"] == [-100] + tokens[1:32].tolist()
    assert first["documents"] == [0] + [1] * 31
    assert first["positions"] == [0] + list(range(31))


def test_several_samples_are_lines(trireme, recipe, tmp_path):
    write_texts(tmp_path / "text")
    lines = trireme("data", "inspect", recipe(), "--sample", 3, "--count", 4, "--json").stdout.splitlines()
    assert [json.loads(line)["index"] for line in lines] == [3, 4, 5, 6]
    assert json.loads(lines[2]) == json.loads(trireme("data", "inspect", recipe(), "--sample", 5, "--json").stdout)
    assert trireme("data", "inspect", recipe(), "--sample", 3, "--count", 4).stdout.count("──── sample ") == 4
    trireme("data", "inspect", recipe(), "--count", 4, code=2)


def test_a_corpus_directory_can_be_inspected(trireme, recipe, tmp_path):
    write_texts(tmp_path / "text")
    directory = trireme("data", "build", recipe()).stdout.strip()
    assert "documents" in trireme("data", "inspect", directory).stdout
    of_recipe = trireme("data", "inspect", recipe(), "run.seed=5", "--sample", 7, "--json").stdout
    of_directory = trireme("data", "inspect", directory, "--sequence", 32, "--seed", 5, "--sample", 7, "--json").stdout
    assert of_recipe == of_directory
    assert trireme("data", "inspect", recipe(), "run.seed=6", "--sample", 7, "--json").stdout != of_recipe
    trireme("data", "inspect", directory, "run.seed=5", code=2)
    trireme("data", "inspect", recipe(), "--seed", 5, "--sample", 7, code=2)
    trireme("data", "inspect", tmp_path / "text", code=2)


def on_terminal(arguments, cwd, **variables):
    """stdout of the command when it is a terminal."""
    environment = {**{k: v for k, v in os.environ.items() if k != "NO_COLOR"}, **variables}
    leader, follower = pty.openpty()
    with subprocess.Popen([BINARY, *map(str, arguments)], cwd=cwd, stdin=subprocess.DEVNULL, stdout=follower,
                          stderr=subprocess.DEVNULL, env=environment) as process:
        os.close(follower)
        output = b""
        while True:
            try:
                block = os.read(leader, 65536)
            except OSError:  # the other side is closed
                break
            if not block:
                break
            output += block
    os.close(leader)
    assert process.returncode == 0
    return output.decode(errors="replace")


def test_colours_on_a_terminal_only(trireme, recipe, tmp_path):
    write_texts(tmp_path / "text")
    arguments = ["data", "inspect", recipe(), "--sample", 0]
    plain = trireme(*arguments).stdout
    assert "\033" not in plain and "──── sample 0 of train" in plain
    assert "\033[36m" in on_terminal(arguments, tmp_path)
    assert "\033" not in on_terminal(arguments, tmp_path, NO_COLOR="1")


def test_what_is_left_out_is_said(trireme, recipe, tmp_path):
    write_texts(tmp_path / "text")
    (tmp_path / "text/picture.txt").write_bytes(b"\x89PNG\0\0")
    (tmp_path / "text/latin.py").write_bytes(b"# caf\xe9\n")
    done = trireme("data", "build", recipe())
    assert 'left out 1 binary documents and 1 that are not UTF-8; the first in text/' in done.stderr
    assert "left out 1 binary, 1 not UTF-8" in trireme("data", "inspect", done.stdout.strip()).stdout


@pytest.mark.parametrize("prepare, source, message", [
    (None, '"text"', r'data.source: "text" does not exist in .*'),
    (b"\x7fELF\0", '"text/a"', r"data: cannot read text/a as text: it is a binary file: 0x00 at byte 4"),
    (b"na\xefve", '"text/a"', r"data: cannot read text/a as text: it is not UTF-8: 0xEF at byte 2"),
    (b"", '"text/a"', r"data.source: the corpus is empty: 1 files, .*"),
    (b"text", '"text/a"', r"data.held_out: nothing can be held out of a corpus with one document .*"),
    (b"text", '"text/*.py"', r'data.source: nothing matches "text/\*.py" in .*'),
    (b"text", '{ path = "text/a", weight = 1 }, "text/b"', r".*recipe.toml:\d+: 1 of 2 entries of data.source have a weight; .*"),
    (b"text", '"text"', r'data.source: "text" has no text or code in it \(2 files of other kinds, .*'),
])
def test_bad_sources(trireme, recipe, tmp_path, prepare, source, message):
    if prepare is not None:
        (tmp_path / "text").mkdir()
        (tmp_path / "text/a").write_bytes(prepare)
        (tmp_path / "text/b").write_bytes(b"text")
    done = trireme("data", "build", recipe(DATA.replace('"text"', source)), code=2)
    lines = done.stderr.strip().split("\n")
    assert re.fullmatch("trireme: " + message, lines[0]), done.stderr
    assert len(lines) <= 3 and done.stdout == ""
    assert corpora(tmp_path / "cache") == []


def test_other_bad_input(trireme, recipe, tmp_path):
    write_texts(tmp_path / "text", 3)
    below_a_file = trireme("data", "build", recipe(), "data.cache=text/f0.py/cache", code=2)
    assert "text/f0.py" in below_a_file.stderr
    (tmp_path / "lines.jsonl").write_text('{"text": "a"}\n{"body": "b"}\n')
    assert 'lines.jsonl:2: no field "text"; there are: body' in trireme(
        "data", "build", recipe(DATA.replace('"text"', '"lines.jsonl"')), code=2).stderr
    short = trireme("data", "inspect", recipe(), "data.sequence=5000", "--sample", 0, code=2)
    assert "tokens to train on, and one sample takes 5001" in short.stderr
    none = trireme("data", "inspect", recipe(), "data.held_out=0", "--sample", 0, "--split", "held_out", code=2)
    assert "nothing is held out" in none.stderr
    trireme("data", "inspect", recipe(), "--sample", 10**6, "--split", "held_out", code=2)
    trireme("data", "inspect", recipe(), "--split", "held_out", code=2)  # without --sample it has no effect
    trireme("data", "build", recipe(DATA.replace("300", "100")), code=2)


def test_damage_is_found(trireme, recipe, tmp_path):
    write_texts(tmp_path / "text")
    directory = tmp_path / trireme("data", "build", recipe()).stdout.strip()
    content = bytearray((directory / "tokens.bin").read_bytes())
    content[100] ^= 1
    (directory / "tokens.bin").write_bytes(content)
    for what in (recipe(), directory):
        assert "tokens.bin has checksum" in trireme("data", "inspect", what, code=2).stderr
    (directory / "tokens.bin").write_bytes(content[:-2])
    assert "its manifest says" in trireme("data", "inspect", directory, code=2).stderr


def test_a_full_disk_leaves_nothing(trireme, recipe, tmp_path):
    """A limit on the size of files stands in for the disk: write() fails the same way."""
    write_texts(tmp_path / "text", 200)

    def limit():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))

    done = trireme("data", "build", recipe(), code=1, preexec_fn=limit, restore_signals=False)
    assert "cannot write" in done.stderr
    assert {p.name for p in (tmp_path / "cache").iterdir()} == {"locks"}
    trireme("data", "build", recipe())
    assert len(corpora(tmp_path / "cache")) == 1


def big_text(folder):
    folder.mkdir()
    for i in range(40):
        (folder / f"f{i}.txt").write_text("".join(f"{i * j} words in line {j * j * 7 % 1000003}\n" for j in range(20000)))


def test_killed_at_any_point(trireme, recipe, tmp_path):
    """kill -9 when the build has come so far as to have made each of its files: nothing stands under the final name,
    and the next build does not stumble."""
    big_text(tmp_path / "text")
    cache = tmp_path / "cache"
    for mark in ("*.partial", "*.partial/spill.bin*", "*.partial/tokens.bin*"):
        process = subprocess.Popen([BINARY, "data", "build", recipe(), "data.tokenizer.vocab=260"], cwd=tmp_path,
                                   stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        while not list(cache.glob(mark)) and process.poll() is None:
            time.sleep(0.001)
        process.kill()
        process.communicate()
        if process.returncode == 0:  # it was faster than we looked
            continue
        for name in corpora(cache):  # the kill came behind the renaming
            Corpus(cache / name)
    directory = tmp_path / trireme("data", "build", recipe(), "data.tokenizer.vocab=260").stdout.strip()
    trireme("data", "inspect", directory)
    assert list(cache.glob("*.partial")) == []


def test_two_builders_at_once(recipe, tmp_path):
    write_texts(tmp_path / "text", 200)
    recipe()
    processes = [subprocess.Popen([BINARY, "data", "build", "recipe.toml", "--json"], cwd=tmp_path, text=True,
                                  stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
                 for _ in range(4)]
    answers = [json.loads(p.communicate()[0]) for p in processes]
    assert [a["built"] for a in answers].count(True) == 1
    assert len({a["directory"] for a in answers}) == 1
