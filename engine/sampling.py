"""From logits to one token per slot, with what the policies want to know about it.

Pure tensor functions; knows nothing of holes or canvases. What may be written is decided before
the choice, never after it: a forbidden token is no candidate and has no share of the probability.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

_COLDEST = 1e-4  # below this, dividing by the temperature overflows
_SEED_MASK = 2**63 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampled:
    """One token for each of k rows: token [k] int64; its probability among the allowed, the
    entropy (nats) and the top-2 margin of the distribution, each [k] float32."""

    token: Tensor
    probability: Tensor
    entropy: Tensor
    margin: Tensor


def sample(logits: Tensor, allowed: Tensor, temperature: float, noise: Tensor | None) -> Sampled:
    """logits [k, V] float32, allowed [k, V] bool with at least one True per row -> a token per row.

    `noise` [k, V] is Gumbel noise, for a temperature above 0 (the Gumbel-max form of sampling).
    A logit that is not a number is the least likely of the allowed ones; even where all are, the
    token is an allowed one.
    """
    floor = torch.finfo(logits.dtype).min / 4
    known = logits.nan_to_num(nan=floor, neginf=floor, posinf=-floor).clamp(floor, -floor)
    scores = known.masked_fill(~allowed, float("-inf"))
    if temperature > 0:
        top = scores.amax(-1, keepdim=True)
        scores = ((scores - top) / max(temperature, _COLDEST)).clamp_min(floor)
        scores = scores.masked_fill(~allowed, float("-inf"))
    log_probability = scores.log_softmax(-1)
    probability = log_probability.exp()
    chosen = scores if noise is None or temperature <= 0 else scores + noise
    token = chosen.argmax(-1)
    top2 = probability.topk(min(2, probability.shape[-1]), dim=-1).values
    second = top2[:, 1] if top2.shape[-1] > 1 else torch.zeros_like(top2[:, 0])
    return Sampled(
        token=token,
        probability=probability.gather(-1, token[:, None])[:, 0],
        # 0 log 0 is 0
        entropy=-(probability * log_probability.clamp_min(floor)).sum(-1),
        margin=top2[:, 0] - second,
    )


def gumbel(slots: list[int], vocab: int, seed: int, turn: int) -> Tensor:
    """[k, vocab] float32 of Gumbel noise; a slot's depends only on (seed, turn, slot)."""
    rows = [uniform(vocab, seed, turn * 4_099 + slot + 1) for slot in slots]
    drawn = torch.stack(rows) if rows else torch.empty(0, vocab)
    return -(-drawn.clamp_(1e-20, 1 - 1e-7).log()).log()


def uniform(count: int, seed: int, turn: int) -> Tensor:
    """`count` numbers in [0, 1) that depend only on (seed, turn)."""
    generator = torch.Generator().manual_seed((seed * 65_537 + turn) & _SEED_MASK)
    return torch.rand(count, generator=generator)
