"""Every family from a recipe: it trains, its checkpoint is a model of `transformers`, and every layout agrees."""

import json

import pytest
import small_run
import torch

FAMILIES = {
    "qwen2": [], "qwen3": ["model.head_dim=12"], "mistral": ["model.window=7"], "gemma2": ["model.window=7"],
    "gemma3": ["model.window=7", "model.layers=6"], "gpt2": [],
}


@pytest.mark.parametrize("family", FAMILIES)
def test_a_recipe_trains_it_and_transformers_loads_it(family, trireme, tmp_path):
    from transformers import AutoModelForCausalLM, AutoTokenizer
    recipe = small_run.write(tmp_path)
    overrides = [f"model.family={family}", *FAMILIES[family], *(["model.kv_heads="] if family == "gpt2" else [])]
    trireme("train", recipe, "run.dir=run", "run.steps=12", "eval.samples=0", *overrides)
    losses = [line["loss"] for line in small_run.lines(tmp_path / "run") if "kind" not in line]
    assert losses[-1] < losses[0]

    checkpoint = tmp_path / "run/checkpoints/step-00000012"
    model, info = AutoModelForCausalLM.from_pretrained(checkpoint, dtype=torch.float32, output_loading_info=True)
    assert not info["missing_keys"] and not info["unexpected_keys"] and not info["mismatched_keys"]
    ids = [3, 1, 40, 1, 5, 90, 260, 7, 7, 12, 33, 200, 201, 9, 14]
    (tmp_path / "in.jsonl").write_text(json.dumps({"ids": ids}) + "\n")
    trireme("eval", tmp_path / "run", "--data", "in.jsonl", "--per-token", "--out", "out.jsonl")
    ours = json.loads((tmp_path / "out.jsonl").read_text())["log_probs"][1:]
    with torch.no_grad():
        theirs = model(torch.tensor([ids])).logits[0].double().log_softmax(-1)
    for place, value in enumerate(ours):
        # fp32 logits of the two agree within 2e-5, and so do their log-probabilities.
        assert value == pytest.approx(theirs[place, ids[place + 1]].item(), abs=4e-5)

    # Generation goes by a cache, and greedily it chooses what transformers chooses.
    tokenizer = AutoTokenizer.from_pretrained(checkpoint)
    prompt = "line 3 of text 12: 36 apples"
    ids = tokenizer(prompt, return_tensors="pt")["input_ids"]
    greedy = model.generate(ids, max_new_tokens=6, do_sample=False, pad_token_id=0)[0]
    ours = trireme("generate", "run", "--prompt", prompt, "--max-tokens", 6, "--temperature", 0).stdout
    assert ours == tokenizer.decode(greedy) + "\n"


@pytest.mark.parametrize("family", FAMILIES)
def test_layouts_agree(family, trireme, tmp_path):
    recipe = small_run.write(tmp_path)
    overrides = [f"model.family={family}", *FAMILIES[family], *(["model.kv_heads="] if family == "gpt2" else [])]
    found = json.loads(trireme("verify", recipe, "--layouts", "all", "--ranks", 2, "--json", *overrides).stdout)
    assert found["equal"] and len(found["layouts"]) >= 2
