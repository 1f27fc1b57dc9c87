"""generate, eval and verify, from the command line."""

import json
import math

import pytest
import small_run
import torch


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    import subprocess

    from conftest import BINARY
    folder = tmp_path_factory.mktemp("run")
    recipe = small_run.write(folder)
    subprocess.run([BINARY, "train", recipe, "run.dir=run"], cwd=folder, check=True, capture_output=True)
    return folder


# The world's own implementation reads our checkpoint with nothing else, and chooses the same tokens.
def test_transformers_reads_the_checkpoint_and_agrees(run, trireme):
    from transformers import AutoModelForCausalLM, AutoTokenizer
    checkpoint = run / "run/checkpoints/step-00000050"
    model = AutoModelForCausalLM.from_pretrained(checkpoint, dtype=torch.float32)
    tokenizer = AutoTokenizer.from_pretrained(checkpoint)
    prompt = "line 3 of text"
    ids = tokenizer(prompt, return_tensors="pt")["input_ids"]
    theirs = model.generate(ids, max_new_tokens=8, do_sample=False, pad_token_id=0)[0]
    ours = trireme("generate", run / "run", "--prompt", prompt, "--max-tokens", 8, "--temperature", 0).stdout
    assert ours == tokenizer.decode(theirs) + "\n"

    lines = run / "lines.jsonl"
    lines.write_text(json.dumps({"text": prompt + " 7: 21 apples"}) + "\n" + json.dumps({"ids": ids[0].tolist()}) + "\n")
    out = run / "scores.jsonl"
    trireme("eval", run / "run", "--data", lines, "--per-token", "--out", out)
    for line in map(json.loads, out.read_text().splitlines()):
        tokens = torch.tensor([line["ids"]])
        with torch.no_grad():
            log_probs = model(tokens).logits[0].double().log_softmax(-1)
        assert line["log_probs"][0] is None
        for place, value in enumerate(line["log_probs"][1:]):
            # fp32 logits of the two agree within 2e-5, and so do their log-probabilities.
            assert value == pytest.approx(log_probs[place, tokens[0, place + 1]].item(), abs=4e-5)


def test_generate_is_reproducible_and_stops(run, trireme):
    first = trireme("generate", run / "run", "--prompt", "line", "--max-tokens", 30, "--seed", 4).stdout
    assert first == trireme("generate", run / "run", "--prompt", "line", "--max-tokens", 30, "--seed", 4).stdout
    assert first.startswith("line")
    stop = first[8:10]
    stopped = trireme("generate", run / "run", "--prompt", "line", "--max-tokens", 30, "--seed", 4, "--stop", stop).stdout
    assert stopped == "line" + first[4:-1].split(stop)[0] + "\n"


def test_generate_many_prompts(run, trireme):
    prompts, out = run / "prompts.jsonl", run / "out.jsonl"
    prompts.write_text("".join(json.dumps({"prompt": p}) + "\n" for p in ("line 1", "", "text of line 2 and more")))
    trireme("generate", run / "run", "--prompts", prompts, "--out", out, "--max-tokens", 5)
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    assert [row["prompt"] for row in rows] == ["line 1", "", "text of line 2 and more"]
    assert all(len(row["ids"]) <= 5 and row["finish"] in ("end", "length") for row in rows)
    prompts.write_text('{"prompt": 3}\n')
    assert ":1" in trireme("generate", run / "run", "--prompts", prompts, code=2).stderr


def test_eval_of_texts(run, trireme):
    done = trireme("eval", run / "run", "--data", run / "texts", "--sequence", 24, "--json")
    result = json.loads(done.stdout)
    assert result["perplexity"] == pytest.approx(math.exp(result["loss"]))
    # In the texts that it was trained on (with few held out), it must do about as well as on the held-out ones.
    held_out = [line for line in small_run.lines(run / "run") if line.get("kind") == "eval"][-1]
    assert 0.3 * held_out["bits_per_byte"] < result["bits_per_byte"] < 1.5 * held_out["bits_per_byte"]


def test_what_is_no_model(run, trireme):
    assert "nothing-here" in trireme("generate", "nothing-here", "--prompt", "a", code=2).stderr
    assert "top-p" in trireme("generate", run / "run", "--prompt", "a", "--top-p", 0, code=2).stderr


def test_verify_every_layout(run, trireme):
    done = trireme("verify", run / "small.toml", "--ranks", 2, "--json", cwd=run)
    result = json.loads(done.stdout)
    assert result["equal"] is True and result["first_difference"] is None
    layouts = [row["layout"] for row in result["layouts"]]
    assert layouts == [f"replica={r},shard={2 // r}{z},recompute={c}" for r, stages in ((1, "123"), (2, " "))
                       for z in (f",zero={s}".removesuffix(",zero= ") for s in stages) for c in ("none", "selective", "block")]
    assert all(0 <= row["worst_gradient"] < 1e-11 for row in result["layouts"])
    assert any(row["worst_gradient"] > 0 for row in result["layouts"]), "nothing was compared"
    done = trireme("verify", run / "small.toml", "--layouts", "replica=4;shard=4", "--precision", "fp32", cwd=run)
    assert "2 layouts equal one rank" in done.stderr
    assert "batch.size" in trireme("verify", run / "small.toml", "--layouts", "shard=3", code=2, cwd=run).stderr


def test_verify_over_processes_has_the_bits_of_threads(run, trireme):
    rows = {}
    for fabric in ("thread", "process"):
        done = trireme("verify", run / "small.toml", "--ranks", 2, "--layouts", "replica=2;shard=2,recompute=selective",
                       "--fabric", fabric, "--json", cwd=run)
        assert done.stderr.count("2 layouts equal one rank") == 1
        rows[fabric] = [{k: v for k, v in row.items() if k != "seconds"} for row in json.loads(done.stdout)["layouts"]]
    assert rows["thread"] == rows["process"]
    assert any(row["worst_weight"] > 0 for row in rows["process"]), "nothing was compared"
    wrong = trireme("verify", run / "small.toml", "--ranks", 2, "--layouts", "shard=4", "--fabric", "process", code=2, cwd=run)
    assert "shard=4 has 4 ranks, and --ranks starts 2 processes" in wrong.stderr


def test_dry_run_prints_the_program(run, trireme):
    done = trireme("train", run / "small.toml", "layout.shard=2", "layout.recompute=block", "--dry-run", cwd=run)
    for word in ("gather layer 0", "release head", "reduce embedding", "norm all", "predicted peak"):
        assert word in done.stdout
    assert not (run / "runs").exists()
