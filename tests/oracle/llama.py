"""Llama written from its formulas in plain torch, in any precision: the oracle of ours.

Parameters carry Hugging Face's names. In double precision everything is double, the angles of the rotation too; so this
is the oracle in fp64, which `transformers` is not (its norms, angles and loss stay in fp32).
"""

import math

import torch
import torch.nn.functional as F


def rotate(x, cos, sin):
    half = x.shape[-1] // 2
    x1, x2 = x[..., :half], x[..., half:]
    return torch.cat([x1 * cos - x2 * sin, x2 * cos + x1 * sin], -1)


class Llama:
    """weights: {name: tensor}; config: as config.json says it. Call with tokens, positions, documents, each [B, S]."""

    def __init__(self, config, weights, dtype):
        self.c = config
        self.dtype = dtype
        self.w = {name: w.to(dtype).clone().requires_grad_(True) for name, w in weights.items()}

    def parameters(self):
        return self.w

    def norm(self, x, name):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.c["rms_norm_eps"]) * self.w[name]

    def attention(self, x, at, cos, sin, mask):
        c = self.c
        heads, kv_heads, width = c["num_attention_heads"], c["num_key_value_heads"], c["head_dim"]
        batch, sequence, _ = x.shape

        def project(which, n):
            return F.linear(x, self.w[f"{at}{which}_proj.weight"]).view(batch, sequence, n, width).transpose(1, 2)

        q, k, v = project("q", heads), project("k", kv_heads), project("v", kv_heads)
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        k, v = (t.repeat_interleave(heads // kv_heads, 1) for t in (k, v))
        scores = (q @ k.transpose(-1, -2) / math.sqrt(width)).masked_fill(~mask, -math.inf)
        out = (scores.softmax(-1) @ v).transpose(1, 2).reshape(batch, sequence, heads * width)
        return F.linear(out, self.w[f"{at}o_proj.weight"])

    def logits(self, tokens, positions, documents):
        c = self.c
        frequency = c["rope_theta"] ** (-torch.arange(0, c["head_dim"], 2, dtype=torch.float64) / c["head_dim"])
        angle = positions.to(torch.float64)[..., None] * frequency  # [B, S, D / 2]
        cos, sin = (f(angle).to(self.dtype)[:, None] for f in (torch.cos, torch.sin))
        place = torch.arange(tokens.shape[1])
        mask = (place[:, None] >= place[None]) & (documents[:, :, None] == documents[:, None, :])
        x = self.w["model.embed_tokens.weight"][tokens]
        for i in range(c["num_hidden_layers"]):
            at = f"model.layers.{i}."
            x = x + self.attention(self.norm(x, at + "input_layernorm.weight"), at + "self_attn.", cos, sin, mask[:, None])
            y = self.norm(x, at + "post_attention_layernorm.weight")
            gated = F.silu(F.linear(y, self.w[at + "mlp.gate_proj.weight"])) * F.linear(y, self.w[at + "mlp.up_proj.weight"])
            x = x + F.linear(gated, self.w[at + "mlp.down_proj.weight"])
        head = "model.embed_tokens.weight" if c["tie_word_embeddings"] else "lm_head.weight"
        return F.linear(self.norm(x, "model.norm.weight"), self.w[head])

    def loss(self, batch):
        """Sum of cross-entropy over the labels that are not -100, over their number."""
        logits = self.logits(batch["tokens"], batch["positions"], batch["documents"])
        total = F.cross_entropy(logits.flatten(0, 1), batch["labels"].flatten(), ignore_index=-100, reduction="sum")
        return total / (batch["labels"] != -100).sum()


class AdamW:
    """Loshchilov and Hutter's, with decay of matrices only and eps behind the bias-corrected root; clips first."""

    def __init__(self, parameters, betas, eps, weight_decay, clip):
        self.p, self.betas, self.eps, self.decay, self.clip = parameters, betas, eps, weight_decay, clip
        self.m = {n: torch.zeros_like(p) for n, p in parameters.items()}
        self.v = {n: torch.zeros_like(p) for n, p in parameters.items()}
        self.t = 0

    @torch.no_grad()
    def step(self, lr):
        self.t += 1
        b1, b2 = self.betas
        norm = math.sqrt(sum(p.grad.double().pow(2).sum().item() for p in self.p.values()))
        scale = min(1.0, self.clip / (norm + 1e-6)) if self.clip > 0 else 1.0
        for name, p in self.p.items():
            g, m, v = p.grad * scale, self.m[name], self.v[name]
            m.mul_(b1).add_(g, alpha=1 - b1)
            v.mul_(b2).addcmul_(g, g, value=1 - b2)
            p.mul_(1 - lr * (self.decay if p.dim() > 1 else 0.0))
            p.sub_(lr * (m / (1 - b1**self.t)) / ((v / (1 - b2**self.t)).sqrt() + self.eps))
            p.grad = None
        return norm


def learning_rate(step, peak, warmup, steps, min_ratio):
    """Linear rise, then half a cosine from the peak down to min_ratio of it; steps count from 1."""
    if step <= warmup:
        return peak * step / warmup
    r = (step - warmup) / (steps - warmup)
    low = peak * min_ratio
    return low + (peak - low) * (1 + math.cos(math.pi * r)) / 2
