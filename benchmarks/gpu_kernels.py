"""The Triton kernels against torch's own operators on the same data, for `benchmarks.kernels`.

A case is one kernel at one shape: what it means, what torch would run instead, and the bytes that
have to move. Knows how to check and time cases; `benchmarks.kernels` decides when.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from benchmarks.report import BenchmarkError, ratio
from benchmarks.triton_cases import LARGE, SMALL, Shape
from engine.kernels import reference, reference_step
from engine.kernels.grouped import Grouped
from engine.kernels.reference_step import Guess, Norm, Rule

SHAPES = {"0.5B": SMALL, "7B": LARGE}
ROWS, CONTEXT = 16, 8192
TOLERANCE = 2e-2  # rows of bfloat16
_WARM, _REPEATS = 10, 50
_CEILING_BYTES = 1 << 32

Run = Callable[[], object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """`ours` and `meant` give tensors to compare, `eager` is what torch would run; `bytes` is the
    least that has to be moved."""

    name: str
    ours: Callable[[], Tensor]
    meant: Callable[[], Tensor]
    eager: Run
    bytes: int


def check(case: Case) -> None:
    """Raises BenchmarkError when the kernel computes something else than its reference."""
    mine, meant = case.ours().float(), case.meant().float()
    worst = float((mine - meant).abs().max() / meant.abs().max())
    if not worst <= TOLERANCE:
        raise BenchmarkError(
            f"{case.name} is off its reference by {worst:.1e}: no time is reported"
        )


def figures(case: Case, time_ms: Callable[[Run], float], ceiling_gb_s: float) -> dict[str, object]:
    """One line: milliseconds, bytes, share of the measured bandwidth, ratio to torch."""
    ours, eager = time_ms(case.ours), time_ms(case.eager)
    return {
        "benchmark": "kernels",
        "kernel": case.name,
        "ms": round(ours, 4),
        "bytes": case.bytes,
        "share_of_ceiling": ratio(case.bytes / ours / 1e6, ceiling_gb_s),
        "eager_ms": round(eager, 4),
        "eager_over_ours": ratio(eager, ours, 2),
    }


def cuda_ms(run: Run) -> float:
    """Mean milliseconds of a run on the device, launches queued ahead, caches cold."""
    flush = torch.empty(1 << 28, dtype=torch.uint8, device="cuda")
    spent = 0.0
    for n in range(_WARM + _REPEATS):
        flush.zero_()  # more than any cache holds
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        run()
        end.record()
        if n >= _WARM:
            end.synchronize()
            spent += begin.elapsed_time(end)
    return spent / _REPEATS


def ceiling_gb_s() -> float:
    """The bandwidth of a large copy, both ways counted."""
    large = torch.empty(_CEILING_BYTES, dtype=torch.uint8, device="cuda")
    other = torch.empty_like(large)
    return 2 * large.nbytes / cuda_ms(lambda: other.copy_(large)) / 1e6


def cases(shape: Shape, size: str, context: int = CONTEXT) -> Iterator[Case]:
    """Every kernel at one shape, on torch's default device."""
    yield from _products(shape, size)
    yield from _rows(shape, size)
    yield _attention(shape, size, context)
    yield _commit(size)


def _products(shape: Shape, size: str) -> Iterator[Case]:
    from engine.kernels.triton.confidence import confidence
    from engine.kernels.triton.linear import linear

    x = torch.randn(ROWS, shape.hidden).bfloat16()
    norm = Norm(weight=torch.ones(shape.hidden).bfloat16(), eps=1e-6)
    dense = (torch.randn(2 * shape.inner, shape.hidden) * shape.hidden**-0.5).bfloat16()
    for bits in (8, 4):
        weight = Grouped.quantise(dense, bits)
        yield Case(
            name=f"{size} norm, gate, up, silu: int{bits}",
            ours=lambda w=weight: linear(x, w, norm=norm, gated=True),
            meant=lambda w=weight: reference_step.linear(x, w, norm=norm, gated=True),
            eager=lambda: reference.swiglu(
                F.linear(reference.rms_norm(x, norm.weight, 1e-6), dense)
            ),
            bytes=weight.nbytes,
        )
    head = torch.randn(shape.vocab, shape.hidden).bfloat16()
    open_ = torch.ones(ROWS, dtype=torch.bool)
    yield Case(
        name=f"{size} confidence: bfloat16",
        ours=lambda: confidence(x, head, open_).probability,
        meant=lambda: reference_step.confidence(x, head, open_).probability,
        eager=lambda: _eager_confidence(F.linear(x, head)),
        bytes=head.nbytes,
    )


def _eager_confidence(logits: Tensor) -> object:
    """What a loop over materialised logits computes."""
    share = logits.float().softmax(dim=-1)
    return share.topk(2), -(share * share.clamp_min(1e-30).log()).sum(dim=-1)


def _rows(shape: Shape, size: str) -> Iterator[Case]:
    from engine.kernels.triton.norm import add_norm
    from engine.kernels.triton.rope_cache import rope_cache
    from engine.kernels.triton.swiglu import swiglu

    x, residual = torch.randn(2, ROWS, shape.hidden).bfloat16().unbind()
    weight = torch.ones(shape.hidden).bfloat16()
    yield Case(
        name=f"{size} residual and norm",
        ours=lambda: add_norm(x, residual, weight, 1e-6)[1],
        meant=lambda: reference_step.add_norm(x, residual, weight, 1e-6)[1],
        eager=lambda: reference_step.add_norm(x, residual, weight, 1e-6),
        bytes=4 * x.nbytes,
    )
    gate_up = torch.randn(ROWS, 2 * shape.inner).bfloat16()
    yield Case(
        name=f"{size} swiglu",
        ours=lambda: swiglu(gate_up),
        meant=lambda: reference.swiglu(gate_up),
        eager=lambda: reference.swiglu(gate_up),
        bytes=gate_up.nbytes * 3 // 2,
    )
    fused = torch.randn(ROWS, (shape.heads + 2 * shape.kv_heads) * shape.dim).bfloat16()
    angles = torch.randn(ROWS, shape.dim // 2)
    turn = (angles.cos(), angles.sin())
    keys, values = torch.zeros(2, shape.kv_heads, 64, shape.dim).bfloat16().unbind()
    yield Case(
        name=f"{size} rotation and cache",
        ours=lambda: rope_cache(fused, turn, keys, values, 16),
        meant=lambda: reference.rope_cache(fused, turn, keys, values, 16),
        eager=lambda: reference.rope_cache(fused, turn, keys, values, 16),
        bytes=2 * fused.nbytes,
    )


def _attention(shape: Shape, size: str, context: int) -> Case:
    from engine.kernels.triton.attention import attention

    q = torch.randn(shape.heads, ROWS, shape.dim).bfloat16()
    keys, values = torch.randn(2, shape.kv_heads, context, shape.dim).bfloat16().unbind()
    visible = torch.full((ROWS,), context)
    return Case(
        name=f"{size} attention over {context}",
        ours=lambda: attention(q, keys, values, visible),
        meant=lambda: reference.attention(q.float(), keys.float(), values.float(), visible),
        eager=lambda: F.scaled_dot_product_attention(
            q[None], keys[None], values[None], enable_gqa=True
        ),
        bytes=keys.nbytes + values.nbytes,
    )


def _commit(size: str) -> Case:
    from engine.kernels.triton.commit import commit

    slots = 64
    share = torch.rand(slots)
    token = torch.arange(slots)
    guess = Guess(token=token, second=token, probability=share, entropy=share, margin=share)
    rule = Rule(name="confidence", strength=0.5)

    def run(kernel: Callable[[Tensor, Tensor, Guess, Rule, Tensor], None]) -> Tensor:
        tokens, progress = torch.full((slots,), -1), torch.tensor([0, 4], dtype=torch.int32)
        kernel(tokens, torch.ones(slots), guess, rule, progress)
        return tokens

    return Case(
        name=f"{size} commit, {slots} slots",
        ours=lambda: run(commit),
        meant=lambda: run(reference_step.commit),
        eager=lambda: run(reference_step.commit),
        bytes=slots * 28,
    )
