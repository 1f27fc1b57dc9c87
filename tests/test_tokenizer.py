"""Tokenizers against the library that everybody uses: the same ids, the same text, the same training.

The oracle is `tokenizers` itself, which makes the tokenizer.json of each style (tokenizer_files.py). If it is missing
this file fails.
"""

import functools
import json
import pathlib
import random
import subprocess
import sysconfig
import unicodedata

import pytest
import tokenizers
from conftest import BINARY
from tokenizer_files import STYLES, byte_level, corpus
from tokenizers import Tokenizer, normalizers, pre_tokenizers, trainers

SEED = 20260101
# Every plane that has characters of its own; block_samples() reaches the others.
CODES = [c for c in [*range(0x34000), *range(0xE0000, 0xE0400)] if not 0xD800 <= c < 0xE000]
STDLIB = pathlib.Path(sysconfig.get_path("stdlib"))


def run(*arguments, stdin=b"", code=0):
    done = subprocess.run([BINARY, "tokenizer", *map(str, arguments)], input=stdin, capture_output=True)
    assert done.returncode == code, f"exit code {done.returncode}\n{done.stderr.decode(errors='replace')}"
    return done


def write_lines(path, key, values):
    with path.open("w", encoding="utf-8") as file:
        for value in values:
            file.write(json.dumps({key: value}) + "\n")
    return path


def encode(path, texts, *options, lines="texts.jsonl"):
    file = write_lines(path.parent / lines, "text", texts)
    out = run("encode", "--tokenizer", path, file, *options).stdout
    return [json.loads(line)["ids"] for line in out.splitlines()]


def decode(path, ids, *options):
    file = write_lines(path.parent / "ids.jsonl", "ids", ids)
    out = run("decode", "--tokenizer", path, file, *options).stdout
    return [json.loads(line)["text"] for line in out.splitlines()]


@pytest.fixture(scope="module")
def style_file(tmp_path_factory):
    """style_file(name) -> (the oracle, its file), each made once."""
    made = {}

    def make(name):
        if name not in made:
            tok = STYLES[name]()
            path = tmp_path_factory.mktemp(name) / "tokenizer.json"
            tok.save(str(path))
            made[name] = (tok, path)
        return made[name]

    return make


def hard_cases():
    everything = "".join(map(chr, range(256)))
    family = "👨‍👩‍👧‍👦 👩🏽‍🚀 🏳️‍🌈 🇩🇪🇫🇷 1️⃣ ❤️"
    marks = "e\u0301 a\u0308\u0304 \u0301\u0301x क्षि நி กำ Z͑ͫ̓ͪ̂ͫ̽͏̴̙̤̞͉͚̯̞̠͍A̴̵̜̰͔ͫ͗͢L̠ͨͧͩ͘G̴̻͈͍͔̹̑͗̎̅͛́Ǫ̵̹̻̝̳͂̌̌͘!͖̬̰̙̗̿̋ͥͥ̂ͣ̐́́͜͞"
    spaces = [
        " ",
        "  ",
        "   ",
        "\t",
        "\t\t",
        "\n",
        "\n\n",
        "\r\n",
        "\r\n\r\n",
        "\v\f",
        "\u00a0",
        "\u00a0\u00a0",
        "\u2003 \u2003",
        "\u3000",
        "\u2028",
        "\u2029",
        "\u0085",
        "\u180e",
        "\u200b",
        "\ufeff",
        "\x1c\x1d\x1e\x1f",
        " \n ",
        "\n \n",
        "\t \n\t",
        "  \r",
    ]
    special = [
        "<|endoftext|>",
        "<|endoftext|><|endoftext|>",
        "a<|endoftext|> b",
        "<|endoftext|",
        "<s>",
        "</s> <s>a</s>",
        "<unk>",
        "<|begin_of_text|>x",
        "<0x41>",
        "<0xFF><0x0a>",
        "▁",
        "▁▁a ▁b",
        "<｜User｜>é!<think>",
        "<Tok3>  <Tok7> <tok9>x",
        " <TOK31> ",
        "the the there",
        "ﬁne fine FINE",
        "é!e\u0301!",
        "<tool_call>",
        "\n\n\n<b><unused0>",
    ]
    words = [
        "don't DON'T we'LL I'D they'Re it'ſ 'sS ''s 'tis 's",
        "x=1;y=22;z=333;w=4444;55555",
        "1½²³Ⅷ٣४௪一二",
        "3.14159e-10",
        "CamelCaseHTTPServer2Go",
        "snake_case__dunder__",
        "a_b=c==d",
        "https://user@host:8080/p?q=1&r=%20#f",
        "!!!???...---===///\\\\",
        "#!/usr/bin/env python3\n",
        "\\u0041\\n",
        "ŉ ǰ ΐ ß ẞ ﬀ ﬁ ﬅ K Å",
        "İıŞş ΣσςΑ",
        "unmergeable xyzzyx ééé",
        "ab" * 30,
        "ababa" * 100,
        "한국어" * 20,
        "中文" * 40,
        "ไม่มีช่องว่าง",
        "العربية ١٢٣",
        "עִבְרִית",
        "ᄀ각ᆨ\u1160\u11a8",
    ]
    long = [
        "a" * 5000,
        "ab " * 2000,
        " " * 3000,
        "\n" * 3000,
        "é" * 2000,
        "😀" * 1000,
        "中" * 3000,
        "1" * 1000,
        "." * 3000,
        "\u0301" * 500,
        "x" + " " * 100 + "y",
        "a\u0300" * 1000,
    ]
    return [
        everything,
        family,
        marks,
        *spaces,
        *(f"a{s}b" for s in spaces),
        *(f"{s}1{s}!" for s in spaces),
        *special,
        *(f"x{s}y z{s} {s}" for s in special),
        *words,
        *long,
        "",
        "\0",
        "\0a\0",
        "\x7f",
        "\ufffd",
        "\ufffe\uffff",
        "\U0010ffff",
    ]


@functools.cache
def block_samples():
    """24 characters of each block of 256, assigned or not, between letters, digits and spaces."""
    rng = random.Random(SEED)
    texts = []
    for block in range(0, 0x110000, 256):
        if not 0xD800 <= block < 0xE000:
            texts.append(
                "".join(
                    rng.choice(["", " ", "a", "1", "'", "\n", "B "]) + chr(block + rng.randrange(256))
                    for _ in range(24)
                )
            )
    return texts


def random_texts(count, seed):
    rng = random.Random(seed)
    pieces = [
        " ",
        "  ",
        "\n",
        "\r\n",
        "\t",
        "'s",
        "'LL",
        "'",
        "the",
        "The",
        " a",
        "é",
        "e\u0301",
        "\u0323",
        "中",
        "한",
        "각",
        "ก",
        "1",
        "234",
        "٣",
        "²",
        "_",
        ".",
        "...",
        "-",
        "/",
        "=",
        "\u200d",
        "👨",
        "\u00a0",
        "\u3000",
        "\u0085",
        "<Tok",
        "<Tok5>",
        "<Tok10>",
        "<tok14>",
        "<|endoftext|>",
        "<s>",
        "▁",
        "fine",
        "ﬁne",
        "\x00",
        "\x7f",
        "ſ",
        "K",
        "ﬃ",
    ]
    texts = []
    for _ in range(count):
        out = []
        for _ in range(rng.randrange(1, 60)):
            if rng.random() < 0.1:
                code = rng.randrange(0x110000)
                out.append(chr(code) if not 0xD800 <= code < 0xE000 else "x")
            else:
                out.append(rng.choice(pieces))
        texts.append("".join(out))
    return texts


@functools.cache
def stdlib_texts(megabytes):
    texts, size = [], 0
    for path in sorted(STDLIB.rglob("*.py"), key=lambda p: hash_of(p.name)):
        if size > megabytes * 1e6:
            break
        if "site-packages" not in path.parts:
            text = path.read_bytes().decode("utf-8", "replace")
            texts.append(text)
            size += len(text)
    return texts


def hash_of(name):
    return random.Random(f"{SEED}{name}").random()


def assert_same_ids(tok, path, texts, *options, add_special_tokens=False):
    found = encode(path, texts, *options)
    expected = [e.ids for e in tok.encode_batch(texts, add_special_tokens=add_special_tokens)]
    assert len(found) == len(expected)
    for text, ours, theirs in zip(texts, found, expected):
        if ours != theirs:
            at = next((i for i, (a, b) in enumerate(zip(ours, theirs)) if a != b), min(len(ours), len(theirs)))
            raise AssertionError(
                f"seed {SEED}: {text[:300]!r}\nfrom id {at}: ours {ours[at:at + 8]}, theirs {theirs[at:at + 8]}: "
                f"{[tok.id_to_token(i) for i in theirs[max(0, at - 2):at + 8]]}"
            )
    return expected


@pytest.mark.parametrize("style", STYLES)
def test_ids_are_those_of_tokenizers(style, style_file):
    print(f"seed {SEED}")
    tok, path = style_file(style)
    assert_same_ids(tok, path, hard_cases() + block_samples() + random_texts(2000, SEED))
    assert_same_ids(tok, path, hard_cases(), "--add-special", add_special_tokens=True)


@pytest.mark.parametrize("style", STYLES)
def test_plain_text_has_no_special_tokens(style, style_file):
    tok = Tokenizer.from_str(style_file(style)[0].to_str())
    tok.encode_special_tokens = True
    assert_same_ids(tok, style_file(style)[1], hard_cases() + random_texts(500, SEED + 1), "--plain")


@pytest.mark.parametrize("style", STYLES)
def test_any_ids_decode_to_the_same_text(style, style_file):
    tok, path = style_file(style)
    texts = hard_cases() + block_samples() + random_texts(1000, SEED)
    rng = random.Random(SEED)
    known = sorted(tok.get_vocab().values())
    ids = [e.ids for e in tok.encode_batch(texts, add_special_tokens=False)]
    ids += [[rng.choice(known) for _ in range(rng.randrange(20))] for _ in range(2000)]
    if style in ("llama2", "mistral", "gemma"):  # runs of byte tokens, whole characters or not
        first = tok.token_to_id("<0x00>")
        ids += [
            [first + b for b in rng.choice(["é", "中", "😀a", "é中"]).encode()[: rng.randrange(1, 9)]]
            + [rng.choice(known)]
            for _ in range(500)
        ]
    for skip, options in ((False, ()), (True, ("--skip-special",))):
        for ours, theirs, of in zip(decode(path, ids, *options), tok.decode_batch(ids, skip_special_tokens=skip), ids):
            assert ours == theirs, of


@pytest.mark.parametrize("style", ["gpt2", "llama3", "deepseek", "o200k"])
def test_every_character_is_cut_in_the_same_place(style, style_file):
    texts = ["".join(f"a{chr(c)}" for c in CODES[i : i + 4096]) for i in range(0, len(CODES), 4096)]
    assert_same_ids(*style_file(style), texts)


@pytest.mark.parametrize("style", ["gpt2", "llama3", "qwen2", "deepseek", "starcoder", "llama2", "gemma"])
def test_the_standard_library_has_the_same_ids(style, style_file):
    assert_same_ids(*style_file(style), stdlib_texts(0.5))


@pytest.mark.slow
@pytest.mark.parametrize("style", STYLES)
def test_all_of_the_standard_library_and_much_noise(style, style_file):
    assert_same_ids(*style_file(style), stdlib_texts(1000) + random_texts(50_000, SEED + 2))


PUBLISHED = ["gpt2", "llama3", "qwen2", "deepseek", "starcoder", "llama2", "mistral", "gemma"]
LONG_WORDS = {
    "one letter": lambda rng: "a" * 1_000_000,
    "letters": lambda rng: "".join(rng.choices("abcdefghijklmnopqrstuvwxyz", k=1_000_000)),
    "one Han character": lambda rng: "中" * 300_000,
    "Han": lambda rng: "".join(map(chr, rng.choices(range(0x4E00, 0x9FA5), k=300_000))),
    "spaces": lambda rng: " " * 1_000_000,
}


# Each kind of word once, each way of going about it once or twice; all pairs with --long.
@pytest.mark.parametrize("style, kind", [
    pytest.param(style, kind, marks=() if fast else pytest.mark.slow)
    for style in PUBLISHED for kind in LONG_WORDS
    for fast in [(style, kind) in {("gpt2", "one letter"), ("gpt2", "spaces"), ("deepseek", "one Han character"),
                                   ("deepseek", "Han"), ("llama2", "letters")}]])
def test_words_of_a_megabyte(style, kind, style_file):
    assert_same_ids(*style_file(style), [LONG_WORDS[kind](random.Random(SEED))])


@pytest.mark.parametrize("form", ["NFC", "NFD", "NFKC", "NFKD", "Lowercase", "StripAccents"])
def test_normal_forms_of_every_character_and_of_marks_in_a_row(form, tmp_path):
    normalizer = getattr(normalizers, form)()
    tok = byte_level(pre_tokenizers.ByteLevel(add_prefix_space=False), normalizer, vocab=257)
    path = tmp_path / "tokenizer.json"
    tok.save(str(path))
    rng = random.Random(SEED)
    texts = ["\n".join(map(chr, CODES[i : i + 4096])) for i in range(0, len(CODES), 4096)]
    marks = [c for c in CODES if unicodedata.combining(chr(c))]
    bases = (
        [c for c in CODES if unicodedata.decomposition(chr(c))]
        + list(range(0x1100, 0x1200))
        + list(range(0xAC00, 0xAD00))
    )
    for _ in range(3000):
        texts.append("".join(chr(rng.choice(rng.choice([marks, bases, marks, [0x61, 0x20]]))) for _ in range(12)))
    ids = encode(path, texts)
    for ours, text in zip(decode(path, ids), texts):
        assert ours == normalizer.normalize_str(text), ascii(text[:100])


def test_text_from_stdin_keeps_every_byte(style_file):
    path = style_file("gpt2")[1]
    data = bytes(range(256)) + "é中😀".encode()[:-1] + b"\xed\xa0\x80\xc0\xaf" + bytes(reversed(range(256)))
    lines = run("encode", "--tokenizer", path, stdin=data).stdout
    assert run("decode", "--tokenizer", path, stdin=lines).stdout == data


def test_lone_surrogates_in_json_are_replaced_and_counted(style_file, tmp_path):
    tok, path = style_file("gpt2")
    file = tmp_path / "lone.jsonl"
    file.write_text('{"text": "a\\ud800b"}\n{"text": "\\udc00\\ud83d\\ude00\\\\ud800"}\n')
    done = run("encode", "--tokenizer", path, file)
    expected = [tok.encode(text).ids for text in ("a\ufffdb", "\ufffd😀\\ud800")]
    assert [json.loads(line)["ids"] for line in done.stdout.splitlines()] == expected
    assert b"2 lone surrogates" in done.stderr


@pytest.mark.parametrize("options", [{}, {"min_frequency": 3}, {"special_tokens": ["<a>", "<b>", "<c>"]}])
def test_training_finds_the_same_merges(options, tmp_path):
    texts = corpus() + [t for t in block_samples() + random_texts(500, SEED) if "\0" not in t]
    file = write_lines(tmp_path / "texts.jsonl", "text", texts)
    special = options.get("special_tokens", ["<|endoftext|>"])
    flags = [f"--special={t}" for t in special] if "special_tokens" in options else []
    flags += ["--min-frequency", options["min_frequency"]] if "min_frequency" in options else []
    out = tmp_path / "ours.json"
    run("train", file, "--vocab", 3000, "--out", out, *flags)

    theirs = Tokenizer(tokenizers.models.BPE())
    theirs.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    theirs.train_from_iterator(
        texts,
        trainers.BpeTrainer(
            vocab_size=3000,
            special_tokens=special,
            min_frequency=options.get("min_frequency", 0),
            show_progress=False,
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        ),
    )
    ours = json.loads(out.read_text())
    theirs_json = json.loads(theirs.to_str())
    assert ours["model"]["merges"] == theirs_json["model"]["merges"]
    assert ours["model"]["vocab"] == theirs_json["model"]["vocab"]
    # The file is one that `tokenizers` reads, with the same ids and text.
    assert_same_ids(Tokenizer.from_file(str(out)), out, texts[:20] + hard_cases())
    assert Tokenizer.from_file(str(out)).decode(theirs.encode(texts[0]).ids) == texts[0]


def test_wrong_input_has_one_message_and_leaves_nothing_behind(tmp_path, style_file):
    path = style_file("gpt2")[1]
    empty, broken, lines = tmp_path / "empty.json", tmp_path / "broken.json", tmp_path / "lines.jsonl"
    empty.write_text("")
    broken.write_bytes(path.read_bytes()[:-100])
    lines.write_text('{"text": "a"}\n{"text": 1}\n')
    text = tmp_path / "text.txt"
    text.write_text("some text")
    out = tmp_path / "out.json"
    cases = [
        (("encode", "--tokenizer", tmp_path / "none.json"), "none.json"),
        (("encode", "--tokenizer", empty), "empty.json"),
        (("encode", "--tokenizer", broken), "broken.json"),
        (("encode", "--tokenizer", path, lines), "lines.jsonl:2"),
        (("decode", "--tokenizer", path, lines), "lines.jsonl:1"),
        (("decode", "--tokenizer", path), "stdin:1"),
        (("train", tmp_path / "none.txt", "--vocab", 300, "--out", out), "none.txt"),
        (("train", text, "--vocab", 100, "--out", out), "257"),
        (("train", text, "--out", out), "--vocab"),
        (("train", text, "--vocab", 300, "--out", text / "below-a-file.json"), "below-a-file.json"),
    ]
    for arguments, named in cases:
        done = subprocess.run(
            [BINARY, "tokenizer", *map(str, arguments)], input=b'{"ids": [99999999]}\n', capture_output=True
        )
        message = done.stderr.decode()
        assert done.returncode in (1, 2), message
        assert done.returncode == 2 or "below-a-file" in message
        assert named in message and 1 <= len(message.strip().splitlines()) <= 3, message
        assert not out.exists()
    assert {p.name for p in tmp_path.iterdir()} == {"empty.json", "broken.json", "lines.jsonl", "text.txt"}
