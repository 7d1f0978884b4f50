"""Norm, gate, rotation, cache and the entry of a canvas equal their reference."""

from __future__ import annotations

import pytest
import torch

from engine.kernels import reference, reference_step
from engine.kernels.triton.enter import enter
from engine.kernels.triton.norm import add_norm, rms_norm
from engine.kernels.triton.rope_cache import rope_cache
from engine.kernels.triton.swiglu import swiglu

TOLERANCE = {torch.float32: 1e-5, torch.bfloat16: 2e-2}


def close(mine: torch.Tensor, meant: torch.Tensor) -> None:
    tolerance = TOLERANCE[mine.dtype]
    torch.testing.assert_close(mine.float(), meant.float(), atol=tolerance, rtol=tolerance)


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize(("rows", "size"), [(1, 7), (7, 63), (3, 1100)])
def test_norm_and_gate(dtype: torch.dtype, rows: int, size: int) -> None:
    x, residual = torch.randn(2, rows, size).to(dtype).unbind()
    weight = torch.randn(size).to(dtype)
    close(rms_norm(x, weight, 1e-6), reference.rms_norm(x.float(), weight.float(), 1e-6))
    found = add_norm(x, residual, weight, 1e-6)
    for mine, meant in zip(found, reference_step.add_norm(x, residual, weight, 1e-6), strict=True):
        close(mine, meant)
    gate_up = (torch.randn(rows, 2 * size) * 20).to(dtype)
    close(swiglu(gate_up), reference.swiglu(gate_up.float()))


@pytest.mark.parametrize(("heads", "kv_heads", "dim"), [(4, 2, 64), (3, 1, 128), (2, 2, 14)])
@pytest.mark.parametrize("start", [0, 63])
def test_rotation_and_cache(heads: int, kv_heads: int, dim: int, start: int) -> None:
    rows = 7
    fused = torch.randn(rows, (heads + 2 * kv_heads) * dim)
    angles = torch.randn(rows, dim // 2)
    rotation = (angles.cos(), angles.sin())
    keys, values = torch.randn(2, kv_heads, 100, dim).unbind()
    other_keys, other_values = keys.clone(), values.clone()
    q = rope_cache(fused, rotation, keys, values, start)
    close(q, reference.rope_cache(fused, rotation, other_keys, other_values, start))
    close(keys, other_keys)
    assert torch.equal(values, other_values)


def test_rows_that_do_not_fit_are_refused() -> None:
    keys, values = torch.zeros(2, 1, 8, 4).unbind()
    rotation = (torch.zeros(2, 2), torch.zeros(2, 2))
    with pytest.raises(ValueError, match="do not fit"):
        rope_cache(torch.zeros(2, 12), rotation, keys, values, 7)


@pytest.mark.parametrize("scaled", [True, False])
def test_the_entry_of_a_canvas(scaled: bool) -> None:
    size, groups = 96, 3
    tokens = torch.tensor([5, -1, 0, -1, 9, 5, -1])
    weight = torch.randn(10, size)
    scales = torch.rand(10, groups).half() + 0.1 if scaled else None
    weight = (weight * 20).to(torch.int8) if scaled else weight
    mask = torch.randn(size)
    close(enter(tokens, weight, scales, mask), reference_step.enter(tokens, weight, scales, mask))
