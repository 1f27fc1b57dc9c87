"""Encoding and training, ours beside Hugging Face's `tokenizers`, on the standard library's source.

    .venv-test/bin/python bench/tokenizer.py [--rounds 5] [--megabytes 12] [--vocab 32000] [--styles gpt2 llama3 qwen2 deepseek]

Every figure comes from a fresh process; the sides take turns in each round, the median over rounds is printed with its
spread. Encoding is timed without loading, reading and writing, text by text, on texts that are in memory; `tokenizers`
gets two threads by encode_batch. Its own count of threads is set by RAYON_NUM_THREADS. The styles share one vocabulary
and differ in how they cut text. Checked: the same ids, and the same merges.
"""

import argparse
import hashlib
import json
import os
import pathlib
import platform
import statistics
import subprocess
import sys
import sysconfig
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
BINARY = os.environ.get("TRIREME_BINARY", str(ROOT / "build/release/trireme"))
sys.path.insert(0, str(ROOT / "tests"))


def texts_of_library(megabytes):
    texts, size = [], 0
    for path in sorted(pathlib.Path(sysconfig.get_path("stdlib")).rglob("*.py")):
        if size < megabytes * 1e6 and "site-packages" not in path.parts:
            texts.append(path.read_bytes().decode("utf-8", "replace"))
            size += len(texts[-1].encode())
    return texts, size


def digest(lines):
    return hashlib.sha256("".join(json.dumps(ids) for ids in lines).encode()).hexdigest()


def their_encoding(file, texts_file, threads):
    """Runs in a process of its own: seconds and the digest of the ids."""
    from tokenizers import Tokenizer

    tok = Tokenizer.from_file(file)
    texts = [json.loads(line)["text"] for line in open(texts_file, encoding="utf-8")]
    start = time.perf_counter()
    if threads == 1:
        found = [tok.encode(text, add_special_tokens=False) for text in texts]
    else:
        found = tok.encode_batch(texts, add_special_tokens=False)
    seconds = time.perf_counter() - start
    print(json.dumps([seconds, digest([e.ids for e in found])]))


def their_training(vocab, texts_file):
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    texts = [json.loads(line)["text"] for line in open(texts_file, encoding="utf-8")]
    tok = Tokenizer(models.BPE())
    tok.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    start = time.perf_counter()
    tok.train_from_iterator(
        texts,
        trainers.BpeTrainer(
            vocab_size=vocab,
            special_tokens=["<|endoftext|>"],
            show_progress=False,
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        ),
    )
    seconds = time.perf_counter() - start
    print(json.dumps([seconds, digest(json.loads(tok.to_str())["model"]["merges"])]))


def fresh(role, *arguments, threads):
    environment = {
        **os.environ,
        "RAYON_NUM_THREADS": str(threads),
        "TOKENIZERS_PARALLELISM": "true" if threads > 1 else "false",
    }
    done = subprocess.run(
        [sys.executable, __file__, "--role", role, *map(str, arguments)],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(done.stdout)


def our_encoding(file, texts_file, threads):
    done = subprocess.run(
        [BINARY, "tokenizer", "encode", "--tokenizer", file, texts_file, "--threads", str(threads), "--stats"],
        capture_output=True,
        check=True,
    )
    ids = [json.loads(line)["ids"] for line in done.stdout.splitlines()]
    return json.loads(done.stderr.splitlines()[-1])["encode_seconds"], digest(ids)


def our_training(vocab, texts_file, threads, out):
    start = time.perf_counter()
    subprocess.run(
        [BINARY, "tokenizer", "train", texts_file, "--vocab", str(vocab), "--out", out, "--threads", str(threads)],
        capture_output=True,
        check=True,
    )
    return time.perf_counter() - start, digest(json.loads(pathlib.Path(out).read_text())["model"]["merges"])


def style_files(base, folder, styles):
    """The trained tokenizer with the pre-tokenizer of each style."""
    from tokenizer_files import DEEPSEEK, LLAMA3, QWEN2, bare_bytes, split
    from tokenizers import Tokenizer, normalizers

    for style in styles:
        tok = Tokenizer.from_file(base)
        if style != "gpt2":
            tok.pre_tokenizer = bare_bytes(
                *map(split, {"llama3": [LLAMA3], "qwen2": [QWEN2], "deepseek": DEEPSEEK}[style])
            )
        if style == "qwen2":
            tok.normalizer = normalizers.NFC()
        tok.save(f"{folder}/{style}.json")
        yield style, f"{folder}/{style}.json"


def rounds_of(sides, rounds):
    """{name: seconds of each round}; the sides take turns. Their digests must agree."""
    seconds, digests = {name: [] for name in sides}, set()
    for _ in range(rounds):
        for name, side in sides.items():
            took, result = side()
            seconds[name].append(took)
            digests.add(result)
    assert len(digests) == 1, "the sides disagree"
    return seconds


def show(title, seconds, amount, unit):
    print(f"\n{title}")
    base = statistics.median(seconds["tokenizers, 1 thread"])
    for name, all_seconds in seconds.items():
        median = statistics.median(all_seconds)
        print(
            f"  {name:24} {median:8.3f} s  ({min(all_seconds):.3f} to {max(all_seconds):.3f})  {amount / median:8.2f} {unit}"
            f"  {base / median:6.1f} x"
        )


def machine():
    import tokenizers

    model = next(
        (line.split(":")[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")),
        platform.processor(),
    )
    version = subprocess.run([BINARY, "version"], capture_output=True, text=True).stdout.splitlines()
    print(
        f"{model}, {os.cpu_count()} CPUs, load {os.getloadavg()[0]:.1f}; {version[0] if version else 'trireme'}; "
        f"tokenizers {tokenizers.__version__}, Python {platform.python_version()}"
    )


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--megabytes", type=float, default=12)
    parser.add_argument("--vocab", type=int, default=32000)
    parser.add_argument("--styles", nargs="+", default=["gpt2", "llama3", "qwen2", "deepseek"])
    parser.add_argument("--role", nargs="+", help=argparse.SUPPRESS)
    arguments, rest = parser.parse_known_args()
    if arguments.role:
        role, *values = arguments.role
        return {
            "encode": lambda f, t, n: their_encoding(f, t, int(n)),
            "train": lambda v, t: their_training(int(v), t),
        }[role](*values)

    machine()
    texts, size = texts_of_library(arguments.megabytes)
    print(
        f"{len(texts)} files of the standard library, {size / 1e6:.1f} MB, vocabulary {arguments.vocab}, {arguments.rounds} rounds"
    )
    with tempfile.TemporaryDirectory() as folder:
        texts_file, out = f"{folder}/texts.jsonl", f"{folder}/base.json"
        with open(texts_file, "w", encoding="utf-8") as file:
            file.writelines(json.dumps({"text": text}) + "\n" for text in texts)
        show(
            "training (ours: whole process)",
            rounds_of(
                {
                    "tokenizers, 1 thread": lambda: fresh("train", arguments.vocab, texts_file, threads=1),
                    "tokenizers, 2 threads": lambda: fresh("train", arguments.vocab, texts_file, threads=2),
                    "trireme, 1 thread": lambda: our_training(arguments.vocab, texts_file, 1, out),
                    "trireme, 2 threads": lambda: our_training(arguments.vocab, texts_file, 2, out),
                },
                arguments.rounds,
            ),
            size / 1e6,
            "MB/s",
        )
        for style, file in style_files(out, folder, arguments.styles):
            show(
                f"encoding, {style}",
                rounds_of(
                    {
                        "tokenizers, 1 thread": lambda: fresh("encode", file, texts_file, 1, threads=1),
                        "tokenizers, 2 threads": lambda: fresh("encode", file, texts_file, 2, threads=2),
                        "trireme, 1 thread": lambda: our_encoding(file, texts_file, 1),
                        "trireme, 2 threads": lambda: our_encoding(file, texts_file, 2),
                    },
                    arguments.rounds,
                ),
                size / 1e6,
                "MB/s",
            )


main()
