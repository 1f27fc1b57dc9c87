"""A training step, ours beside PyTorch eager and torch.compile: tokens/s, MFU and peak memory, at 1 and 2 threads.

    .venv-test/bin/python bench/train_step.py [--rounds 5] [--seconds 12] [--threads 1 2] [--peers eager compile]

Every figure comes from a fresh process; the sides take turns in each round, the median over rounds is printed with its
spread. All train the same Llama (hidden 256, 6 layers, 8/4 heads, feed-forward 688, vocabulary 4096 tied) on batches of
16 x 256 tokens, fp32, AdamW, clipping at 1. MFU counts 6 FLOPs a matmul parameter and token and the causal half of
attention, and is a share of the sgemm peak that this run measured at the same thread count. Checked: the loss falls from
ln 4096 at the first step, on each side.
"""

import argparse
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
HIDDEN, LAYERS, HEADS, KV_HEADS, FFN, VOCAB, SEQUENCE, BATCH = 256, 6, 8, 4, 688, 4096, 256, 16
HEAD_DIM = HIDDEN // HEADS
TOKENS = SEQUENCE * BATCH
MATMUL = LAYERS * (2 * HIDDEN * HIDDEN + 2 * HIDDEN * KV_HEADS * HEAD_DIM + 3 * HIDDEN * FFN) + VOCAB * HIDDEN
FLOPS_PER_TOKEN = 6 * MATMUL + 6 * LAYERS * HIDDEN * SEQUENCE

RECIPE = f"""
task = "pretrain"
[run]
name = "bench"
steps = 100000
[model]
family = "llama"
layers = {LAYERS}
hidden = {HIDDEN}
heads = {HEADS}
kv_heads = {KV_HEADS}
ffn = {FFN}
tie_embeddings = true
[data]
source = ["python-stdlib"]
tokenizer = {{ train = "bpe", vocab = {VOCAB} }}
sequence = {SEQUENCE}
document_attention = false
[batch]
size = {BATCH}
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


def torch_side(compiled, threads, seconds):
    """Runs in its own process and prints one JSON line."""
    import resource

    import torch
    import torch.nn as nn
    import torch.nn.functional as F

    torch.set_num_threads(threads)
    torch.manual_seed(1)

    class Norm(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.ones(HIDDEN))

        def forward(self, x):
            return F.rms_norm(x, (HIDDEN,), self.weight, 1e-5)

    def rope(x, cos, sin):
        x1, x2 = x.chunk(2, -1)
        return x * cos + torch.cat([-x2, x1], -1) * sin

    class Layer(nn.Module):
        def __init__(self):
            super().__init__()
            linear = lambda i, o: nn.Linear(i, o, bias=False)  # noqa: E731
            self.norm1, self.norm2 = Norm(), Norm()
            self.q, self.k = linear(HIDDEN, HIDDEN), linear(HIDDEN, KV_HEADS * HEAD_DIM)
            self.v, self.o = linear(HIDDEN, KV_HEADS * HEAD_DIM), linear(HIDDEN, HIDDEN)
            self.gate, self.up, self.down = linear(HIDDEN, FFN), linear(HIDDEN, FFN), linear(FFN, HIDDEN)

        def forward(self, x, cos, sin):
            y = self.norm1(x)
            heads = lambda t: t.view(*x.shape[:2], -1, HEAD_DIM).transpose(1, 2)  # noqa: E731
            q, k, v = rope(heads(self.q(y)), cos, sin), rope(heads(self.k(y)), cos, sin), heads(self.v(y))
            a = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
            x = x + self.o(a.transpose(1, 2).reshape(x.shape))
            y = self.norm2(x)
            return x + self.down(F.silu(self.gate(y)) * self.up(y))

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding, self.norm = nn.Embedding(VOCAB, HIDDEN), Norm()
            self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))
            angle = torch.outer(torch.arange(SEQUENCE).float(), 1e4 ** (-torch.arange(0, HEAD_DIM, 2) / HEAD_DIM))
            angle = torch.cat([angle, angle], -1)
            self.register_buffer("cos", angle.cos())
            self.register_buffer("sin", angle.sin())
            for p in self.parameters():
                if p.dim() == 2:
                    nn.init.normal_(p, 0, 0.02)

        def forward(self, tokens, labels):
            x = self.embedding(tokens)
            for layer in self.layers:
                x = layer(x, self.cos, self.sin)
            logits = F.linear(self.norm(x), self.embedding.weight)
            return F.cross_entropy(logits.view(-1, VOCAB), labels.view(-1))

    model = Model()
    decayed = [p for p in model.parameters() if p.dim() == 2]
    plain = [p for p in model.parameters() if p.dim() == 1]
    optimizer = torch.optim.AdamW([{"params": decayed, "weight_decay": 0.1}, {"params": plain, "weight_decay": 0}],
                                  lr=3e-4, betas=(0.9, 0.95), fused=True)
    forward = torch.compile(model) if compiled else model
    generator = torch.Generator().manual_seed(2)
    # Zipf-like ids, so that there is something to learn: the loss must fall.
    weights = 1 / torch.arange(1, VOCAB + 1).float()
    losses, times, end = [], [], None
    while end is None or time.perf_counter() < end or len(times) < 3:
        ids = torch.multinomial(weights, BATCH * (SEQUENCE + 1), True, generator=generator).view(BATCH, SEQUENCE + 1)
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
    print(json.dumps({"step": statistics.median(times), "losses": [losses[0], losses[-1]],
                      "rss": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024}))


def peak_side(threads):
    import torch

    torch.set_num_threads(threads)
    a = torch.rand(1024, 1024)
    best = min(_timed(lambda: a @ a) for _ in range(30))
    print(json.dumps({"flops": 2 * 1024**3 / best}))


def _timed(f):
    start = time.perf_counter()
    f()
    return time.perf_counter() - start


def ours(threads, seconds, folder):
    """A real run of the binary, stopped by SIGTERM once it has run for long enough; the median of its own step times."""
    run = pathlib.Path(tempfile.mkdtemp(dir=folder))
    recipe = run / "bench.toml"
    recipe.write_text(RECIPE)
    process = subprocess.Popen([BINARY, "train", recipe, f"run.dir={run / 'run'}", f"run.threads={threads}",
                                f"data.cache={folder / 'data'}"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
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
            "losses": [steps[0]["loss"], steps[-1]["loss"]], "rss": usage.ru_maxrss * 1024}


def child(*arguments):
    done = subprocess.run([sys.executable, __file__, *map(str, arguments)], capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(done.stderr[-2000:])
    return json.loads(done.stdout.splitlines()[-1])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=12, help="of timed steps, a side and round")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--peers", nargs="+", default=["eager", "compile"], choices=["eager", "compile"])
    parser.add_argument("--side", nargs="+", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.side:
        kind, threads = options.side[0], int(options.side[1])
        return peak_side(threads) if kind == "peak" else torch_side(kind == "compile", threads, float(options.side[2]))

    import torch

    print(f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores, torch {torch.__version__}, "
          f"{TOKENS} tokens a step, {options.rounds} rounds of {options.seconds:g} s a side")
    print(f"{'threads':>7} {'side':<9} {'tokens/s':>9} {'spread':>15} {'MFU':>6} {'peak GB':>8} {'loss':>15}   of sgemm peak")
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        for threads in options.threads:
            results, peaks = {}, []
            for _ in range(options.rounds):
                peaks.append(child("--side", "peak", threads)["flops"])
                for side in ["ours", *options.peers]:
                    one = ours(threads, options.seconds, folder) if side == "ours" else \
                        child("--side", side, threads, options.seconds)
                    assert abs(one["losses"][0] - math.log(VOCAB)) < 0.3, f"{side} began at loss {one['losses'][0]}"
                    assert one["losses"][1] < one["losses"][0] - 0.5, f"{side} learned nothing: {one['losses']}"
                    results.setdefault(side, []).append(one)
            peak = max(peaks)
            for side, rows in results.items():
                speed = sorted(TOKENS / row["step"] for row in rows)
                median = statistics.median(speed)
                print(f"{threads:>7} {side:<9} {median:>9.0f} {speed[0]:>7.0f}-{speed[-1]:<7.0f} "
                      f"{100 * median * FLOPS_PER_TOKEN / peak:>5.1f}% {max(r['rss'] for r in rows) / 1e9:>8.2f} "
                      f"{rows[-1]['losses'][0]:>7.3f}->{rows[-1]['losses'][1]:<6.3f}   {peak / 1e9:.0f} GFLOP/s", flush=True)


if __name__ == "__main__":
    main()
