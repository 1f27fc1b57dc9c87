"""Held-out bits per byte of a recipe, ours beside the same model trained by plain PyTorch.

    .venv-test/bin/python bench/loss.py [--recipe recipes/code-nano.toml] [--set KEY=VALUE]

Both start from our initial weights and see the same samples in the same order, with the same optimizer and schedule;
both are judged on all held-out samples by the twin of tests/oracle. Prints both figures at each evaluation's step.
Checked: both have learned (their last figure is below their first). Takes three times as long as the recipe.
"""

import argparse
import json
import math
import os
import pathlib
import platform
import subprocess
import sys
import tempfile
import tomllib

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))
BINARY = os.environ.get("TRIREME_BINARY", str(ROOT / "build/release/trireme"))

import torch  # noqa: E402
from oracle.families import Llama  # noqa: E402
from oracle.optimizer import AdamW, learning_rate  # noqa: E402
from safetensors.torch import load_file  # noqa: E402


def trireme(*arguments):
    done = subprocess.run([BINARY, *map(str, arguments)], capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if done.returncode != 0:
        raise SystemExit(done.stderr)
    return done.stdout


def samples(recipe, overrides, split, first, count):
    out = trireme("data", "inspect", recipe, *overrides, "--sample", first, "--count", count, "--split", split, "--json")
    rows = [json.loads(line) for line in out.splitlines()] if count > 1 else [json.loads(out)]
    batch = {key: torch.tensor([row[key] for row in rows]) for key in ("tokens", "labels", "positions", "documents")}
    return batch, sum(row["label_bytes"] for row in rows)


@torch.no_grad()
def bits_per_byte(twin, held_out, text_bytes):
    nats = 0.0
    for i in range(0, held_out["tokens"].shape[0], 8):
        part = {key: value[i : i + 8] for key, value in held_out.items()}
        valid = (part["labels"] != -100).sum().item()
        nats += twin.loss(part).item() * valid if valid else 0.0
    return nats / math.log(2) / text_bytes


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--recipe", type=pathlib.Path, default=ROOT / "recipes/code-nano.toml")
    parser.add_argument("--held-out", type=int, default=256, help="held-out samples at each mark")
    parser.add_argument("--set", nargs="*", default=[], metavar="KEY=VALUE", help="overrides of the recipe")
    options = parser.parse_args()
    torch.set_num_threads(os.cpu_count())
    print(f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores, torch {torch.__version__}, "
          f"{options.recipe.name}")

    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        overrides = [f"data.cache={folder / 'data'}", f"eval.max_samples={options.held_out}", "eval.samples=0", "eval.prompts=",
                     *options.set]
        trireme("train", options.recipe, *overrides, f"run.dir={folder / 'initial'}", "run.steps=1",
                "schedule.warmup_steps=0", "optimizer.lr=0")
        trireme("train", options.recipe, *overrides, f"run.dir={folder / 'ours'}")
        lines = [json.loads(line) for line in (folder / "ours/metrics.jsonl").read_text().splitlines()]
        ours = {line["step"]: line["bits_per_byte"] for line in lines if line.get("kind") == "eval"}
        seconds = sum(line["step_seconds"] for line in lines if "kind" not in line)

        frozen = tomllib.loads((folder / "ours/recipe.toml").read_text())
        optimizer, schedule, size, steps = frozen["optimizer"], frozen["schedule"], frozen["batch"]["size"], frozen["run"]["steps"]
        assert schedule["kind"] == "cosine", "the twin knows one schedule"
        checkpoint = folder / "initial/checkpoints/step-00000001"
        twin = Llama(json.loads((checkpoint / "config.json").read_text()), load_file(checkpoint / "model.safetensors"),
                     torch.float32)
        adamw = AdamW(twin.parameters(), optimizer["betas"], optimizer["eps"], optimizer["weight_decay"], optimizer["clip"])
        held_out, text_bytes = samples(options.recipe, overrides, "held_out", 0, options.held_out)
        print(f"{'step':>6} {'ours':>9} {'twin':>9} {'ours - twin':>12}")
        differences = []
        train, _ = samples(options.recipe, overrides, "train", 0, steps * size)
        for step in range(1, steps + 1):
            batch = {key: value[(step - 1) * size : step * size] for key, value in train.items()}
            twin.loss(batch).backward()
            adamw.step(learning_rate(step, optimizer["lr"], schedule["warmup_steps"], steps, schedule["min_ratio"]))
            if step in ours:
                theirs = bits_per_byte(twin, held_out, text_bytes)
                differences.append((ours[step], theirs))
                print(f"{step:>6} {ours[step]:>9.4f} {theirs:>9.4f} {ours[step] - theirs:>+12.5f}", flush=True)
        assert differences[-1][0] < differences[0][0] and differences[-1][1] < differences[0][1], "one learned nothing"
        print(f"ours: {seconds:.0f} s of steps; largest difference {max(a - b for a, b in differences):+.5f}")


if __name__ == "__main__":
    main()
