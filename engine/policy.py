"""Which slots commit at a denoising step, and which are masked again: pure tensor functions.

Every policy is `(slots, strength) -> commit [..., R] bool`; what `strength` means is the policy's
own. Never a closed slot; at least one open slot unless none is open; ties go to the leftmost; what
is not a number counts as no confidence at all. Knows no tokens, no models, no canvas.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

_NEVER = float("-inf")


@dataclass(frozen=True, slots=True, kw_only=True)
class Slots:
    """What a step knows of R slots, each tensor [..., R].

    `open` bool; `probability` float32 of the token that would be written; `entropy` float32 in nats
    of the slot's distribution; `margin` float32 between its two most probable tokens.
    """

    open: Tensor
    probability: Tensor
    entropy: Tensor
    margin: Tensor

    @classmethod
    def of_confidence(cls, probability: Tensor, open_: Tensor) -> Slots:
        """Slots of which only the best token's probability is known."""
        unknown = torch.full_like(probability, float("nan"))
        return cls(open=open_, probability=probability, entropy=unknown, margin=unknown)


Select = Callable[[Slots, float], Tensor]
Remask = Callable[[Tensor, Tensor, Tensor, float], Tensor]


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """A rule and the strength it has unless the request says otherwise."""

    select: Select
    strength: float


def one_per_step(slots: Slots, strength: float = 0.0) -> Tensor:
    """The most confident open slot: the reference (LLaDA, arXiv 2502.09992). `strength` unused."""
    return top_k(slots, 1.0)


def top_k(slots: Slots, strength: float) -> Tensor:
    """The `strength` most confident open slots (LLaDA with fewer steps than slots)."""
    order = _falling(slots.probability, slots.open)
    return _first(order, torch.tensor(int(strength)), slots.open)


def confidence_threshold(slots: Slots, strength: float) -> Tensor:
    """Every open slot above probability `strength` (Fast-dLLM, arXiv 2505.22618)."""
    above = slots.open & (slots.probability.nan_to_num(0.0) > strength)
    return _at_least_one(above, slots.probability, slots.open)


def factor_rule(slots: Slots, strength: float) -> Tensor:
    """The n most confident for the largest n with (n + 1)(1 - n-th confidence) < `strength`.

    Where each slot errs by at most that much, the joint choice equals the one-by-one choice
    (Fast-dLLM, arXiv 2505.22618, theorem 1 and "factor-based" decoding).
    """
    order = _falling(slots.probability, slots.open)
    sure = _known(slots.probability, slots.open).gather(-1, order)
    count = torch.arange(1, sure.shape[-1] + 1, device=sure.device)
    # rises with n: as many hold as the largest n that does
    holds = (count + 1) * (1 - sure) < strength
    return _first(order, holds.sum(-1), slots.open)


def entropy_bound(slots: Slots, strength: float) -> Tensor:
    """The most slots, by rising entropy, whose entropies less the largest sum to `strength` nats.

    That sum bounds what is lost by choosing them independently (EB-Sampler, arXiv 2505.24857).
    """
    order = _falling(-slots.entropy, slots.open)
    rising = slots.entropy.gather(-1, order)
    # rising: what stands before a slot is the sum up to it less the largest
    before = torch.cat((torch.zeros_like(rising[..., :1]), rising.cumsum(-1)[..., :-1]), dim=-1)
    holds = (before[..., : rising.shape[-1]] <= strength) & ~rising.isnan()
    return _first(order, holds.cumprod(-1).sum(-1), slots.open)


def margin_threshold(slots: Slots, strength: float) -> Tensor:
    """Every open slot whose margin exceeds `strength`, or the one with the largest.

    The probability margin ranks slots better than confidence where two tokens compete (top-K
    probability margin, arXiv 2502.06768).
    """
    above = slots.open & (slots.margin.nan_to_num(0.0) > strength)
    return _at_least_one(above, slots.margin, slots.open)


def lean_left(slots: Slots, bias: float) -> Slots:
    """Slots whose certainty falls by exp(-bias) for each open slot to their left.

    Position-aware confidence (PC-Sampler, arXiv 2508.13021): 0 changes nothing, a large bias fills
    from left to right.
    """
    if not bias:
        return slots
    ahead = slots.open.cumsum(-1) - slots.open.long()
    weight = torch.exp(-bias * ahead)
    return replace(
        slots,
        probability=slots.probability * weight,
        margin=slots.margin * weight,
        entropy=slots.entropy + bias * ahead,
    )


def draft_order(slots: Slots) -> Tensor:
    """Indices of the slots in the order in which one per step would fill them if nothing changed:
    open ones by falling confidence, then the closed ones (SSD, arXiv 2510.04147)."""
    return _falling(slots.probability, slots.open)


def agreed(drafts: Tensor, choices: Tensor) -> int:
    """How many leading rows of drafts [K, 2] are what the model chose one by one, choices [K, 2].

    Rows are (slot, token); both int64. The verification of SSD: what agrees is exactly what one
    per step writes.
    """
    same = (drafts == choices).all(-1)
    return int(same.long().cumprod(0).sum())


def remask_remdm(score: Tensor, committed: Tensor, noise: Tensor, strength: float) -> Tensor:
    """Committed slots to mask again, on average `strength` of them, the least sure most often.

    score [R]: the probability each had when it was written; committed [R] bool; noise [R] uniform
    in [0, 1). ReMDM with its confidence schedule (arXiv 2503.00307).
    """
    doubt = (-score.nan_to_num(0.0)).masked_fill(~committed, _NEVER)
    share = doubt.softmax(-1).nan_to_num(0.0)
    return committed & (noise < strength * share)


def remask_by_score(score: Tensor, committed: Tensor, noise: Tensor, strength: float) -> Tensor:
    """Committed slots whose token the model now finds less probable than `strength`.

    score [R]: the probability that this step's forward gives each slot's own token (self-planning,
    P2, arXiv 2502.03540; for the canvas family it is the base's own causal score). `noise` unused.
    """
    return committed & (score.nan_to_num(0.0) < strength)


#: Names in a request -> rules. `speculative` selects like `one_per_step`; it differs in how many
#: canvases a round of the loop scores, which is its strength.
POLICIES: dict[str, Policy] = {
    "one_per_step": Policy(select=one_per_step, strength=0.0),
    "confidence": Policy(select=confidence_threshold, strength=0.9),
    "factor": Policy(select=factor_rule, strength=1.0),
    "entropy": Policy(select=entropy_bound, strength=0.1),
    "margin": Policy(select=margin_threshold, strength=0.5),
    "top_k": Policy(select=top_k, strength=2.0),
    "speculative": Policy(select=one_per_step, strength=4.0),
}


def _known(score: Tensor, open_: Tensor) -> Tensor:
    """Scores with an unknown one below every other and a closed slot's below that."""
    lowest = torch.finfo(score.dtype).min
    return score.nan_to_num(nan=lowest, neginf=lowest).masked_fill(~open_, _NEVER)


def _falling(score: Tensor, open_: Tensor) -> Tensor:
    """Indices [..., R] of the slots by falling score, closed ones last, ties from the left."""
    return _known(score, open_).argsort(dim=-1, descending=True, stable=True)


def _first(order: Tensor, count: Tensor, open_: Tensor) -> Tensor:
    """The first `count` [...] slots of an order [..., R], at least one, as far as they are open.

    A count for all of a batch may have no dimension."""
    places = torch.arange(order.shape[-1], device=order.device).expand_as(order)
    rank = torch.empty_like(order).scatter_(-1, order, places)
    return open_ & (rank < count.to(order.device).clamp_min(1)[..., None])


def _at_least_one(above: Tensor, score: Tensor, open_: Tensor) -> Tensor:
    order = _falling(score, open_)
    best = _first(order, torch.tensor(1), open_)
    return torch.where(above.any(-1, keepdim=True), above, best)
