"""Decoder families written from their formulas in plain torch, in any precision: the oracle of ours.

One class a family, from what makes it differ; parameters carry Hugging Face's names. In double precision everything is
double, angles of the rotation too; so this is the oracle in fp64, which `transformers` is not (its norms, angles and
losses stay in fp32). Written from the papers and model cards, and held to `transformers` in fp32 by the tests.
"""

import math

import torch
import torch.nn.functional as F


def gelu_tanh(x):
    return x / 2 * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def soft_cap(x, cap):
    return x if not cap else cap * torch.tanh(x / cap)


def rope_frequencies(width, theta, scaling, max_positions, length):
    """Frequencies and the factor of cos and sin; `scaling` as config.json says it."""
    pair = torch.arange(0, width, 2, dtype=torch.float64)
    f = theta ** (-pair / width)
    kind = (scaling or {}).get("rope_type", "default")
    if kind == "default":
        return f, 1.0
    s = scaling.get("factor", 1.0)
    if kind == "linear":
        return f / s, 1.0
    if kind == "dynamic":
        stretch = s * max(length, max_positions) / max_positions - (s - 1)
        return (theta * stretch ** (width / (width - 2))) ** (-pair / width), 1.0
    if kind == "llama3":
        trained, low, high = (scaling[k] for k in ("original_max_position_embeddings", "low_freq_factor", "high_freq_factor"))
        out = []
        for one in f.tolist():
            wave = 2 * math.pi / one
            if wave < trained / high:
                out.append(one)
            elif wave > trained / low:
                out.append(one / s)
            else:
                u = (trained / wave - low) / (high - low)
                out.append((1 - u) * one / s + u * one)
        return torch.tensor(out, dtype=torch.float64), 1.0
    if kind == "yarn":
        trained = scaling.get("original_max_position_embeddings", max_positions)
        turns = lambda r: width * math.log(trained / (2 * math.pi * r)) / (2 * math.log(theta))  # noqa: E731
        low = max(math.floor(turns(scaling.get("beta_fast", 32))), 0)
        high = min(math.ceil(turns(scaling.get("beta_slow", 1))), width - 1)
        ramp = ((torch.arange(width // 2, dtype=torch.float64) - low) / (max(high - low, 0.001))).clamp(0, 1)
        return f * (ramp / s + 1 - ramp), scaling.get("attention_factor", 0.1 * math.log(s) + 1)
    assert kind == "longrope", kind
    trained = scaling["original"]
    s = max_positions / trained
    factors = torch.tensor(scaling["long_factor" if length > trained else "short_factor"], dtype=torch.float64)
    return f / factors, math.sqrt(1 + math.log(s) / math.log(trained))


class Llama:
    """weights: {name: tensor}; config: as config.json says it. Tokens, positions and documents are [B, S]."""

    layer = "model.layers.{}."
    tokens, last_norm, norm_offset, unit = "model.embed_tokens.weight", "model.norm", 0, staticmethod(F.silu)

    def __init__(self, config, weights, dtype):
        self.c, self.dtype = config, dtype
        self.w = {name: w.to(dtype).clone().requires_grad_(True) for name, w in weights.items()}

    def parameters(self):
        return self.w

    # What families change.
    def qk_norm(self, q, k, at):
        return q, k

    def window(self, i):
        return None

    def rope(self, i, length):
        c = self.c
        return rope_frequencies(self.width(), c.get("rope_theta", 1e4), c.get("rope_scaling"), c["max_position_embeddings"],
                                length)

    def scale(self):
        return self.width() ** -0.5

    def width(self):
        return self.c.get("head_dim") or self.c["hidden_size"] // self.c["num_attention_heads"]

    def embed(self, tokens, positions):
        return self.w[self.tokens][tokens]

    # What they share.
    def norm(self, x, name):
        y = x / torch.sqrt((x * x).mean(-1, keepdim=True) + self.c["rms_norm_eps"])
        return y * (self.norm_offset + self.w[name + ".weight"])

    def linear(self, x, name):
        y = x @ self.w[name + ".weight"].T
        return y + self.w[name + ".bias"] if name + ".bias" in self.w else y

    def attend(self, q, k, v, i, positions, documents):
        """q [B, S, N, D], k and v [B, S, K, D] -> [B, S, N * D]"""
        place = torch.arange(q.shape[1])
        seen = (place[:, None] >= place[None]) & (documents[:, :, None] == documents[:, None, :])
        if self.window(i):
            seen = seen & (place[:, None] - place[None] < self.window(i))
        group = q.shape[2] // k.shape[2]
        k, v = k.repeat_interleave(group, 2), v.repeat_interleave(group, 2)
        scores = soft_cap(torch.einsum("bind,bjnd->bnij", q, k) * self.scale(), self.c.get("attn_logit_softcapping"))
        weights = scores.masked_fill(~seen[:, None], -math.inf).softmax(-1)
        return torch.einsum("bnij,bjnd->bind", weights, v).flatten(2)

    def attention(self, x, i, positions, documents):
        at, width = self.layer.format(i) + "self_attn.", self.width()
        q, k, v = (self.linear(x, f"{at}{which}_proj").unflatten(-1, (-1, width)) for which in "qkv")
        q, k = self.qk_norm(q, k, at)
        frequencies, factor = self.rope(i, x.shape[1])
        angle = positions[..., None].double() * frequencies
        cos, sin = (factor * f(angle).to(self.dtype)[:, :, None] for f in (torch.cos, torch.sin))

        def turn(t):
            a, b = t[..., : width // 2], t[..., width // 2:]
            return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)

        return self.linear(self.attend(turn(q), turn(k), v, i, positions, documents), at + "o_proj")

    def feed_forward(self, x, i):
        at = self.layer.format(i) + "mlp."
        return self.linear(self.unit(self.linear(x, at + "gate_proj")) * self.linear(x, at + "up_proj"), at + "down_proj")

    def block(self, x, i, positions, documents):
        at = self.layer.format(i)
        x = x + self.attention(self.norm(x, at + "input_layernorm"), i, positions, documents)
        return x + self.feed_forward(self.norm(x, at + "post_attention_layernorm"), i)

    def layers(self):
        return self.c["num_hidden_layers"]

    def logits(self, tokens, positions, documents):
        x = self.embed(tokens, positions)
        for i in range(self.layers()):
            x = self.block(x, i, positions, documents)
        head = "lm_head.weight" if "lm_head.weight" in self.w else self.tokens
        return soft_cap(self.norm(x, self.last_norm) @ self.w[head].T, self.c.get("final_logit_softcapping"))

    def loss(self, batch):
        """Sum of cross-entropy over the labels that are not -100, over their number."""
        z = self.logits(batch["tokens"], batch["positions"], batch["documents"]).flatten(0, 1)
        labels = batch["labels"].flatten()
        valid = labels != -100
        return (z.logsumexp(-1) - z.gather(1, labels.clamp(min=0)[:, None])[:, 0])[valid].sum() / valid.sum()


class Mistral(Llama):
    def window(self, i):
        return self.c.get("sliding_window")


class Qwen2(Llama):
    def window(self, i):
        local = self.c.get("use_sliding_window") and self.c["layer_types"][i] == "sliding_attention"
        return self.c["sliding_window"] if local else None


class Qwen3(Qwen2):
    def qk_norm(self, q, k, at):
        return self.norm(q, at + "q_norm"), self.norm(k, at + "k_norm")


class Gemma2(Llama):
    norm_offset, unit = 1, staticmethod(gelu_tanh)

    def scale(self):
        return self.c["query_pre_attn_scalar"] ** -0.5

    def window(self, i):
        return self.c["sliding_window"] if self.c["layer_types"][i] == "sliding_attention" else None

    def embed(self, tokens, positions):
        return self.w[self.tokens][tokens] * torch.tensor(math.sqrt(self.c["hidden_size"]), dtype=self.dtype)

    def block(self, x, i, positions, documents):
        at = self.layer.format(i)
        a = self.attention(self.norm(x, at + "input_layernorm"), i, positions, documents)
        x = x + self.norm(a, at + "post_attention_layernorm")
        f = self.feed_forward(self.norm(x, at + "pre_feedforward_layernorm"), i)
        return x + self.norm(f, at + "post_feedforward_layernorm")


class Gemma3(Gemma2):
    def qk_norm(self, q, k, at):
        return self.norm(q, at + "q_norm"), self.norm(k, at + "k_norm")

    def rope(self, i, length):
        if self.c["layer_types"][i] == "sliding_attention":
            return rope_frequencies(self.width(), self.c["rope_local_base_freq"], None, 0, length)
        return super().rope(i, length)


class Gpt2(Llama):
    layer, tokens, last_norm = "transformer.h.{}.", "transformer.wte.weight", "transformer.ln_f"

    def layers(self):
        return self.c["n_layer"]

    def width(self):
        return self.c["n_embd"] // self.c["n_head"]

    def embed(self, tokens, positions):
        return self.w[self.tokens][tokens] + self.w["transformer.wpe.weight"][positions.long()]

    def norm(self, x, name):
        centred = x - x.mean(-1, keepdim=True)
        y = centred / torch.sqrt((centred * centred).mean(-1, keepdim=True) + self.c["layer_norm_epsilon"])
        return y * self.w[name + ".weight"] + self.w[name + ".bias"]

    def conv(self, x, name):
        return x @ self.w[name + ".weight"] + self.w[name + ".bias"]

    def block(self, x, i, positions, documents):
        at, width = self.layer.format(i), self.width()
        q, k, v = self.conv(self.norm(x, at + "ln_1"), at + "attn.c_attn").chunk(3, -1)
        q, k, v = (t.unflatten(-1, (-1, width)) for t in (q, k, v))
        x = x + self.conv(self.attend(q, k, v, i, positions, documents), at + "attn.c_proj")
        return x + self.conv(gelu_tanh(self.conv(self.norm(x, at + "ln_2"), at + "mlp.c_fc")), at + "mlp.c_proj")


FAMILIES = {"llama": Llama, "mistral": Mistral, "qwen2": Qwen2, "qwen3": Qwen3, "gemma2": Gemma2, "gemma3_text": Gemma3,
            "gpt2": Gpt2}
