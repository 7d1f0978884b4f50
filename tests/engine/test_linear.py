"""A row's result has the same bits whoever its neighbours are, and is near float32's."""

from __future__ import annotations

import pytest
import torch

from engine.kernels import cpu, reference
from engine.model.linear import FloatLinear, PackedLinear

#: (input, output): Qwen2.5-Coder-0.5B's four linears and a slice of its head; small odd ones.
SHAPES = [(896, 1152), (896, 896), (896, 9728), (4864, 896), (896, 4001), (16, 8), (33, 7), (2, 1)]
NEIGHBOURS = (2, 3, 7, 8, 16, 17, 31, 32)


def layer(inputs: int, outputs: int, *, bias: bool = True) -> tuple[PackedLinear, FloatLinear]:
    torch.manual_seed(inputs * outputs)
    weight = torch.randn(outputs, inputs) * inputs**-0.5
    offset = torch.randn(outputs) if bias else None
    return PackedLinear(cpu.pack(weight), offset), FloatLinear(weight, offset)


def five_bit_layer(inputs: int, outputs: int) -> tuple[PackedLinear, FloatLinear]:
    """A layer whose weights are what a Q5_0 checkpoint holds."""
    torch.manual_seed(inputs + outputs)
    codes = torch.randint(-16, 16, (outputs, -(-inputs // 32), 32)).float()
    codes[:, :, 0] = -16
    codes[0, 0] = 0
    scales = (torch.randn(outputs, codes.shape[1], 1) * 0.01).half().float()
    weight = (codes * scales).flatten(1)[:, :inputs].contiguous()
    packed = cpu.pack(weight)
    assert packed.bits == 5
    assert torch.equal(packed.unpack(), weight)
    return PackedLinear(packed), FloatLinear(weight)


def awkward_rows(inputs: int) -> torch.Tensor:
    """32 rows: usual ones, zeros, tiny, huge, one spike, and equal entries."""
    rows = torch.randn(32, inputs)
    rows[1] = 0.0
    rows[4] *= 1e-20
    rows[5] *= 1e20
    rows[9, 0] = 3e4
    rows[13] = 1.0
    rows[14] = -7.5
    rows[21] *= 1e-3
    rows[30] *= 1e3
    return rows


@pytest.mark.parametrize(("inputs", "outputs"), SHAPES)
def test_a_row_has_the_same_bits_alone_and_among_others(inputs: int, outputs: int) -> None:
    linear, _ = layer(inputs, outputs)
    x = awkward_rows(inputs)
    alone = torch.cat([linear(row[None]) for row in x])
    assert torch.isfinite(alone).all()
    for count in NEIGHBOURS:
        assert torch.equal(linear(x[:count]), alone[:count]), count
        assert torch.equal(linear(x[-count:]), alone[-count:]), count
    order = torch.randperm(32)
    assert torch.equal(linear(x[order]), alone[order])


@pytest.mark.parametrize(("inputs", "outputs"), [(896, 1152), (4864, 40), (33, 7), (32, 8)])
def test_five_bits_are_exact_and_rows_alone_have_the_same_bits(inputs: int, outputs: int) -> None:
    linear, exact = five_bit_layer(inputs, outputs)
    x = awkward_rows(inputs)
    alone = torch.cat([linear(row[None]) for row in x])
    for count in NEIGHBOURS:
        assert torch.equal(linear(x[:count]), alone[:count]), count
        assert torch.equal(linear(x[-count:]), alone[-count:]), count
    row_step = x.abs().amax(1, keepdim=True) / 254
    worst = row_step * exact.weight.abs().sum(1) + 1e-5 * (exact(x).abs() + 1)
    assert ((alone - exact(x)).abs() <= worst).all()
    ids = torch.tensor([outputs - 1, 0, 5, 5])
    assert torch.equal(linear.rows(ids)(x), alone[:, ids])


def test_both_kernels_pack_five_bits_alike() -> None:
    _, layer = five_bit_layer(896, 43)
    mine, meant = cpu.pack(layer.weight), reference.pack(layer.weight)
    assert torch.equal(mine.codes, meant.codes)
    assert torch.equal(mine.scales, meant.scales)
    nearly = layer.weight.clone()
    nearly[3, 100] *= 1.01  # one weight that five bits do not hold
    assert cpu.pack(nearly).bits == 7


@pytest.mark.parametrize("level", range(1, cpu.widest_level()))
@pytest.mark.parametrize(("inputs", "outputs"), SHAPES)
def test_every_width_gives_the_same_bits(inputs: int, outputs: int, level: int) -> None:
    x = awkward_rows(inputs)
    for packed in (layer(inputs, outputs)[0], five_bit_layer(inputs, outputs)[0]):
        for rows in (1, 2, 3, 4, 5, 6, 7, 8, 9, 17, 32):
            narrow = cpu.linear(x[:rows], packed.weight, None, level)
            assert torch.equal(narrow, cpu.linear(x[:rows], packed.weight, None)), rows


def test_plain_code_is_the_same_but_for_rounding() -> None:
    for packed in (layer(896, 43)[0], five_bit_layer(33, 7)[0]):
        x = torch.randn(9, packed.weight.inputs)
        plain = cpu.linear(x, packed.weight, None, 0)
        assert torch.allclose(plain, cpu.linear(x, packed.weight, None), atol=1e-5, rtol=1e-4)


def test_memory_layout_changes_nothing() -> None:
    linear, _ = layer(64, 48)
    wide = torch.randn(8, 128)
    left = wide[:, :64]
    assert not left.is_contiguous()
    assert torch.equal(linear(left), linear(left.contiguous()))


@pytest.mark.parametrize(("inputs", "outputs"), SHAPES)
def test_the_difference_from_float32_is_bounded(inputs: int, outputs: int) -> None:
    linear, reference = layer(inputs, outputs)
    x = awkward_rows(inputs)
    assert reference.bias is not None
    # half a step of weight (1/126) and the scale's own rounding, half a step of activation (1/254),
    # of the largest in the row instead of the group, all the same way
    weight_step = reference.weight.abs().amax(1) * (0.5 / 63 + 2**-10)
    row_step = x.abs().amax(1, keepdim=True) / 254
    worst = x.abs().sum(1, keepdim=True) * weight_step
    worst = worst + row_step * (reference.weight.abs().sum(1) + inputs * weight_step)
    difference = (linear(x) - reference(x)).abs()
    scale = 1e-5 * (reference(x).abs() + 1)
    assert (difference <= worst + scale).all()


def test_usual_rows_lose_little() -> None:
    linear, reference = layer(896, 896, bias=False)
    x = torch.randn(32, 896)
    exact = reference(x)
    assert (linear(x) - exact).norm() < 0.015 * exact.norm()


def test_a_row_of_zeros_gives_the_bias() -> None:
    linear, reference = layer(64, 48)
    assert reference.bias is not None
    assert torch.equal(linear(torch.zeros(1, 64))[0], reference.bias)


@pytest.mark.parametrize("bias", [True, False])
def test_some_rows_of_a_layer_give_the_same_numbers(bias: bool) -> None:
    linear, reference = layer(896, 600, bias=bias)
    x, ids = torch.randn(5, 896), torch.tensor([599, 0, 17, 17, 3])
    assert torch.equal(linear.rows(ids)(x), linear(x)[:, ids])
    assert torch.allclose(reference.rows(ids)(x), reference(x)[:, ids], atol=1e-5)


def test_input_is_not_changed() -> None:
    linear, _ = layer(64, 48)
    x = awkward_rows(64)
    before = x.clone()
    linear(x)
    assert torch.equal(x, before)
