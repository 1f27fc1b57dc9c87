"""Generation from the command line beside `transformers`: greedy tokens, exact sampling, scores, stop strings, files."""

import copy
import json
import math
import subprocess

import pytest
import tiny_models
import tokenizer_files
import torch
from conftest import BINARY
from tokenizers import Tokenizer, processors
from transformers import AutoTokenizer, GenerationConfig, PreTrainedTokenizerFast

SEED = 11
torch.set_num_threads(1)  # the models are tiny, and tests run side by side
PROMPTS = ["def main(", "", "import sys\nimport os, json\n\n", "x", "return self._value + 17  # é", "class Größe:", "a b c d e f g h",
           "for i in range(10):\n    print(i)", "]", "if __name__"]
FAMILIES = ["llama", "qwen2", "qwen3", "mistral", "gpt2", "gemma2", "gemma3_text"]


def beginning_with_bos():
    """The shared tokenizer with a post-processor that puts a token before each text."""
    tokenizer = Tokenizer.from_str(tiny_models.tokenizer_json())
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<|im_start|> $A", special_tokens=[("<|im_start|>", tokenizer.token_to_id("<|im_start|>"))])
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<|im_start|>", eos_token="<|endoftext|>")


def save(folder, model, tokenizer):
    copy.deepcopy(model).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def write(path, lines):
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def read(text):
    return [json.loads(line) for line in text.splitlines()]


@pytest.fixture(scope="module")
def llama(tmp_path_factory):
    """(model, tokenizer, directory); the tokenizer adds a BOS."""
    model, tokenizer = tiny_models.llama(bos_token_id=1), beginning_with_bos()
    return model, tokenizer, save(tmp_path_factory.mktemp("llama"), model, tokenizer)


def continued(model, ids, tokens):
    """transformers' greedy continuation, without the end token."""
    with torch.no_grad():
        out = model.generate(torch.tensor([ids]), attention_mask=torch.ones(1, len(ids), dtype=torch.long), do_sample=False,
                             max_new_tokens=tokens, pad_token_id=0)[0, len(ids):].tolist()
    return out[:-1] if out and out[-1] == model.config.eos_token_id else out


# fp32 logits of the two agree within 2e-5; these models leave no two best tokens so close.
@pytest.mark.parametrize("family", FAMILIES)
def test_greedy_tokens_are_those_of_transformers(family, trireme, tmp_path):
    model, tokenizer = tiny_models.make(family, seed=SEED, bos_token_id=1), beginning_with_bos()
    folder = save(tmp_path / "model", model, tokenizer)
    write(tmp_path / "in.jsonl", [{"prompt": p} for p in PROMPTS])
    trireme("generate", folder, "--prompts", "in.jsonl", "--out", "out.jsonl", "--temperature", 0, "--max-tokens", 25, "--batch", 4)
    rows = read((tmp_path / "out.jsonl").read_text())
    assert [row["prompt"] for row in rows] == PROMPTS
    for row in rows:
        ids = tokenizer(row["prompt"])["input_ids"]
        assert ids[0] == 1, "the tokenizer adds no BOS: the test is void"
        assert row["ids"] == continued(model, ids, 25), row["prompt"]
        assert row["finish"] == ("length" if len(row["ids"]) == 25 else "end")
        assert row["text"] == tokenizer.decode(row["ids"], skip_special_tokens=True)


def score(model, ids):
    """Log-probabilities of ids[1:], from one uncached pass."""
    with torch.no_grad():
        logits = model(torch.tensor([ids])).logits[0].double().log_softmax(-1)
    return [logits[place, ids[place + 1]].item() for place in range(len(ids) - 1)]


@pytest.mark.parametrize("family", FAMILIES)
def test_scores_with_and_without_a_cache(family, trireme, tmp_path):
    model, tokenizer = tiny_models.make(family, seed=SEED + 1, bos_token_id=1), beginning_with_bos()
    folder = save(tmp_path / "model", model, tokenizer)
    write(tmp_path / "in.jsonl", [{"prompt": p} for p in PROMPTS])
    rows = read(trireme("generate", folder, "--prompts", "in.jsonl", "--max-tokens", 20, "--seed", 3).stdout)
    prompts = [tokenizer(p)["input_ids"] for p in PROMPTS]
    write(tmp_path / "texts.jsonl", [{"ids": p + row["ids"]} for p, row in zip(prompts, rows, strict=True)])
    trireme("eval", folder, "--data", "texts.jsonl", "--per-token", "--out", "scores.jsonl")
    scores = read((tmp_path / "scores.jsonl").read_text())
    drawn = 0
    for prompt, row, line in zip(prompts, rows, scores, strict=True):
        assert line["ids"] == prompt + row["ids"] and line["log_probs"][0] is None
        # fp32 logits of the two agree within 2e-5, and so do their log-probabilities.
        assert line["log_probs"][1:] == pytest.approx(score(model, line["ids"]), abs=4e-5)
        # With and without a cache the same products are summed in another order: the bound that users are promised.
        assert row["log_probs"] == pytest.approx(line["log_probs"][len(prompt):], abs=1e-5)
        drawn += len(row["ids"])
    assert drawn > 50

    write(tmp_path / "same.jsonl", [{"text": p} for p in PROMPTS])
    lines = read(trireme("eval", folder, "--data", "same.jsonl", "--per-token").stdout)
    assert [line["ids"] for line in lines] == prompts


SAMPLING = [
    {},
    {"temperature": 0.7},
    {"top_k": 12},
    {"top_p": 0.8},
    {"min_p": 0.15},
    {"repetition_penalty": 1.7},
    {"temperature": 1.4, "top_k": 60, "top_p": 0.9, "min_p": 0.05, "repetition_penalty": 1.3},
    {"temperature": 0.8, "top_p": 0.95, "min_p": 0.02, "repetition_penalty": 0.7},
]


def processed(model, ids, options):
    """transformers' distribution: its own processors, in its own order."""
    config = GenerationConfig(do_sample=True, **{"top_k": 0, "top_p": 1.0, "temperature": 1.0, **options})
    processors_ = model._get_logits_processor(config, input_ids_seq_length=len(ids), device="cpu")
    with torch.no_grad():
        logits = model(torch.tensor([ids])).logits[:, -1].double()
    return processors_(torch.tensor([ids]), logits)[0].softmax(-1)


# Frequencies of 4,000 draws against that distribution: chi-square over the tokens that 5 or more draws are expected of, the
# rest as one class. The level is 1e-4 for each case; the seed is fixed.
@pytest.mark.parametrize("options", SAMPLING, ids=lambda o: ",".join(o) or "plain")
def test_draws_follow_transformers_distribution(options, llama, trireme, tmp_path):
    model, tokenizer, folder = llama
    draws, prompt = 4000, "for i in range(10): print(i)"
    write(tmp_path / "in.jsonl", [{"prompt": prompt}] * draws)
    flags = [word for key, value in options.items() for word in ("--" + key.replace("_", "-"), value)]
    rows = read(trireme("generate", folder, "--prompts", "in.jsonl", "--max-tokens", 1, "--seed", SEED, "--threads", 1, *flags).stdout)
    p = processed(model, tokenizer(prompt)["input_ids"], options)
    end = model.config.eos_token_id
    counts = torch.zeros(len(p), dtype=torch.float64)
    for row in rows:
        token = row["ids"][0] if row["ids"] else end
        counts[token] += 1
        assert p[token] > 0, f"{token} is filtered out"
        if row["ids"]:
            # An fp32 logit that differs by 2e-5 changes what a temperature of 0.7 makes of it by 6e-5 at most.
            assert row["sampling_log_probs"][0] == pytest.approx(p[token].log().item(), abs=1e-4)
    expected = draws * p
    often = expected >= 5
    classes = [(counts[often], expected[often])]
    if expected[~often].sum() > 0:
        classes.append((counts[~often].sum()[None], expected[~often].sum()[None]))
    observed, wanted = (torch.cat(parts) for parts in zip(*classes, strict=True))
    chi_square, freedom = ((observed - wanted) ** 2 / wanted).sum(), len(wanted) - 1
    level = torch.special.gammaincc(torch.tensor(freedom / 2).double(), chi_square / 2).item()
    assert freedom >= 3 and level > 1e-4, f"chi-square {chi_square:.1f} with {freedom} degrees of freedom, seed {SEED}"


# Later tokens: the penalty sees what was generated, and the cache what was read.
def test_every_draw_has_the_probability_that_it_says(llama, trireme, tmp_path):
    model, tokenizer, folder = llama
    options = SAMPLING[6]
    write(tmp_path / "in.jsonl", [{"prompt": p} for p in PROMPTS])
    flags = [word for key, value in options.items() for word in ("--" + key.replace("_", "-"), value)]
    rows = read(trireme("generate", folder, "--prompts", "in.jsonl", "--max-tokens", 12, "--seed", 5, *flags).stdout)
    for row in rows:
        ids = tokenizer(row["prompt"])["input_ids"]
        for token, said in zip(row["ids"], row["sampling_log_probs"], strict=True):
            assert said == pytest.approx(processed(model, ids, options)[token].log().item(), abs=1e-4)
            ids.append(token)
    assert sum(len(row["ids"]) for row in rows) > 60


def test_a_text_does_not_depend_on_what_is_generated_beside_it(llama, trireme, tmp_path):
    _, _, folder = llama
    write(tmp_path / "in.jsonl", [{"prompt": p} for p in PROMPTS])
    call = ("--max-tokens", 15, "--top-p", 0.95, "--seed", 8)
    alone = trireme("generate", folder, "--prompts", "in.jsonl", "--batch", 1, *call).stdout
    for batch in (2, 3, 8):
        assert trireme("generate", folder, "--prompts", "in.jsonl", "--batch", batch, *call).stdout == alone
    others = [{"prompt": p if i in (2, 7) else p[::-1] + "!"} for i, p in enumerate(PROMPTS)]
    write(tmp_path / "others.jsonl", others)
    rows, wanted = read(trireme("generate", folder, "--prompts", "others.jsonl", *call).stdout), read(alone)
    assert rows[2] == wanted[2] and rows[7] == wanted[7] and rows[3] != wanted[3]
    streamed = trireme("generate", folder, "--prompt", PROMPTS[0], *call).stdout  # bytes that are no UTF-8 as they are
    assert streamed.encode(errors="surrogateescape").decode(errors="replace") == PROMPTS[0] + wanted[0]["text"] + "\n"
    different = read(trireme("generate", folder, "--prompts", "in.jsonl", *call[:-1], 9).stdout)
    assert all(a["ids"] != b["ids"] for a, b in zip(different, wanted, strict=True))


TEXT = "éw漢🙂STOP, or(1) fin"


@pytest.fixture(scope="module")
def script(tmp_path_factory):
    """A model that continues "Q" by TEXT and then ends: no layer adds anything, and the output matrix maps each token to
    the one that follows it."""
    tokenizer = tiny_models.fast_tokenizer()
    chain = [*tokenizer("Q")["input_ids"], *tokenizer(TEXT)["input_ids"], tokenizer.eos_token_id]
    assert len(set(chain)) == len(chain), "a token would need two successors"
    model = tiny_models.llama(tie_word_embeddings=False)
    with torch.no_grad():
        for layer in model.model.layers:
            layer.self_attn.o_proj.weight.zero_()
            layer.mlp.down_proj.weight.zero_()
        directions = torch.randn(model.model.embed_tokens.weight.shape, generator=torch.Generator().manual_seed(SEED))
        model.model.embed_tokens.weight.copy_(directions)
        model.model.norm.weight.fill_(1)
        model.lm_head.weight.zero_()
        for now, then in zip(chain, chain[1:]):
            model.lm_head.weight[then] = 10 * directions[now] / directions[now].norm()
    return save(tmp_path_factory.mktemp("script"), model, tokenizer)


@pytest.mark.parametrize("stops, left, finish", [
    ([], TEXT, "end"),
    (["not there"], TEXT, "end"),
    (["漢"], "éw", "stop"),  # a character of several tokens
    (["w漢🙂S"], "é", "stop"),
    (["é"], "", "stop"),
    (["fin"], TEXT[:-3], "stop"),
    (["final"], TEXT, "end"),  # begun, and never complete
    (["fin", "🙂STOP", "STOP"], "éw漢", "stop"),  # the first to come
])
def test_stop_strings(stops, left, finish, script, trireme, tmp_path):
    flags = [word for stop in stops for word in ("--stop", stop)]
    call = ("--temperature", 0, "--max-tokens", 40, *flags)
    assert trireme("generate", script, "--prompt", "Q", *call).stdout == "Q" + left + "\n"
    trireme("generate", script, "--prompt", "Q", "--out", "out.jsonl", *call)
    row = json.loads((tmp_path / "out.jsonl").read_text())
    assert (row["prompt"], row["text"], row["finish"]) == ("Q", left, finish)
    tokenizer = AutoTokenizer.from_pretrained(script)
    said = tokenizer.decode(row["ids"])
    assert said.startswith(left) and TEXT.startswith(said.rstrip("\ufffd"))
    assert len(row["log_probs"]) == len(row["sampling_log_probs"]) == len(row["ids"])
    assert row["sampling_log_probs"] == [0.0] * len(row["ids"]), "greedy tokens are certain"


def test_text_comes_as_it_is_generated(script):
    """Whole characters, and nothing that a stop string may still take back: read from the pipe piece by piece."""
    process = subprocess.Popen([BINARY, "generate", script, "--prompt", "Q", "--temperature", "0", "--stop", "漢🙂!"],
                               stdout=subprocess.PIPE)
    pieces = []
    while piece := process.stdout.read1():
        pieces.append(piece.decode())  # raises when a character is cut
    assert process.wait() == 0
    assert "".join(pieces) == "Q" + TEXT + "\n"


# A tokenizer that writes a space before a text and takes it away at the beginning: what follows a prompt keeps its own.
def test_the_first_space_behind_a_prompt_stays(trireme, tmp_path):
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=tokenizer_files.llama2(), bos_token="<s>", eos_token="</s>")
    model = tiny_models.llama(vocab_size=1600, bos_token_id=1, eos_token_id=2)
    folder = save(tmp_path / "model", model, tokenizer)
    prompts = ["def f(x)", "import", "a = b", "日本", "x ", "self", "0", "the end"]
    write(tmp_path / "in.jsonl", [{"prompt": p} for p in prompts])
    rows = read(trireme("generate", folder, "--prompts", "in.jsonl", "--max-tokens", 8, "--seed", 2).stdout)
    kept = 0
    for row in rows:
        ids = tokenizer(row["prompt"])["input_ids"]
        before, whole = (tokenizer.decode(part, skip_special_tokens=True) for part in (ids, ids + row["ids"]))
        assert before + row["text"] == whole
        kept += row["text"] != tokenizer.decode(row["ids"], skip_special_tokens=True)
    assert kept > 0, "no text began with a space: the test is void"


def test_the_context_is_the_limit(llama, trireme, tmp_path):
    model, _, folder = llama
    ids = [5 + i % 300 for i in range(70)]
    write(tmp_path / "in.jsonl", [{"prompt": ids[:60]}, {"prompt": ids[:63]}, {"prompt": ids[:3]}])
    rows = read(trireme("generate", folder, "--prompts", "in.jsonl", "--max-tokens", 20, "--temperature", 0).stdout)
    assert [(len(row["ids"]), row["finish"]) for row in rows] == [(4, "length"), (1, "length"), (20, "length")]
    assert rows[0]["ids"] == continued(model, ids[:60], 4)
    write(tmp_path / "in.jsonl", [{"prompt": ids[:5]}, {"prompt": ids[:64]}])
    done = trireme("generate", folder, "--prompts", "in.jsonl", "--out", "out.jsonl", code=2)
    assert "in.jsonl:2: the prompt has 64 tokens" in done.stderr and "at most 64" in done.stderr
    write(tmp_path / "in.jsonl", [{"ids": ids[:64]}, {"ids": ids[:65]}])
    assert "in.jsonl:2: the text has 65 tokens" in trireme("eval", folder, "--data", "in.jsonl", "--per-token", code=2).stderr


def test_lines_carry_what_else_they_say(llama, trireme, tmp_path):
    _, _, folder = llama
    lines = [{"prompt": "a", "id": 7}, {"prompt": [4, 9], "tags": ["x"]}, {"prompt": "b"}]
    text = "\n".join(json.dumps(line) for line in lines) + "\n\n"
    done = subprocess.run([BINARY, "generate", folder, "--prompts", "-", "--max-tokens", "2"], input=text, text=True,
                          capture_output=True, check=True)
    rows = read(done.stdout)
    for line, row in zip(lines, rows, strict=True):
        assert {key: row[key] for key in line} == line
        assert set(row) - set(line) == {"text", "ids", "log_probs", "sampling_log_probs", "finish"}
    scored = subprocess.run([BINARY, "eval", folder, "--per-token", "--data", "-"], input='{"ids": [4, 9]}\n', text=True,
                            capture_output=True, check=True)
    assert json.loads(scored.stdout)["ids"] == [4, 9]


def test_a_model_without_a_tokenizer_takes_ids(trireme, tmp_path):
    model = tiny_models.llama()
    folder = tiny_models.save(tmp_path / "model", model, tokenizer=False)
    write(tmp_path / "in.jsonl", [{"prompt": [3, 8, 20]}, {"prompt": []}])
    rows = read(trireme("generate", folder, "--prompts", "in.jsonl", "--temperature", 0, "--max-tokens", 6).stdout)
    assert rows[0]["ids"] == continued(model, [3, 8, 20], 6) and rows[0]["text"] is None
    assert rows[1]["ids"] == continued(model, [model.config.bos_token_id], 6)
    assert "has no tokenizer.json" in trireme("generate", folder, "--prompt", "a", code=2).stderr
    assert "--stop needs a tokenizer" in trireme("generate", folder, "--prompts", "in.jsonl", "--stop", "a", code=2).stderr


@pytest.mark.parametrize("content, says", [
    ("", "in.jsonl has no lines"),
    ("\n \n", "in.jsonl has no lines"),
    ('{"prompt": "a"}\n\n{"prompt": "b"\n', "in.jsonl:3: this is no JSON"),
    ('{"prompt": "a"}\n{"text": "b"}\n', 'in.jsonl:2: expected an object with a "prompt"'),
    ('["a"]\n', "in.jsonl:1: expected an object"),
    ('{"prompt": 3}\n', "in.jsonl:1: \"prompt\" must be a text or a list of ids, found number"),
    ('{"prompt": [1, -1]}\n', "in.jsonl:1: -1 is no id; the model has 416"),
    ('{"prompt": [416]}\n', "in.jsonl:1: 416 is no id"),
    ('{"prompt": [1.5]}\n', "in.jsonl:1: 1.5 is no id"),
    ('{"prompt": "a", "max_tokens": 3}\n', "\"max_tokens\" is an option of the command line"),
    ('{"prompt": "a", "finish": "end"}\n', "\"finish\" is what generate writes"),
    (b'{"prompt": "\xff"}\n', "in.jsonl:1: this is no JSON"),
])
def test_prompts_that_are_wrong(content, says, llama, trireme, tmp_path):
    (tmp_path / "in.jsonl").write_bytes(content if isinstance(content, bytes) else content.encode())
    done = trireme("generate", llama[2], "--prompts", "in.jsonl", "--out", "out.jsonl", code=2)
    assert says in done.stderr and 1 <= done.stderr.count("\n") <= 3 and done.stdout == ""
    assert [p.name for p in tmp_path.iterdir()] == ["in.jsonl"]


@pytest.mark.parametrize("arguments, says, code", [
    (["--top-p", 0], "top-p must be above 0", 2),
    (["--top-p", 1.01], "top-p", 2),
    (["--top-k", -1], "top-k", 2),
    (["--min-p", 2], "min-p", 2),
    (["--temperature", -1], "temperature", 2),
    (["--temperature", "nan"], "temperature", 2),
    (["--temperature", "warm"], "temperature", 2),
    (["--repetition-penalty", 0], "repetition-penalty", 2),
    (["--max-tokens", 0], "max-tokens", 2),
    (["--batch", 0], "batch", 2),
    (["--seed", -1], "seed", 2),
    (["--stop", ""], "stop", 2),
    (["--prompts", "in.jsonl"], "prompt", 2),
    (["--out", "nowhere/out.jsonl"], "nowhere/out.jsonl", 1),
])
def test_options_that_are_wrong(arguments, says, code, llama, trireme, tmp_path):
    done = trireme("generate", llama[2], "--prompt", "a", *arguments, code=code)
    assert says in done.stderr and 1 <= done.stderr.count("\n") <= 3 and done.stdout == ""
    assert list(tmp_path.iterdir()) == []


def test_a_prompt_is_asked_for(llama, trireme):
    assert "--prompt or --prompts is required" in trireme("generate", llama[2], code=2).stderr
    assert "missing.jsonl" in trireme("generate", llama[2], "--prompts", "missing.jsonl", code=2).stderr


def test_a_result_that_cannot_be_written_is_a_failure(llama):
    with open("/dev/full", "w") as full:
        done = subprocess.run([BINARY, "generate", llama[2], "--prompt", "a"], stdout=full, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 1 and "cannot write to stdout" in done.stderr


def test_it_says_what_it_took(llama, trireme, tmp_path):
    write(tmp_path / "in.jsonl", [{"prompt": [5] * n} for n in (3, 1, 7)])
    done = trireme("generate", llama[2], "--prompts", "in.jsonl", "--max-tokens", 4, "--temperature", 0, "--stats")
    drawn = [len(row["ids"]) + (row["finish"] == "end") for row in read(done.stdout)]
    said = json.loads(done.stderr.splitlines()[-1])
    assert said["prompt_tokens"] == 11 and said["step_tokens"] == sum(drawn) - 3 and said["steps"] == max(drawn) - 1
    assert 0 < said["prompt_seconds"] < 60 and 0 < said["step_seconds"] < 60 and math.isfinite(said["step_seconds"])
