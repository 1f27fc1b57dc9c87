"""The PyTorch side of the benches: a Llama as a good PyTorch user writes it, with fused attention, norms and AdamW."""

import math

import torch
import torch.nn as nn
import torch.nn.functional as F

HUGGING_FACE_NAMES = {"norm1": "input_layernorm", "norm2": "post_attention_layernorm", "q": "self_attn.q_proj",
                      "k": "self_attn.k_proj", "v": "self_attn.v_proj", "o": "self_attn.o_proj", "gate": "mlp.gate_proj",
                      "up": "mlp.up_proj", "down": "mlp.down_proj"}


def rope(x, cos, sin):
    x1, x2 = x.chunk(2, -1)
    return x * cos + torch.cat([-x2, x1], -1) * sin


class Norm(nn.Module):
    def __init__(self, hidden):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(hidden))

    def forward(self, x):
        return F.rms_norm(x, self.weight.shape, self.weight, 1e-5)


class Layer(nn.Module):
    def __init__(self, hidden, heads, kv_heads, ffn):
        super().__init__()
        self.head_dim = hidden // heads
        linear = lambda i, o: nn.Linear(i, o, bias=False)  # noqa: E731
        self.norm1, self.norm2 = Norm(hidden), Norm(hidden)
        self.q, self.k = linear(hidden, hidden), linear(hidden, kv_heads * self.head_dim)
        self.v, self.o = linear(hidden, kv_heads * self.head_dim), linear(hidden, hidden)
        self.gate, self.up, self.down = linear(hidden, ffn), linear(hidden, ffn), linear(ffn, hidden)

    def forward(self, x, cos, sin, mask):
        y = self.norm1(x)
        heads = lambda t: t.view(*x.shape[:2], -1, self.head_dim).transpose(1, 2)  # noqa: E731
        q, k, v = rope(heads(self.q(y)), cos, sin), rope(heads(self.k(y)), cos, sin), heads(self.v(y))
        a = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=mask is None, enable_gqa=True)
        x = x + self.o(a.transpose(1, 2).reshape(x.shape))
        y = self.norm2(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class Decoder(nn.Module):
    """A tied Llama; the loss is the mean over labels that are not -100."""

    def __init__(self, hidden, layers, heads, kv_heads, ffn, vocab, sequence):
        super().__init__()
        self.embedding, self.norm = nn.Embedding(vocab, hidden), Norm(hidden)
        self.layers = nn.ModuleList(Layer(hidden, heads, kv_heads, ffn) for _ in range(layers))
        width = hidden // heads
        angle = torch.outer(torch.arange(sequence).float(), 1e4 ** (-torch.arange(0, width, 2) / width))
        angle = torch.cat([angle, angle], -1)
        self.register_buffer("cos", angle.cos())
        self.register_buffer("sin", angle.sin())
        for p in self.parameters():
            if p.dim() == 2:
                nn.init.normal_(p, 0, 0.02)

    def load_hugging_face(self, weights):
        own = {"embedding.weight": weights.pop("model.embed_tokens.weight"), "norm.weight": weights.pop("model.norm.weight")}
        for i in range(len(self.layers)):
            for name, theirs in HUGGING_FACE_NAMES.items():
                own[f"layers.{i}.{name}.weight"] = weights.pop(f"model.layers.{i}.{theirs}.weight")
        assert not weights, f"unknown to the peer: {sorted(weights)}"
        self.load_state_dict({**own, "cos": self.cos, "sin": self.sin})

    def hugging_face(self):
        own = self.state_dict()
        out = {"model.embed_tokens.weight": own["embedding.weight"], "model.norm.weight": own["norm.weight"]}
        for i in range(len(self.layers)):
            for name, theirs in HUGGING_FACE_NAMES.items():
                out[f"model.layers.{i}.{theirs}.weight"] = own[f"layers.{i}.{name}.weight"]
        return out

    def forward(self, tokens, labels, positions=None, documents=None):
        """Without `documents` all of a row is one text; with them, attention stays within each."""
        cos, sin, mask = self.cos, self.sin, None
        if documents is not None:
            cos, sin = self.cos[positions].unsqueeze(1), self.sin[positions].unsqueeze(1)
            same = documents.unsqueeze(-1) == documents.unsqueeze(-2)
            mask = same.tril().unsqueeze(1)
        x = self.embedding(tokens)
        for layer in self.layers:
            x = layer(x, cos, sin, mask)
        logits = F.linear(self.norm(x), self.embedding.weight)
        return F.cross_entropy(logits.view(-1, logits.shape[-1]), labels.view(-1))


def adamw(model, lr, weight_decay, betas):
    decayed = [p for p in model.parameters() if p.dim() == 2]
    plain = [p for p in model.parameters() if p.dim() == 1]
    return torch.optim.AdamW([{"params": decayed, "weight_decay": weight_decay}, {"params": plain, "weight_decay": 0}],
                             lr=lr, betas=betas, fused=True)


def cosine(fraction, warmup, peak, min_ratio):
    """Learning rate after a fraction of the training: a linear rise, then half a cosine down to min_ratio of the peak."""
    if fraction < warmup:
        return peak * fraction / warmup
    low = peak * min_ratio
    return low + (peak - low) * (1 + math.cos(math.pi * (fraction - warmup) / (1 - warmup))) / 2
