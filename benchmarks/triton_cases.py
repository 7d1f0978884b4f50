"""The calls whose kernels are built ahead of time: the shapes of 0.5B and 7B bases, no data."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from engine.kernels.grouped import Grouped, Matrix
from engine.kernels.reference_step import Guess, Norm, Rule


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """Sizes of a base."""

    hidden: int
    inner: int
    heads: int
    kv_heads: int
    dim: int
    vocab: int


SMALL = Shape(hidden=896, inner=4864, heads=14, kv_heads=2, dim=64, vocab=151_936)
LARGE = Shape(hidden=3584, inner=18_944, heads=28, kv_heads=4, dim=128, vocab=152_064)
SLOTS = 16
CONTEXT = 8192
#: Dtype of the rows, kind of the weights; the first is what the engine runs.
PRODUCTS = (
    ("float32", "int8"),
    ("bfloat16", "bfloat16"),
    ("bfloat16", "int8"),
    ("bfloat16", "int4"),
)

Case = Callable[[], object]


def cases() -> dict[str, Case]:
    """Name -> a call of the public launcher."""
    found: dict[str, Case] = {}
    for dtype, kind in PRODUCTS:
        found |= _products(f"0.5B, 16 {dtype} rows, {kind}", SMALL, (dtype, kind), 16)
    for rows, shape in ((32, SMALL), (16, LARGE)):
        name = f"{'0.5B' if shape is SMALL else '7B'}, {rows} float32 rows, int8"
        found |= _products(name, shape, PRODUCTS[0], rows)
    for size, shape in (("0.5B", SMALL), ("7B", LARGE)):
        for dtype in ("float32", "bfloat16"):
            found |= _rows(f"{size}, {dtype}", shape, getattr(torch, dtype))
    return found | _commits()


def empty(*sizes: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """A tensor without data."""
    return torch.empty(sizes, dtype=dtype, device="meta")


def matrix(outputs: int, inputs: int, kind: str) -> Matrix:
    """Weights without data: float32, bfloat16, int8 or int4."""
    if kind in ("float32", "bfloat16"):
        return empty(outputs, inputs, dtype=getattr(torch, kind))
    groups = -(-inputs // 32)
    bits = int(kind.removeprefix("int"))
    codes = {
        8: lambda: empty(outputs, groups * 32, dtype=torch.int8),
        4: lambda: empty(outputs, groups * 16, dtype=torch.uint8),
    }[bits]()
    scales = empty(outputs, groups, dtype=torch.float16)
    return Grouped(codes=codes, scales=scales, inputs=inputs, bits=bits)


def _products(name: str, shape: Shape, kinds: tuple[str, str], rows: int) -> dict[str, Case]:
    from engine.kernels.triton import confidence, linear

    dtype, kind = getattr(torch, kinds[0]), kinds[1]
    norm = Norm(weight=empty(shape.hidden, dtype=dtype), eps=1e-6)
    up, down = matrix(2 * shape.inner, shape.hidden, kind), matrix(shape.hidden, shape.inner, kind)
    head, blocked = matrix(shape.vocab, shape.hidden, kind), empty(shape.vocab, dtype=torch.bool)
    x, inner = empty(rows, shape.hidden, dtype=dtype), empty(rows, shape.inner, dtype=dtype)
    is_open = empty(rows, dtype=torch.bool)
    return {
        f"{name}, gate and up": lambda: linear.linear(x, up, norm=norm, gated=True),
        f"{name}, down": lambda: linear.linear(inner, down, residual=x),
        f"{name}, head": lambda: confidence.confidence(
            x, head, is_open, norm=norm, forbidden=blocked
        ),
    }


def _rows(name: str, shape: Shape, dtype: torch.dtype) -> dict[str, Case]:
    from engine.kernels.triton import attention, enter, norm, rope_cache, swiglu

    x, weight = empty(SLOTS, shape.hidden, dtype=dtype), empty(shape.hidden, dtype=dtype)
    q = empty(shape.heads, SLOTS, shape.dim, dtype=dtype)
    fused = empty(SLOTS, (shape.heads + 2 * shape.kv_heads) * shape.dim, dtype=dtype)
    keys, values = (empty(shape.kv_heads, CONTEXT, shape.dim, dtype=dtype) for _ in range(2))
    turn = (empty(SLOTS, shape.dim // 2), empty(SLOTS, shape.dim // 2))
    own = (empty(CONTEXT, shape.dim // 2), empty(CONTEXT, shape.dim // 2))
    seen = empty(SLOTS, dtype=torch.int64)
    rotated = attention.Segment(keys=keys, values=values, visible=seen, turn=turn, turn_keys=own)
    gate_up = empty(SLOTS, 2 * shape.inner, dtype=dtype)
    ids, codes = empty(SLOTS, dtype=torch.int64), empty(shape.vocab, shape.hidden, dtype=torch.int8)
    scales = empty(shape.vocab, shape.hidden // 32, dtype=torch.float16)
    return {
        f"{name} enter": lambda: enter.enter(ids, codes, scales, weight),
        f"{name} norm": lambda: norm.rms_norm(x, weight, 1e-6),
        f"{name} add and norm": lambda: norm.add_norm(x, x, weight, 1e-6),
        f"{name} swiglu": lambda: swiglu.swiglu(gate_up),
        f"{name} rope, cache": lambda: rope_cache.rope_cache(fused, turn, keys, values, 5),
        f"{name} attention": lambda: attention.attention(q, keys, values, seen),
        f"{name} attention, rotating": lambda: attention.attend(q, (rotated,)),
    }


def _commits() -> dict[str, Case]:
    from engine.kernels.triton import commit

    tokens, second = empty(2, 64, dtype=torch.int64)
    sure, probability, entropy, margin = empty(4, 64)
    guess = Guess(
        token=tokens, second=second, probability=probability, entropy=entropy, margin=margin
    )
    progress = empty(2, dtype=torch.int32)
    return {
        f"64 slots {name}": lambda name=name: commit.commit(
            tokens, sure, guess, Rule(name=name, strength=0.9), progress
        )
        for name in commit.RULES
        if name != "speculative"
    }
