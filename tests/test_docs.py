"""The pages say what is there: links lead somewhere, the page of keys is current, commands name real verbs."""

import re

from conftest import ROOT

PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").glob("*.md"), *(ROOT / "bench").glob("*.md")])


def test_links_lead_somewhere():
    broken = [f"{page.name}: {link}" for page in PAGES for link in re.findall(r"\]\(([^)#:]+)\)", page.read_text())
              if not (page.parent / link).exists()]
    assert not broken, broken


def test_the_page_of_keys_is_current(trireme):
    assert (ROOT / "docs/recipe.md").read_text() == trireme("help", "recipe", "--markdown").stdout


def test_commands_name_real_verbs(trireme):
    text = trireme("--help").stdout
    verbs = set(re.findall(r"^  ([a-z]+)  ", text, re.M))
    assert {"train", "generate", "eval", "verify", "explain", "data", "tokenizer", "ckpt", "version"} <= verbs, text
    used = {verb for page in PAGES for verb in re.findall(r"\./trireme ([a-z]+)", page.read_text())}
    assert used <= verbs, used - verbs


def test_every_recipe_is_valid(trireme):
    recipes = sorted((ROOT / "recipes").glob("*.toml"))
    assert len(recipes) >= 3
    for recipe in recipes:
        trireme("explain", recipe)
