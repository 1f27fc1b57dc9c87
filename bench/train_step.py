"""A training step, ours beside PyTorch eager and torch.compile: tokens/s, MFU and peak memory, at 1 and 2 threads.

    .venv-test/bin/python bench/train_step.py [--workload w1 w3] [--rounds 5] [--seconds 12] [--threads 1 2]
                                              [--peers eager compile] [--set KEY=VALUE]

Workloads: w1 is a Llama of 5.4 M parameters (hidden 256, 6 layers, 8/4 heads, feed-forward 688, vocabulary 4096 tied) on
batches of 16 x 256 tokens; w3 one of 100 M (768, 12 layers, 12/4 heads, 2048, 32000 tied) on 2 x 512. fp32, AdamW,
clipping at 1. Every figure comes from a fresh process; the sides take turns in each round, the median over rounds is
printed with its spread. MFU counts 6 FLOPs a matmul parameter and token and the causal half of attention. The sgemm peak is
measured in each round, for a third of a side's time: the first MFU is the median step's share of the median
product's rate, the one in brackets the best round's share of the best product's. 'over 16 B' is the peak of memory beyond 16
bytes a parameter (weight, gradient, two moments). Checked: the loss falls from ln(vocabulary) at the first step, on each
side.
"""

import argparse
import dataclasses
import json
import math
import os
import pathlib
import platform
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
BINARY = os.environ.get("TRIREME_BINARY", str(ROOT / "build/release/trireme"))


@dataclasses.dataclass(frozen=True)
class Workload:
    hidden: int
    layers: int
    heads: int
    kv_heads: int
    ffn: int
    vocab: int
    sequence: int
    batch: int

    @property
    def head_dim(self):
        return self.hidden // self.heads

    @property
    def tokens(self):
        return self.sequence * self.batch

    @property
    def matmul_parameters(self):
        attention = 2 * self.hidden * self.hidden + 2 * self.hidden * self.kv_heads * self.head_dim
        return self.layers * (attention + 3 * self.hidden * self.ffn) + self.vocab * self.hidden

    @property
    def parameters(self):
        return self.matmul_parameters + (2 * self.layers + 1) * self.hidden

    @property
    def flops(self):
        """Of one step."""
        return self.tokens * (6 * self.matmul_parameters + 6 * self.layers * self.hidden * self.sequence)

    def recipe(self):
        return f"""
task = "pretrain"
[run]
name = "bench"
steps = 100000
[model]
family = "llama"
layers = {self.layers}
hidden = {self.hidden}
heads = {self.heads}
kv_heads = {self.kv_heads}
ffn = {self.ffn}
tie_embeddings = true
[data]
source = ["python-stdlib"]
tokenizer = {{ train = "bpe", vocab = {self.vocab} }}
sequence = {self.sequence}
document_attention = false
[batch]
size = {self.batch}
micro = 2
[optimizer]
lr = 3e-4
weight_decay = 0.1
betas = [0.9, 0.95]
clip = 1.0
[eval]
samples = 0
max_samples = 2
"""


WORKLOADS = {"w1": Workload(256, 6, 8, 4, 688, 4096, 256, 16), "w3": Workload(768, 12, 12, 4, 2048, 32000, 512, 2)}


def torch_side(w, compiled, threads, seconds):
    """Runs in its own process and prints one JSON line."""
    import resource

    import torch
    from peer import Decoder, adamw

    torch.set_num_threads(threads)
    torch.manual_seed(1)
    model = Decoder(w.hidden, w.layers, w.heads, w.kv_heads, w.ffn, w.vocab, w.sequence)
    optimizer = adamw(model, 3e-4, 0.1, (0.9, 0.95))
    forward = torch.compile(model) if compiled else model
    generator = torch.Generator().manual_seed(2)
    # Zipf-like ids, so that there is something to learn: the loss must fall.
    weights = 1 / torch.arange(1, w.vocab + 1).float()
    losses, times, end = [], [], None
    while end is None or time.perf_counter() < end or len(times) < 3:
        ids = torch.multinomial(weights, w.batch * (w.sequence + 1), True, generator=generator).view(w.batch, w.sequence + 1)
        start = time.perf_counter()
        loss = forward(ids[:, :-1].contiguous(), ids[:, 1:].contiguous())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        losses.append(loss.item())
        if len(losses) <= 2:  # the first two warm up, and compile
            end = time.perf_counter() + seconds
        else:
            times.append(time.perf_counter() - start)
    print(json.dumps({"step": statistics.median(times), "best": min(times), "losses": [losses[0], losses[-1]],
                      "rss": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024}))


def peak_side(threads, seconds):
    import torch

    torch.set_num_threads(threads)
    a, b, times = torch.rand(1024, 1024), torch.rand(1024, 1024), []
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        start = time.perf_counter()
        a @ b
        times.append(time.perf_counter() - start)
    print(json.dumps({"median": 2 * 1024**3 / statistics.median(times), "best": 2 * 1024**3 / min(times)}))


def ours(w, threads, seconds, folder, overrides):
    """A real run of the binary, stopped by SIGTERM once it has run for long enough; the median of its own step times."""
    run = pathlib.Path(tempfile.mkdtemp(dir=folder))
    recipe = run / "bench.toml"
    recipe.write_text(w.recipe())
    process = subprocess.Popen([BINARY, "train", recipe, f"run.dir={run / 'run'}", f"run.threads={threads}",
                                f"data.cache={folder / 'data'}", *overrides], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    lines, metrics, started = [], run / "run/metrics.jsonl", None
    while process.poll() is None and (started is None or time.perf_counter() - started < seconds):
        time.sleep(0.1)
        if started is None and metrics.exists() and metrics.stat().st_size:
            started = time.perf_counter()
    process.terminate()
    _, status, usage = os.wait4(process.pid, 0)
    assert os.waitstatus_to_exitcode(status) == 143, "our run did not end as it was asked to"
    lines = [json.loads(line) for line in metrics.read_text().splitlines()]
    steps = [line for line in lines if "kind" not in line]
    return {"step": statistics.median(line["step_seconds"] for line in steps[1:]),
            "best": min(line["step_seconds"] for line in steps[1:]),
            "losses": [steps[0]["loss"], steps[-1]["loss"]], "rss": usage.ru_maxrss * 1024}


def child(*arguments):
    done = subprocess.run([sys.executable, __file__, *map(str, arguments)], capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(done.stderr[-2000:])
    return json.loads(done.stdout.splitlines()[-1])


def measure(name, threads, options, folder):
    """The lines of one workload at one thread count."""
    w = WORKLOADS[name]
    results, peaks = {}, []
    for _ in range(options.rounds):
        peaks.append(child("--side", "peak", name, threads, options.seconds / 3))
        for side in ["ours", *options.peers]:
            one = ours(w, threads, options.seconds, folder, options.set) if side == "ours" else \
                child("--side", side, name, threads, options.seconds)
            assert abs(one["losses"][0] - math.log(w.vocab)) < 0.3, f"{side} began at loss {one['losses'][0]}"
            assert one["losses"][1] < one["losses"][0] - 0.5, f"{side} learned nothing: {one['losses']}"
            results.setdefault(side, []).append(one)
    usual, best = statistics.median(p["median"] for p in peaks), max(p["best"] for p in peaks)
    for side, rows in results.items():
        speed = sorted(w.tokens / row["step"] for row in rows)
        median, memory = statistics.median(speed), max(row["rss"] for row in rows)
        share = median / w.tokens * w.flops / usual
        share_of_best = w.flops / min(row["best"] for row in rows) / best
        print(f"{name:>8} {threads:>7} {side:<9} {median:>9.0f} {speed[0]:>7.0f}-{speed[-1]:<7.0f} {100 * share:>5.1f}% "
              f"({100 * share_of_best:>4.1f}%) {memory / 1e9:>8.2f} {(memory - 16 * w.parameters) / 1e9:>9.2f} "
              f"{rows[-1]['losses'][0]:>7.3f}->{rows[-1]['losses'][1]:<6.3f}   {usual / 1e9:.0f} ({best / 1e9:.0f}) GFLOP/s",
              flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--workload", nargs="+", default=["w1", "w3"], choices=list(WORKLOADS))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=12, help="of timed steps, a side and round")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--peers", nargs="*", default=["eager", "compile"], choices=["eager", "compile"])
    parser.add_argument("--set", nargs="*", default=[], metavar="KEY=VALUE", help="overrides of our recipe")
    parser.add_argument("--side", nargs="+", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.side:
        kind, name, threads, seconds = options.side[0], options.side[1], int(options.side[2]), float(options.side[3])
        return peak_side(threads, seconds) if kind == "peak" else \
            torch_side(WORKLOADS[name], kind == "compile", threads, seconds)

    import torch

    print(f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores, torch {torch.__version__}, "
          f"{options.rounds} rounds of {options.seconds:g} s a side")
    print("workload threads side       tokens/s          spread    MFU  (best)  peak GB  over 16 B            loss   sgemm peak")
    with tempfile.TemporaryDirectory() as folder:
        for name in options.workload:
            for threads in options.threads:
                measure(name, threads, options, pathlib.Path(folder))


if __name__ == "__main__":
    main()
