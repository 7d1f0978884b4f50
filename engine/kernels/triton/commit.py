"""The policy and the write into the canvas, on the device: one program, all slots at once.

With the rank of an open slot the number of open slots that stand before it (a higher score, or an
equal one further left), a policy commits: top_k rank < k; confidence p > strength; margin likewise;
factor rank < n for the largest n with (n + 1) (1 - p_n) < strength; entropy while the entropies
that stand before it sum to at most strength. Never none; in the last step all.
"""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from engine.kernels.reference_step import Guess, Rule

#: The policies of `engine.policy`; `speculative` chooses as one_per_step does.
RULES = {
    "one_per_step": 0,
    "speculative": 0,
    "top_k": 1,
    "confidence": 2,
    "factor": 3,
    "entropy": 4,
    "margin": 5,
}


@triton.jit
def _commit(
    tokens,
    sure,
    guessed,
    probability,
    entropy,
    margin,
    progress,
    slots,
    strength,
    RULE: tl.constexpr,
    BLOCK: tl.constexpr,
):
    slot = tl.arange(0, BLOCK)
    inside = slot < slots
    token = tl.load(tokens + slot, mask=inside, other=0)
    guess = tl.load(guessed + slot, mask=inside, other=-1)
    chance = tl.load(probability + slot, mask=inside, other=0.0)
    done = tl.load(progress) != 0
    left = tl.load(progress + 1)
    is_open = inside & (token == -1) & (guess != -1)
    if RULE == 4:
        score = -tl.load(entropy + slot, mask=inside, other=0.0)
    elif RULE == 5:
        score = tl.load(margin + slot, mask=inside, other=0.0)
    else:
        score = chance
    known = score == score
    score = tl.where(known, score, -3.4028234663852886e38)  # not a number: no confidence
    score = tl.where(is_open, score, float("-inf"))
    # before[i, j]: slot j stands before slot i
    mine, theirs = score[:, None], score[None, :]
    ahead = (theirs > mine) | ((theirs == mine) & (slot[None, :] < slot[:, None]))
    before = ahead & is_open[None, :]
    rank = tl.sum(before.to(tl.int32), axis=1)
    if RULE == 0:
        chosen = rank < 1
    elif RULE == 1:
        chosen = rank < strength
    elif RULE == 3:
        holds = is_open & ((rank + 2) * (1.0 - score) < strength)
        chosen = rank < tl.max(tl.where(holds, rank + 1, 0), axis=0)
    elif RULE == 4:
        ahead_nats = tl.sum(tl.where(before & known[None, :], -theirs, 0.0), axis=1)
        chosen = known & (ahead_nats <= strength)
    else:
        chosen = score > strength
    last = left <= 1
    chosen = is_open & ((chosen | (rank == 0)) | last)
    write = chosen & (done == 0)
    tl.store(tokens + slot, guess, mask=write)
    tl.store(sure + slot, chance, mask=write)
    remain = tl.sum((is_open & (chosen == 0)).to(tl.int32), axis=0)
    finished = done | last | (remain == 0)
    # every slot is read before the flags change
    tl.debug_barrier()
    tl.store(progress, finished.to(tl.int32))
    tl.store(progress + 1, tl.where(done, left, left - 1))


def commit(tokens: Tensor, sure: Tensor, guess: Guess, rule: Rule, progress: Tensor) -> None:
    """See `reference_step.commit`; at most 256 slots, all contiguous."""
    (slots,) = tokens.shape
    if slots > 256:
        raise ValueError(f"{slots} slots; one program commits at most 256")
    strength = int(rule.strength) if rule.name == "top_k" else rule.strength
    _commit[(1,)](
        tokens,
        sure,
        guess.token,
        guess.probability,
        guess.entropy,
        guess.margin,
        progress,
        slots,
        float(strength),
        RULE=RULES[rule.name],
        BLOCK=max(16, triton.next_power_of_2(slots)),
        num_warps=4,
    )
