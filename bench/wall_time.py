"""Held-out bits per byte after the same wall time: a recipe of ours beside PyTorch with its best learning rate.

    .venv-test/bin/python bench/wall_time.py [--recipe recipes/code-nano.toml] [--rates 1e-3 2e-3 4e-3] [--batch N]
                                             [--compiled] [--set KEY=VALUE]

Ours runs the whole recipe. The peer (bench/peer.py) starts from our initial weights, sees the same samples in the same
order on as many threads, and trains until its steps have taken as long as ours did; its schedule is the recipe's, over that time,
and --batch gives it another number of sequences a step. Evaluation, set-up and compilation are not counted on either side.
Both are judged by the twin of tests/oracle on the same held-out samples. Checked: the peer's first loss is ours, and both have
learned. Takes as long as the recipe, once for us and once for each learning rate; the machine must be quiet throughout.
"""

import argparse
import json
import math
import os
import pathlib
import platform
import sys
import tempfile
import time
import tomllib

import torch
from loss import BINARY, ROOT, bits_per_byte, samples, trireme
from peer import Decoder, adamw, cosine

sys.path.insert(0, str(ROOT / "tests"))
from oracle.families import Llama  # noqa: E402
from safetensors.torch import load_file  # noqa: E402


def peer(config, weights, train, recipe, lr, batch, budget, compiled):
    """Trains for `budget` seconds of steps; returns its weights, the number of steps and the first loss."""
    model = Decoder(config["hidden_size"], config["num_hidden_layers"], config["num_attention_heads"],
                    config["num_key_value_heads"], config["intermediate_size"], config["vocab_size"],
                    recipe["data"]["sequence"])
    model.load_hugging_face(dict(weights))
    forward = torch.compile(model) if compiled else model
    part = lambda i: {k: v[i * batch : (i + 1) * batch].contiguous() for k, v in train.items()}  # noqa: E731
    for _ in range(2):  # warms up, and compiles
        forward(**part(0)).backward()
    model.zero_grad(set_to_none=True)
    optimizer = adamw(model, lr, recipe["optimizer"]["weight_decay"], recipe["optimizer"]["betas"])
    warmup = recipe["schedule"]["warmup_steps"] / recipe["run"]["steps"]
    used, step, first = 0.0, 0, None
    while used < budget:
        data = part(step)
        start = time.perf_counter()
        for group in optimizer.param_groups:
            group["lr"] = cosine(used / budget, warmup, lr, recipe["schedule"]["min_ratio"])
        loss = forward(**data)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), recipe["optimizer"]["clip"])
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        first = loss.item() if first is None else first
        used += time.perf_counter() - start
        step += 1
        assert (step + 1) * batch <= len(train["tokens"]), "the peer is so fast that it ran out of samples"
    return model.hugging_face(), step, first


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--recipe", type=pathlib.Path, default=ROOT / "recipes/code-nano.toml")
    parser.add_argument("--rates", type=float, nargs="+", default=[1e-3, 2e-3, 4e-3])
    parser.add_argument("--batch", type=int, default=0, help="sequences in a step of the peer (the recipe's)")
    parser.add_argument("--compiled", action="store_true", help="torch.compile on the peer's side")
    parser.add_argument("--held-out", type=int, default=256, help="held-out samples")
    parser.add_argument("--set", nargs="*", default=[], metavar="KEY=VALUE", help="overrides of the recipe")
    options = parser.parse_args()
    torch.set_num_threads(os.cpu_count())
    print(f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores, torch {torch.__version__}, "
          f"{options.recipe.name}, peer {'compiled' if options.compiled else 'eager'}, {BINARY}")

    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        overrides = [f"data.cache={folder / 'data'}", "eval.samples=0", "eval.prompts=", *options.set]
        trireme("train", options.recipe, *overrides, f"run.dir={folder / 'initial'}", "run.steps=1",
                "schedule.warmup_steps=0", "optimizer.lr=0")
        trireme("train", options.recipe, *overrides, f"run.dir={folder / 'ours'}")
        lines = [json.loads(line) for line in (folder / "ours/metrics.jsonl").read_text().splitlines()]
        steps = [line for line in lines if "kind" not in line]
        budget = sum(line["step_seconds"] for line in steps)

        recipe = tomllib.loads((folder / "ours/recipe.toml").read_text())
        assert recipe["schedule"]["kind"] == "cosine", "the peer knows one schedule"
        initial = folder / "initial/checkpoints/step-00000001"
        config, weights = json.loads((initial / "config.json").read_text()), load_file(initial / "model.safetensors")
        size = recipe["batch"]["size"]
        train, _ = samples(options.recipe, overrides, "train", 0, 2 * size * len(steps))
        held_out, text_bytes = samples(options.recipe, overrides, "held_out", 0, options.held_out)
        judge = lambda w: bits_per_byte(Llama(config, w, torch.float32), held_out, text_bytes)  # noqa: E731
        last = max((folder / "ours/checkpoints").glob("step-*"))
        before, ours = judge(weights), judge(load_file(last / "model.safetensors"))
        assert ours < before, "ours learned nothing"
        print(f"{'side':<8} {'lr':>8} {'steps':>6} {'sequences':>9} {'seconds':>8} {'bits/byte':>10}")
        print(f"{'ours':<8} {recipe['optimizer']['lr']:>8g} {len(steps):>6} {len(steps) * size:>9} {budget:>8.1f} {ours:>10.4f}", flush=True)
        results = []
        batch = options.batch or size
        for lr in options.rates:
            trained, count, first = peer(config, weights, train, recipe, lr, batch, budget, options.compiled)
            if batch == size:
                assert math.isclose(first, steps[0]["loss"], rel_tol=1e-4), f"first losses differ: {first}, {steps[0]['loss']}"
            results.append(judge(trained))
            assert results[-1] < before, "the peer learned nothing"
            print(f"{'PyTorch':<8} {lr:>8g} {count:>6} {count * batch:>9} {budget:>8.1f} {results[-1]:>10.4f}", flush=True)
        print(f"ours - PyTorch's best: {ours - min(results):+.4f} bits per byte")


if __name__ == "__main__":
    main()
