"""Greedy generation with a key/value cache, ours beside transformers: tokens/s, share of the read bandwidth, prefill.

    .venv-test/bin/python bench/generate.py [--rounds 5] [--tokens 128] [--prompt 64] [--batch 1 8] [--threads 2]

The model is a Llama of 100 M parameters in fp32 (hidden 768, 12 layers, 12/4 heads, feed-forward 2048, vocabulary 32000 tied),
random, made by transformers and read by both. Every figure comes from a fresh process; the sides take turns in each round, the
median over rounds is printed with its range. tokens/s counts steps of one token for each sequence of the batch, draws and scores
included; prefill is the time for all prompts of the batch. 'read' is what a step reads of weights, as a share of the read
bandwidth that each round measures: the best of a sum, a dot product and a matrix-vector product over 1 GB. Checked: both sides give the
same tokens in every round.
"""

import argparse
import json
import os
import pathlib
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
BINARY = os.environ.get("TRIREME_BINARY", str(ROOT / "build/release/trireme"))
VOCAB = 32000


def make_model(folder, positions):
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(1)
    model = LlamaForCausalLM(LlamaConfig(
        vocab_size=VOCAB, hidden_size=768, intermediate_size=2048, num_hidden_layers=12, num_attention_heads=12, num_key_value_heads=4,
        max_position_embeddings=positions, tie_word_embeddings=True, bos_token_id=0, eos_token_id=None, initializer_range=0.05))
    model.save_pretrained(folder)
    return sum(p.numel() for name, p in model.named_parameters() if p.dim() == 2) * 4


def prompts(batch, length):
    return [[(7919 * row + 104729 * place) % VOCAB for place in range(1, length + 1)] for row in range(batch)]


def transformers_side(folder, batch, length, tokens, threads):
    """Runs in its own process and prints one JSON line."""
    import torch
    from transformers import GenerationConfig, LlamaForCausalLM

    torch.set_num_threads(threads)
    model = LlamaForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    x = torch.tensor(prompts(batch, length))

    def generate(n):
        start = time.perf_counter()
        out = model.generate(x, attention_mask=torch.ones_like(x), generation_config=GenerationConfig(
            max_new_tokens=n, min_new_tokens=n, do_sample=False, use_cache=True, pad_token_id=0))
        return out[:, length:].tolist(), time.perf_counter() - start

    with torch.no_grad():
        generate(4)
        times = []
        for _ in range(3):
            start = time.perf_counter()
            model(x, use_cache=True, logits_to_keep=1)
            times.append(time.perf_counter() - start)
        prefill = statistics.median(times)
        ids, seconds = generate(tokens)
    print(json.dumps({"ids": ids, "prefill": prefill, "step": (seconds - prefill) / (tokens - 1),
                      "rss": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024}))


def bandwidth_side(threads):
    import torch

    torch.set_num_threads(threads)
    x = torch.rand(1 << 28)
    matrix, vector = x.view(1 << 16, 1 << 12), torch.rand(1 << 12)
    best = 0
    for read in (x.sum, lambda: torch.dot(x[: 1 << 27], x[1 << 27 :]), lambda: matrix @ vector):
        times = []
        for _ in range(7):
            start = time.perf_counter()
            read()
            times.append(time.perf_counter() - start)
        best = max(best, x.numel() * 4 / statistics.median(times))
    print(json.dumps(best))


def ours(folder, batch, length, tokens, threads):
    file = folder / "prompts.jsonl"
    file.write_text("".join(json.dumps({"prompt": ids}) + "\n" for ids in prompts(batch, length)))
    process = subprocess.Popen(
        [BINARY, "generate", folder, "--prompts", file, "--out", folder / "out.jsonl", "--temperature", "0", "--max-tokens", str(tokens),
         "--batch", str(batch), "--threads", str(threads), "--stats"], stderr=subprocess.PIPE, text=True)
    said = process.stderr.read()
    _, status, usage = os.wait4(process.pid, 0)
    assert os.waitstatus_to_exitcode(status) == 0, said
    stats = json.loads(said.splitlines()[-1])
    assert stats["steps"] == tokens - 1 and stats["step_tokens"] == batch * (tokens - 1), stats
    rows = [json.loads(line) for line in (folder / "out.jsonl").read_text().splitlines()]
    return {"ids": [row["ids"] for row in rows], "prefill": stats["prompt_seconds"], "step": stats["step_seconds"] / stats["steps"],
            "rss": usage.ru_maxrss * 1024}


def child(*arguments):
    done = subprocess.run([sys.executable, __file__, *map(str, arguments)], capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(done.stderr[-2000:])
    return json.loads(done.stdout.splitlines()[-1])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--tokens", type=int, default=128, help="generated for each prompt")
    parser.add_argument("--prompt", type=int, default=64, help="tokens of each prompt")
    parser.add_argument("--batch", type=int, nargs="+", default=[1, 8])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--side", nargs="+", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.side:
        numbers = [int(word) for word in options.side[2:]]
        return bandwidth_side(*numbers) if options.side[0] == "bandwidth" else transformers_side(options.side[1], *numbers)

    import torch
    import transformers

    print(f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores, torch {torch.__version__}, transformers "
          f"{transformers.__version__}, {options.rounds} rounds, {options.threads} threads, prompts of {options.prompt}, "
          f"{options.tokens} tokens each")
    print("batch side           tokens/s         range  read   prefill ms         range  peak GB   bandwidth")
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        weight_bytes = make_model(folder, options.prompt + options.tokens)
        for batch in options.batch:
            results, bandwidths = {}, []
            size = (batch, options.prompt, options.tokens, options.threads)
            for _ in range(options.rounds):
                bandwidths.append(child("--side", "bandwidth", "-", options.threads))
                results.setdefault("ours", []).append(ours(folder, *size))
                results.setdefault("transformers", []).append(child("--side", "transformers", folder, *size))
                assert results["ours"][-1]["ids"] == results["transformers"][-1]["ids"], "the sides gave different tokens"
            bandwidth = statistics.median(bandwidths)
            for side, rows in results.items():
                speed, prefill = sorted(batch / row["step"] for row in rows), sorted(1e3 * row["prefill"] for row in rows)
                median = statistics.median(speed)
                print(f"{batch:>5} {side:<12} {median:>10.1f} {speed[0]:>6.1f}-{speed[-1]:<6.1f} "
                      f"{100 * median / batch * weight_bytes / bandwidth:>4.0f}% {statistics.median(prefill):>12.1f} "
                      f"{prefill[0]:>6.0f}-{prefill[-1]:<6.0f} {max(row['rss'] for row in rows) / 1e9:>8.2f}   "
                      f"{bandwidth / 1e9:.1f} GB/s", flush=True)


if __name__ == "__main__":
    main()
