"""Recipes as a user meets them: what explain shows, and the message and exit code of everything that can be wrong.

The oracle for values is Python's own TOML reader; the messages themselves are tested beside the code.
"""

import json
import pathlib
import re
import tomllib

import pytest
from conftest import ROOT

RECIPES = sorted((ROOT / "recipes").glob("*.toml"))

PRETRAIN = """\
task = "pretrain"
[run]
steps = 10
[model]
family = "llama"
layers = 2
hidden = 64
heads = 4
ffn = 128
[data]
source = ["python-stdlib"]
tokenizer = { train = "bpe", vocab = 512 }
sequence = 32
[batch]
size = 8
[optimizer]
lr = 1e-3
"""

CTR = """\
task = "ctr"
[run]
epochs = 1
[model]
family = "lr"
[data]
source = ["generated-clicks"]
rows = "10k"
fields = 4
ids = 100
[table]
optimizer = { lr = 0.1 }
[batch]
size = 16
[optimizer]
lr = 1e-2
"""


def changed(text, old, new):
    assert old in text
    return text.replace(old, new)


def flat(table, prefix=""):
    """{"run.steps": 10, …}; lists and what is in them are values."""
    values = {}
    for key, value in table.items():
        values |= flat(value, f"{prefix}{key}.") if isinstance(value, dict) else {prefix + key: value}
    return values


def explained(trireme, *arguments):
    return {v["key"]: v for v in json.loads(trireme("explain", *arguments, "--json").stdout)["values"]}


@pytest.mark.parametrize("path", RECIPES, ids=lambda p: p.name)
def test_explain_shows_what_the_file_says(trireme, path):
    counts = {"k": 10**3, "M": 10**6, "B": 10**9}
    values = explained(trireme, path)
    lines = path.read_text().splitlines()
    for key, value in flat(tomllib.loads(path.read_text())).items():
        if values[key]["unit"] and isinstance(value, str) and value[-1] in counts:
            value = float(value[:-1]) * counts[value[-1]]
        assert values[key]["value"] == value, key
        assert values[key]["origin"] == "recipe"
        assert key.split(".")[-1] in lines[values[key]["line"] - 1], "the line holds the key"


@pytest.mark.parametrize("path", RECIPES, ids=lambda p: p.name)
def test_the_table_and_json_agree(trireme, path):
    table = trireme("explain", path).stdout
    for key, value in explained(trireme, path).items():
        line = re.search(rf"^{re.escape(key)} .*$", table, re.M).group()
        origin = {"recipe": f"{path}:{value['line']}"}.get(value["origin"], value["origin"])
        assert origin in line


def test_the_command_line_goes_before_the_recipe(trireme, tmp_path):
    (tmp_path / "r.toml").write_text(PRETRAIN)
    values = explained(trireme, "r.toml", "batch.size=4", "run.steps=", "run.tokens=1.28k", "data.source=a b/*.py",
                       "optimizer.betas=[0.8, 0.9]")
    assert values["batch.size"]["value"] == 4 and values["batch.size"]["origin"] == "command line"
    assert values["run.tokens"]["value"] == 1280
    assert values["run.steps"]["value"] == 10 and values["run.steps"]["origin"] == "derived"  # 1280 / (4 * 32)
    assert values["data.source"]["value"] == ["a b/*.py"]
    assert values["optimizer.betas"]["value"] == [0.8, 0.9]


def test_what_is_derived(trireme, tmp_path):
    (tmp_path / "night.toml").write_text(PRETRAIN)
    values = explained(trireme, "night.toml", "layout.replica=2", "layout.shard=2")
    derived = {k: v["value"] for k, v in values.items() if v["origin"] == "derived"}
    assert derived.pop("run.threads") >= 1
    assert derived == {"run.name": "night", "run.dir": None, "model.kv_heads": 4, "model.head_dim": 16,
                       "model.tie_embeddings": False, "model.max_positions": 32, "batch.micro": 2,
                       "data.bos": "none", "data.eos": "<|endoftext|>", "eval.at_start": False}


def test_tokens_are_rounded_up_to_whole_steps(trireme, tmp_path):
    (tmp_path / "r.toml").write_text(PRETRAIN)
    for tokens in (1, 255, 256, 257, 10**18):  # a step has 8 * 32 tokens
        values = explained(trireme, "r.toml", "run.steps=", f"run.tokens={tokens}")
        assert values["run.steps"]["value"] == -(-tokens // 256)


# name: (recipe, overrides, line or "command line", what the message says)
WRONG = {
    "misspelt key": (changed(PRETRAIN, "layers", "layrs"), [], 6, "no key model.layrs; did you mean model.layers?"),
    "misspelt section": (changed(PRETRAIN, "[batch]", "[bacth]"), [], 15, "did you mean batch.size?"),
    "key of another section": (changed(PRETRAIN, "[batch]", "[batch]\nlr = 1"), [], 15,
                               "did you mean table.optimizer.lr or optimizer.lr?"),
    "wrong type": (changed(PRETRAIN, "layers = 2", "layers = 2.0"), [], 6, "model.layers wants an integer, found 2.0"),
    "quoted number": (changed(PRETRAIN, "lr = 1e-3", 'lr = "1e-3"'), [], 17, "optimizer.lr wants a number"),
    "out of range": (changed(PRETRAIN, "size = 8", "size = 0"), [], 15, "batch.size = 0 samples is out of range"),
    "beta of one": (PRETRAIN + "betas = [0.9, 1.0]\n", [], 18, "must be < 1"),
    "three betas": (PRETRAIN + "betas = [0.9, 0.9, 0.9]\n", [], 18, "a list of 2 numbers, found 3"),
    "infinite rate": (changed(PRETRAIN, "1e-3", "inf"), [], 17, "must be finite"),
    "unknown choice": (PRETRAIN + '[schedule]\nkind = "cosin"\n', [], 19, 'did you mean "cosine"?'),
    "steps and tokens": (changed(PRETRAIN, "steps = 10", 'steps = 10\ntokens = "20M"'), [], 4,
                         "run.tokens contradicts run.steps (r.toml:3)"),
    "steps and epochs": (PRETRAIN, ["run.epochs=1"], "command line", "run.steps= to the command line"),
    "neither steps nor tokens": (changed(PRETRAIN, "steps = 10", "seed = 10"), [], None,
                                 "one of run.steps, run.tokens or run.epochs is missing"),
    "no tokenizer": (changed(PRETRAIN, "tokenizer =", "#"), [], None, "one of data.tokenizer or data.tokenizer.train"),
    "tokenizer without a size": (changed(PRETRAIN, ", vocab = 512", ""), [], 12, "data.tokenizer.vocab is missing"),
    "size for a ready tokenizer": (PRETRAIN, ["data.tokenizer=t.json", "data.tokenizer.vocab=512"], "command line",
                                   "data.tokenizer.vocab has no effect"),
    "no effect: min_ratio": (PRETRAIN + "[schedule]\nmin_ratio = 0.1\n", [], 19,
                             'schedule.min_ratio has no effect: it counts only with schedule.kind = linear, cosine or '
                             'wsd, and schedule.kind = "constant"'),
    "no effect: decay_steps": (PRETRAIN + '[schedule]\nkind = "linear"\ndecay_steps = 5\n', [], 20, "has no effect"),
    "no effect: prompts": (PRETRAIN + '[eval]\nsamples = 0\nprompts = ["x"]\n', [], 20, "eval.samples = 0"),
    "no effect: max_samples": (PRETRAIN, ["data.held_out=0", "eval.max_samples=5"], "command line",
                               "data.held_out > 0, and data.held_out = 0.0 (command line)"),
    "no effect: ffn of a click model": (changed(CTR, "[data]", "ffn = 64\n[data]"), [], 6,
                                        'it counts only with task = pretrain and no model.from, and task = "ctr" (r.toml:1)'),
    "no effect: rows of texts": (PRETRAIN, ["data.rows=5"], "command line", "task = ctr"),
    "no effect: tokens of clicks": (CTR, ["run.epochs=", "run.tokens=5"], "command line", "run.tokens has no effect"),
    "family of another task": (changed(CTR, '"lr"', '"llama"'), [], 5, 'model.family = "llama" has no effect'),
    "weight of clicks": (CTR, ['data.source=[{path="generated-clicks", weight=1}]'], "command line",
                         "data.source.weight has no effect"),
    "duplicate key": (changed(PRETRAIN, "layers = 2", "layers = 2\nlayers = 3"), [], 7, "given twice"),
    "duplicate section": (PRETRAIN + "[run]\nseed = 1\n", [], 18, "given twice"),
    "bad TOML": (changed(PRETRAIN, "layers = 2", "layers ="), [], 6, "bad TOML"),
    "not closed": (changed(PRETRAIN, "[model]", "[model"), [], 4, "bad TOML"),
    "invalid UTF-8": (PRETRAIN.encode() + b'# \xff\xfe\n', [], 18, "bad TOML"),
    "binary": (b"\x7fELF\x02\x01\x01\x00", [], 1, "bad TOML"),
    "empty": ("", [], None, "task is missing"),
    "missing key": (changed(PRETRAIN, "ffn = 128\n", ""), [], 4, "model.ffn is missing; it wants an integer, >= 1"),
    "missing section": (changed(PRETRAIN, "[batch]\nsize = 8\n", ""), [], None, "batch.size is missing"),
    "heads": (PRETRAIN, ["model.kv_heads=3"], "command line", "model.heads = 4 is no multiple of model.kv_heads = 3"),
    "hidden": (changed(PRETRAIN, "heads = 4", "heads = 5"), [], 8, "model.hidden = 64 is no multiple"),
    "odd head": (PRETRAIN, ["model.head_dim=7"], "command line", "model.head_dim = 7 is odd"),
    "positions": (PRETRAIN, ["model.max_positions=31"], None, "data.sequence = 32 exceeds model.max_positions = 31"),
    "batch over ranks": (PRETRAIN, ["layout.replica=3"], 15, "batch.size = 8 is no multiple"),
    "more ranks than batch": (PRETRAIN, ["layout.replica=4", "layout.shard=4"], 15, "= 16"),
    "micro": (PRETRAIN, ["batch.micro=3"], "command line", "batch.micro = 3 does not divide the 8 samples"),
    "warm-up": (PRETRAIN + "[schedule]\nwarmup_steps = 11\n", [], 19, "exceeds run.steps = 10"),
    "decay": (PRETRAIN + '[schedule]\nkind = "wsd"\nwarmup_steps = 6\ndecay_steps = 5\n', [], 21,
              "exceeds the 4 steps"),
    "no override": (PRETRAIN, ["batch.size", "4"], "command line", "'batch.size' is no override, which reads key=value"),
    "override of nothing": (PRETRAIN, ["batch.sizes=4"], "command line", "did you mean batch.size?"),
    "override of the wrong type": (PRETRAIN, ["batch.size=four"], "command line", 'found "four"'),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_input(trireme, tmp_path, name):
    recipe, overrides, line, says = WRONG[name]
    (tmp_path / "r.toml").write_bytes(recipe if isinstance(recipe, bytes) else recipe.encode())
    done = trireme("explain", "r.toml", *overrides, code=2)
    where = {None: "r.toml:", "command line": "command line: "}.get(line, f"r.toml:{line}: ")
    assert done.stderr.startswith(f"trireme: {where}"), done.stderr
    assert says in done.stderr
    assert done.stdout == "" and done.stderr.count("\n") <= 3
    assert [p.name for p in tmp_path.iterdir()] == ["r.toml"]


def test_the_good_ones_are_good(trireme, tmp_path):
    """Without this the table above could fail for a reason of its own."""
    for text in (PRETRAIN, CTR):
        (tmp_path / "r.toml").write_text(text)
        trireme("explain", "r.toml")


@pytest.mark.parametrize("path", ["missing.toml", ".", "", "missing/r.toml"])
def test_a_recipe_that_cannot_be_read(trireme, path):
    stderr = trireme("explain", path, code=2).stderr
    assert path in stderr and stderr.count("\n") <= 2


def test_the_page_is_current(trireme):
    page = trireme("help", "recipe", "--markdown").stdout
    assert (ROOT / "docs/recipe.md").read_text() == page, "run: trireme help recipe --markdown > docs/recipe.md"


def test_the_page_names_every_key(trireme):
    page = (ROOT / "docs/recipe.md").read_text()
    for path in RECIPES:
        for key in flat(tomllib.loads(pathlib.Path(path).read_text())):
            assert f"| `{key}` |" in page


def test_help_on_a_key_a_section_and_all(trireme):
    size = trireme("help", "batch.size").stdout
    assert "an integer, >= 1, samples" in size and "required" in size
    assert trireme("help", "batch").stdout.count("\n") == 2
    all_keys = trireme("help", "recipe").stdout
    assert "batch.micro" in all_keys and "schedule.kind" in all_keys
    assert "did you mean 'batch.micro'?" in trireme("help", "batch.mirco", code=2).stderr
