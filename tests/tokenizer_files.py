"""tokenizer.json files of all published kinds, in small: made by `tokenizers` itself, trained on a part of the standard
library. Each maker returns a tokenizers.Tokenizer; STYLES names them all."""

import functools
import json
import pathlib
import sysconfig

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
    r"|\s+(?!\S)|\s+"
)
QWEN2 = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
DEEPSEEK = [
    r"\p{N}{1,3}",
    "[一-龥\u3040-ゟ゠-ヿ]+",
    r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
    r"| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
]
O200K = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


@functools.cache
def corpus(megabytes=0.4):
    """Texts of the standard library, and some in other scripts."""
    texts, size = [
        "Größe naïve façade — 日本語のテキスト 中文文本 한국어 텍스트 русский текст ελληνικά עברית 12345 ٣٤٥ ½ 😀👨‍👩‍👧 "
        * 40
    ], 0
    for path in sorted(pathlib.Path(sysconfig.get_path("stdlib")).glob("*.py")):
        if size > megabytes * 1e6:
            break
        text = path.read_bytes().decode("utf-8", "replace")
        texts.append(text)
        size += len(text)
    return texts


def split(pattern):
    return pre_tokenizers.Split(Regex(pattern), "isolated", invert=False)


def byte_level(pre_tokenizer, normalizer=None, vocab=1500, special=("<|endoftext|>",), **model):
    tok = Tokenizer(models.BPE(**model))
    tok.pre_tokenizer, tok.decoder = pre_tokenizer, decoders.ByteLevel()
    if normalizer:
        tok.normalizer = normalizer
    tok.train_from_iterator(
        corpus(),
        trainers.BpeTrainer(
            vocab_size=vocab,
            special_tokens=list(special),
            show_progress=False,
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        ),
    )
    return tok


def bare_bytes(*before):
    return pre_tokenizers.Sequence([*before, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


def gpt2():
    return byte_level(pre_tokenizers.ByteLevel(add_prefix_space=False))


def gpt2_prefix_space():
    tok = byte_level(pre_tokenizers.ByteLevel(add_prefix_space=True))
    tok.post_processor = processors.RobertaProcessing(("<|endoftext|>", 0), ("!", 1))
    return tok


def llama3():
    tok = byte_level(
        bare_bytes(split(LLAMA3)), special=["<|begin_of_text|>", "<|end_of_text|>", "<|eot_id|>"], ignore_merges=True
    )
    tok.post_processor = processors.Sequence(
        [
            processors.ByteLevel(trim_offsets=False),
            processors.TemplateProcessing(
                single="<|begin_of_text|> $A",
                pair="<|begin_of_text|> $A <|begin_of_text|> $B",
                special_tokens=[("<|begin_of_text|>", 0)],
            ),
        ]
    )
    # Whole words that no merges lead to: only ignore_merges finds them.
    document = json.loads(tok.to_str())
    for word in ["Ġunmergeable", "xyzzyx", "Ã©Ã©Ã©"]:
        document["model"]["vocab"][word] = len(document["model"]["vocab"])
    return Tokenizer.from_str(json.dumps(document))


def qwen2():
    tok = byte_level(
        bare_bytes(split(QWEN2)), normalizers.NFC(), special=["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    )
    tok.add_tokens([AddedToken("<tool_call>", normalized=False), AddedToken("é!", normalized=True)])
    return tok


def deepseek():
    tok = byte_level(
        bare_bytes(*map(split, DEEPSEEK)),
        normalizers.Sequence([]),
        special=["<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>"],
    )
    tok.add_tokens([AddedToken("<｜User｜>", normalized=True), AddedToken("<think>", normalized=False)])
    return tok


def starcoder():
    tok = byte_level(
        pre_tokenizers.Sequence([pre_tokenizers.Digits(True), pre_tokenizers.ByteLevel(add_prefix_space=False)]),
        special=["<|endoftext|>", "<fim_prefix>"],
    )
    tok.add_tokens([AddedToken(" " * n, normalized=True) for n in (2, 4, 8)])
    return tok


def o200k():
    return byte_level(bare_bytes(split(O200K)))


def falcon():
    return byte_level(
        pre_tokenizers.Sequence(
            [
                pre_tokenizers.Punctuation("contiguous"),
                pre_tokenizers.ByteLevel(add_prefix_space=False),
                pre_tokenizers.Digits(False),
                split("[0-9][0-9][0-9]"),
            ]
        )
    )


def behaviors():
    """Every behaviour of Split, by literal, expression and character."""
    return byte_level(
        bare_bytes(
            pre_tokenizers.Split("e", "merged_with_previous"),
            pre_tokenizers.Split(Regex(r"\s"), "merged_with_next"),
            pre_tokenizers.Split(Regex(r"\p{Lu}"), "contiguous"),
            pre_tokenizers.Split("_", "removed"),
            pre_tokenizers.Split(Regex(r"[a-f]"), "isolated", invert=True),
            pre_tokenizers.CharDelimiterSplit("="),
            pre_tokenizers.Digits(False),
        )
    )


def many_added():
    """Added tokens with every combination of their flags, some inside others, under a normalizer that changes them."""
    tok = byte_level(
        pre_tokenizers.ByteLevel(add_prefix_space=False),
        normalizers.Sequence([normalizers.NFKC(), normalizers.Lowercase()]),
        special=["<|endoftext|>"],
    )
    tokens = []
    for n in range(32):
        flags = [bool(n >> i & 1) for i in range(5)]
        tokens.append(
            AddedToken(
                f"<Tok{n}>",
                single_word=flags[0],
                lstrip=flags[1],
                rstrip=flags[2],
                normalized=flags[3],
                special=flags[4],
            )
        )
    tokens += [
        AddedToken("<Tok", normalized=False),
        AddedToken("ﬁne", normalized=True),
        AddedToken("fine", normalized=True),
        AddedToken("the", single_word=True, normalized=False),
        AddedToken(" the", normalized=True, lstrip=True),
        AddedToken("<|endoftext|><|endoftext|>", normalized=False, special=True),
    ]
    for token in tokens:
        (tok.add_special_tokens if token.special else tok.add_tokens)([token])
    return tok


def changed_text(*steps):
    return byte_level(pre_tokenizers.ByteLevel(add_prefix_space=False), normalizers.Sequence(list(steps)))


def stripped():
    return changed_text(
        normalizers.Strip(left=True, right=True),
        normalizers.NFD(),
        normalizers.StripAccents(),
        normalizers.Replace(Regex(r"\d+"), "#"),
        normalizers.Replace("ab", ""),
    )


def compatible():
    return changed_text(normalizers.NFKD(), normalizers.Lowercase())


def bytes_as_text():
    """The byte alphabet as a normalizer, so that everything after it sees its characters."""
    return byte_level(pre_tokenizers.Digits(False), normalizers.ByteLevel())


SPACE_DECODER = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]


def fallback(normalizer, pre_tokenizer, decoder, train_pre_tokenizer, vocab=1500, fuse_unk=True, byte_fallback=True):
    """A model of characters with byte fallback; `train_pre_tokenizer` cuts the words that it is trained on."""
    trainee = Tokenizer(models.BPE(unk_token="<unk>"))
    if normalizer:
        trainee.normalizer = normalizer
    trainee.pre_tokenizer = train_pre_tokenizer
    special = ["<unk>", "<s>", "</s>"]
    names = [f"<0x{b:02X}>" for b in range(256)] if byte_fallback else []
    trainee.train_from_iterator(
        corpus(),
        trainers.BpeTrainer(vocab_size=vocab, special_tokens=special + names, show_progress=False, limit_alphabet=300),
    )
    document = json.loads(trainee.to_str())
    document["added_tokens"] = [t for t in document["added_tokens"] if t["content"] in special]
    document["model"].update(byte_fallback=byte_fallback, fuse_unk=fuse_unk, unk_token="<unk>")
    document["pre_tokenizer"] = None
    tok = Tokenizer.from_str(json.dumps(document))
    if pre_tokenizer:
        tok.pre_tokenizer = pre_tokenizer
    tok.decoder = decoder
    tok.post_processor = processors.TemplateProcessing(
        single="<s> $A", pair="<s> $A <s> $B", special_tokens=[("<s>", 1)]
    )
    return tok


def llama2():
    return fallback(
        normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]),
        None,
        decoders.Sequence([*SPACE_DECODER, decoders.Strip(" ", 1, 0)]),
        pre_tokenizers.Split("▁", "merged_with_next"),
    )


def mistral():
    metaspace = pre_tokenizers.Metaspace("▁", prepend_scheme="first", split=False)
    return fallback(
        None,
        metaspace,
        decoders.Sequence([*SPACE_DECODER, decoders.Strip(" ", 1, 0)]),
        pre_tokenizers.Metaspace("▁", prepend_scheme="first"),
    )


def gemma():
    cut = pre_tokenizers.Split(" ", "merged_with_previous")
    tok = fallback(
        normalizers.Replace(" ", "▁"),
        cut,
        decoders.Sequence(SPACE_DECODER),
        pre_tokenizers.Split("▁", "merged_with_next"),
        fuse_unk=False,
    )
    tok.add_tokens(
        [
            AddedToken("\n\n", normalized=False),
            AddedToken("<b>", normalized=False),
            AddedToken("<unused0>", normalized=False),
        ]
    )
    return tok


def metaspace():
    cut = pre_tokenizers.Sequence(
        [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace("▁", prepend_scheme="always")]
    )
    return fallback(normalizers.NFKC(), cut, decoders.Metaspace("▁", prepend_scheme="always"), cut, byte_fallback=False)


def metaspace_first():
    """Only the piece at the beginning of the text gets a mark in front."""
    cut = pre_tokenizers.Sequence([pre_tokenizers.Digits(False), pre_tokenizers.Metaspace("▁", prepend_scheme="first")])
    tok = fallback(None, cut, decoders.Metaspace("▁", prepend_scheme="never"), cut)
    tok.add_tokens([AddedToken("=", normalized=False), AddedToken("_", normalized=True)])
    return tok


def unknowns():
    """Neither byte fallback nor fused unknown tokens, and no decoder."""
    tok = fallback(
        None,
        pre_tokenizers.Split(Regex(r"\s"), "isolated"),
        decoders.Fuse(),
        pre_tokenizers.Split(Regex(r"\s"), "isolated"),
        fuse_unk=False,
        byte_fallback=False,
    )
    document = json.loads(tok.to_str())
    document["decoder"] = None
    return Tokenizer.from_str(json.dumps(document))


STYLES = {
    f.__name__: f
    for f in (
        gpt2,
        gpt2_prefix_space,
        llama3,
        qwen2,
        deepseek,
        starcoder,
        o200k,
        falcon,
        behaviors,
        many_added,
        stripped,
        compatible,
        bytes_as_text,
        llama2,
        mistral,
        gemma,
        metaspace,
        metaspace_first,
        unknowns,
    )
}
