"""AdamW and a schedule, from their formulas in plain torch: the oracle of ours."""

import math

import torch


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
