"""From hidden states of the open slots to their best tokens, without logits in memory.

l = norm(h) W^T / temperature; p = softmax(l). Each program takes a share of the vocabulary and
keeps, tile by tile (online softmax), m = max l, s = sum exp(l - m), u = sum (l - m) exp(l - m) and
the two best tokens; a second kernel joins the shares. probability = 1 / s, entropy = ln s - u / s,
margin = (1 - exp(l_2 - m)) / s. Ties go to the lower id.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from engine.kernels.grouped import Matrix
from engine.kernels.reference_step import MASKED, Guess, Norm
from engine.kernels.triton.tiles import INTERPRETED, PROGRAMS, REGISTERS, Operand, product

_MOST_SHARES = 512
_TILE = 2048 if INTERPRETED else 64  # tokens of the vocabulary at a time
_FIGURES = 4  # m, s, u, and the logit of the second


@triton.jit
def _best(logits, ids, NONE: tl.constexpr):
    """The largest of each row [M, N] and the lowest id that has it; NONE where all are -inf."""
    top = tl.max(logits, axis=1)
    candidates = tl.where(logits == top[:, None], ids, NONE)
    return top, tl.where(top == float("-inf"), NONE, tl.min(candidates, axis=1))


@triton.jit
def _scan(
    hidden,
    weight,
    scales,
    norm,
    open_slots,
    forbidden,
    figures,
    ids,
    rows,
    size,
    vocab,
    share,
    h_stride,
    w_stride,
    s_stride,
    eps,
    inverse,
    BITS: tl.constexpr,
    M: tl.constexpr,
    TILE: tl.constexpr,
    BLOCK_K: tl.constexpr,
    NONE: tl.constexpr,
):
    row = tl.program_id(1).to(tl.int64) * M + tl.arange(0, M)
    on = row < rows
    on = on & (tl.load(open_slots + row, mask=on, other=0) != 0)
    peak = tl.full((M,), float("-inf"), tl.float32)
    total = tl.zeros((M,), tl.float32)
    moment = tl.zeros((M,), tl.float32)
    next_best = tl.full((M,), float("-inf"), tl.float32)
    first_id = tl.full((M,), NONE, tl.int32)
    second_id = tl.full((M,), NONE, tl.int32)
    begin = tl.program_id(0) * share
    # a tile of closed slots only reads nothing
    end = tl.where(tl.sum(on.to(tl.int32), axis=0) > 0, tl.minimum(begin + share, vocab), begin)
    for start in range(begin, end, TILE):
        token = start + tl.arange(0, TILE)
        there = token < end
        column = token.to(tl.int64)[None, :]
        s_rows = scales
        if BITS < 16:
            s_rows = scales + column * s_stride
        x_rows, w_rows = hidden + row[:, None] * h_stride, weight + column * w_stride
        logits, squares = product(
            x_rows, on, norm, w_rows, s_rows, there, size, M, TILE, BITS, BLOCK_K
        )
        if norm is not None:
            logits *= tl.rsqrt(squares / size + eps)[:, None]
        allowed = there
        if forbidden is not None:
            allowed = allowed & (tl.load(forbidden + token, mask=there, other=1) == 0)
        logits = tl.where(on[:, None] & allowed[None, :], logits * inverse, float("-inf"))
        top, top_id = _best(logits, token[None, :], NONE)
        rest = tl.where(token[None, :] == top_id[:, None], float("-inf"), logits)
        after, after_id = _best(rest, token[None, :], NONE)
        higher = tl.maximum(peak, top)
        base = tl.where(higher == float("-inf"), 0.0, higher)
        shift = tl.where(peak == float("-inf"), 0.0, peak - base)
        shrink = tl.where(peak == float("-inf"), 0.0, tl.exp(shift))
        away = tl.where(logits == float("-inf"), 0.0, logits - base[:, None])
        part = tl.where(logits == float("-inf"), 0.0, tl.exp(away))
        moment = (moment + shift * total) * shrink + tl.sum(away * part, axis=1)
        total = total * shrink + tl.sum(part, axis=1)
        wins = top > peak  # an equal one has a higher id
        lower, lower_id = tl.where(wins, peak, top), tl.where(wins, first_id, top_id)
        better, better_id = tl.where(wins, after, next_best), tl.where(wins, after_id, second_id)
        keeps = (better > lower) | ((better == lower) & (better_id < lower_id))
        next_best, second_id = tl.where(keeps, better, lower), tl.where(keeps, better_id, lower_id)
        peak, first_id = higher, tl.where(wins, top_id, first_id)
    at = tl.program_id(0).to(tl.int64) * rows + row
    inside = row < rows
    tl.store(figures + at * 4, peak, mask=inside)
    tl.store(figures + at * 4 + 1, total, mask=inside)
    tl.store(figures + at * 4 + 2, moment, mask=inside)
    tl.store(figures + at * 4 + 3, next_best, mask=inside)
    tl.store(ids + at * 2, first_id, mask=inside)
    tl.store(ids + at * 2 + 1, second_id, mask=inside)


@triton.jit
def _join(
    figures,
    ids,
    names,
    token,
    second,
    probability,
    entropy,
    margin,
    shares,
    rows,
    SHARES: tl.constexpr,
    NONE: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    share = tl.arange(0, SHARES)
    there = share < shares
    at = share.to(tl.int64) * rows + row
    tops = tl.load(figures + at * 4, mask=there, other=float("-inf"))
    totals = tl.load(figures + at * 4 + 1, mask=there, other=0.0)
    moments = tl.load(figures + at * 4 + 2, mask=there, other=0.0)
    afters = tl.load(figures + at * 4 + 3, mask=there, other=float("-inf"))
    top_ids = tl.load(ids + at * 2, mask=there, other=NONE)
    after_ids = tl.load(ids + at * 2 + 1, mask=there, other=NONE)
    peak = tl.max(tops, axis=0)
    some = peak > float("-inf")
    first_id = tl.min(tl.where(tops == peak, top_ids, NONE), axis=0)
    others = tl.where(top_ids == first_id, float("-inf"), tops)
    after = tl.maximum(tl.max(others, axis=0), tl.max(afters, axis=0))
    near = tl.where((others == after) & (others > float("-inf")), top_ids, NONE)
    far = tl.where((afters == after) & (afters > float("-inf")), after_ids, NONE)
    second_id = tl.minimum(tl.min(near, axis=0), tl.min(far, axis=0))
    shift = tl.where(tops == float("-inf"), 0.0, tops - peak)
    shrink = tl.where(tops == float("-inf"), 0.0, tl.exp(shift))
    total = tl.where(some, tl.sum(totals * shrink, axis=0), 1.0)
    moment = tl.sum((moments + shift * totals) * shrink, axis=0)
    distance = tl.where(after == float("-inf"), 1.0, 1.0 - tl.exp(after - peak))
    two = second_id != NONE
    first_name, second_name = first_id.to(tl.int64), second_id.to(tl.int64)
    if names is not None:
        first_name = tl.load(names + first_id, mask=some, other=0)
        second_name = tl.load(names + second_id, mask=two, other=0)
    tl.store(token + row, tl.where(some, first_name, -1))
    tl.store(second + row, tl.where(two, second_name, -1))
    tl.store(probability + row, tl.where(some, 1.0 / total, 0.0))
    tl.store(entropy + row, tl.where(some, tl.log(total) - moment / total, 0.0))
    tl.store(margin + row, tl.where(some, distance / total, 0.0))


def confidence(
    hidden: Tensor,
    weight: Matrix,
    open_: Tensor,
    *,
    norm: Norm | None = None,
    temperature: float = 1.0,
    forbidden: Tensor | None = None,
    names: Tensor | None = None,
) -> Guess:
    """See `reference_step.confidence`; rows contiguous."""
    assert MASKED == -1  # as the second kernel writes it
    side = Operand.of(weight)
    rows, size = hidden.shape
    vocab, device = side.codes.shape[0], hidden.device
    none = 2**31 - 1
    most_rows = 16 if hidden.dtype == torch.float32 else 32
    m = min(most_rows, max(16, triton.next_power_of_2(rows)))
    blocks = triton.cdiv(rows, m)
    most = min(_MOST_SHARES, max(1, PROGRAMS // blocks))
    share = triton.cdiv(triton.cdiv(vocab, _TILE), most) * _TILE
    shares = triton.cdiv(vocab, share)
    figures = torch.empty((shares, rows, _FIGURES), dtype=torch.float32, device=device)
    ids = torch.empty((shares, rows, 2), dtype=torch.int32, device=device)
    _scan[(shares, blocks)](
        hidden,
        side.codes,
        side.scales,
        None if norm is None else norm.weight,
        open_,
        forbidden,
        figures,
        ids,
        rows,
        size,
        vocab,
        share,
        hidden.stride(0),
        side.stride,
        side.scale_stride,
        0.0 if norm is None else norm.eps,
        1.0 / temperature,
        BITS=side.bits,
        M=m,
        TILE=_TILE,
        BLOCK_K=32 if hidden.dtype == torch.float32 else 64,
        NONE=none,
        num_warps=4,
        num_stages=3,
        maxnreg=REGISTERS,
    )
    tokens = torch.empty((2, rows), dtype=torch.int64, device=device)
    told = torch.empty((3, rows), dtype=torch.float32, device=device)
    _join[(rows,)](
        figures,
        ids,
        names,
        *tokens,
        *told,
        shares,
        rows,
        SHARES=triton.next_power_of_2(shares),
        NONE=none,
        num_warps=4,
    )
    return Guess(
        token=tokens[0], second=tokens[1], probability=told[0], entropy=told[1], margin=told[2]
    )
