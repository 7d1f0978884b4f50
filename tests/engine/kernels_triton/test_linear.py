"""Linears over float, 8-bit and 4-bit weights, with what rides along, equal their reference."""

from __future__ import annotations

import pytest
import torch

from engine.kernels import cpu, reference_step
from engine.kernels.grouped import Grouped, Matrix
from engine.kernels.reference_step import Norm
from engine.kernels.triton.linear import linear

#: rows, inputs, outputs
SHAPES = [(1, 7, 63), (7, 100, 100), (63, 63, 7), (3, 1, 1), (100, 96, 2)]
KINDS = ["float32", "bfloat16", "int8", "int4"]
TOLERANCE = {torch.float32: 1e-5, torch.bfloat16: 2e-2}


def matrix(kind: str, outputs: int, inputs: int) -> Matrix:
    weight = torch.randn(outputs, inputs) * inputs**-0.5
    if kind.startswith("int"):
        return Grouped.quantise(weight, int(kind.removeprefix("int")))
    return weight.to(getattr(torch, kind))


def close(mine: torch.Tensor, meant: torch.Tensor) -> None:
    assert mine.dtype == meant.dtype
    tolerance = TOLERANCE[mine.dtype]
    torch.testing.assert_close(mine, meant, atol=tolerance, rtol=tolerance)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("rows", "inputs", "outputs"), SHAPES)
def test_a_product_with_bias(kind: str, rows: int, inputs: int, outputs: int) -> None:
    x, weight, bias = torch.randn(rows, inputs), matrix(kind, outputs, inputs), torch.randn(outputs)
    close(linear(x, weight, bias), reference_step.linear(x, weight, bias))


@pytest.mark.parametrize("kind", KINDS)
def test_everything_that_rides_along(kind: str) -> None:
    rows, inputs, inner = 7, 100, 63
    x, residual = torch.randn(rows, inputs), torch.randn(rows, inner)
    weight, bias = matrix(kind, 2 * inner, inputs), torch.randn(2 * inner)
    norm = Norm(weight=torch.randn(inputs), eps=1e-6)
    given = {"norm": norm, "residual": residual, "gated": True}
    close(
        linear(x, weight, bias, norm=norm, residual=residual, gated=True),
        reference_step.linear(x, weight, bias, **given),
    )


@pytest.mark.parametrize("kind", KINDS)
def test_bfloat16_rows(kind: str) -> None:
    x, weight = torch.randn(7, 100).bfloat16(), matrix(kind, 63, 100)
    close(linear(x, weight), reference_step.linear(x, weight))


def test_rows_of_a_larger_tensor() -> None:
    whole = torch.full((9, 70), float("nan"))
    whole[1:-1, 3:66] = torch.randn(7, 63)
    x, weight = whole[1:-1, 3:66], torch.randn(40, 63)
    close(linear(x, weight), reference_step.linear(x, weight))


def test_the_cpu_form_means_the_same_in_eight_bits(device: torch.device) -> None:
    with torch.device("cpu"):
        packed = cpu.pack(torch.randn(50, 70))
    weight = Grouped.of(packed)
    assert torch.equal(weight.unpack(), packed.unpack())
    weight, x = weight.to(device), torch.randn(3, 70)
    close(linear(x, weight), x @ packed.unpack().to(device).T)
