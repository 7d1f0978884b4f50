"""The compiled kernels do what `reference` says, and a row's bits depend on no other row."""

from __future__ import annotations

import threading

import pytest
import torch
from torch import Tensor

from engine.kernels import cpu, reference
from engine.kernels.packing import Packed

#: (inputs, outputs): Qwen2.5-Coder-0.5B's shapes and a slice of its head; small and odd ones.
SHAPES = [(896, 1152), (4864, 896), (896, 4001), (64, 8), (33, 7), (2, 1), (1, 100), (63, 63)]
ROWS = (1, 2, 3, 4, 5, 7, 8, 31, 32, 33)


def poisoned(rows: int, size: int) -> torch.Tensor:
    """Rows that lie in a larger tensor full of NaN, so that reading beside them shows."""
    whole = torch.full((rows + 2, size), float("nan"))
    whole[1:-1] = torch.randn(rows, size)
    return whole[1:-1]


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(7)


@pytest.mark.parametrize(("inputs", "outputs"), SHAPES)
def test_packing_equals_its_reference(inputs: int, outputs: int) -> None:
    weight = torch.randn(outputs, inputs)
    weight[0] = 0
    mine, meant = cpu.pack(weight), reference.pack(weight)
    assert torch.equal(mine.codes, meant.codes)
    assert torch.equal(mine.scales, meant.scales)
    # half a step of 1/63 of the group's largest, and what rounding the scale to 11 bits costs
    assert (mine.unpack() - weight).abs().max() <= weight.abs().max() * (0.5 / 63 + 2**-10)


@pytest.mark.parametrize("bits", [4, 5])
def test_checkpoints_of_few_bits_stay_exact(bits: int) -> None:
    """Q4_0 and Q5_0 hold codes from -2^(bits-1), the largest magnitude, in groups of 32."""
    least = -(2 ** (bits - 1))
    codes = torch.randint(least, -least, (24, 3, 32)).float()
    codes[:, :, 5] = least
    scale = (torch.rand(24, 3, 1) * 0.1 - 0.05).half().float()
    weight = (codes * scale).flatten(1)
    assert torch.equal(cpu.pack(weight).unpack(), weight)


@pytest.mark.parametrize("biased", [True, False])
@pytest.mark.parametrize(("inputs", "outputs"), SHAPES)
def test_linear_equals_its_reference(inputs: int, outputs: int, biased: bool) -> None:
    weight = cpu.pack(torch.randn(outputs, inputs) * inputs**-0.5)
    bias = torch.randn(outputs) if biased else None
    for rows in ROWS:
        x = poisoned(rows, inputs)
        assert torch.allclose(
            cpu.linear(x, weight, bias), reference.linear(x, weight, bias), atol=2e-4
        )


def test_the_largest_codes_do_not_overflow() -> None:
    """Every product at its extreme, both signs: 16-bit pair sums must not saturate."""
    for sign in (1.0, -1.0):
        weight = cpu.pack(torch.full((16, 4864), sign))
        x = torch.ones(3, 4864)
        assert torch.allclose(cpu.linear(x, weight, None), torch.full((3, 16), sign * 4864))


@pytest.mark.parametrize(("inputs", "outputs"), SHAPES)
def test_a_linear_row_has_the_same_bits_in_any_batch_and_on_any_threads(
    inputs: int, outputs: int
) -> None:
    weight = cpu.pack(torch.randn(outputs, inputs))
    x = torch.randn(33, inputs)
    x[1], x[4], x[5] = 0.0, x[4] * 1e-20, x[5] * 1e20
    try:
        cpu.set_threads(1)
        alone = torch.cat([cpu.linear(row[None], weight, None) for row in x])
        assert torch.isfinite(alone).all()
        for threads in (1, 2, 5):
            cpu.set_threads(threads)
            for rows in ROWS:
                assert torch.equal(cpu.linear(x[:rows], weight, None), alone[:rows])
                assert torch.equal(cpu.linear(x[-rows:], weight, None), alone[-rows:])
    finally:
        cpu.set_threads(None)


@pytest.mark.parametrize("size", [8, 33, 64, 896, 7])
def test_norm_and_gate_equal_their_reference(size: int) -> None:
    weight = torch.randn(size)
    for rows in ROWS:
        x = poisoned(rows, size)
        norm = cpu.rms_norm(x, weight, 1e-6)
        assert torch.allclose(norm, reference.rms_norm(x, weight, 1e-6), atol=1e-5)
        wide = poisoned(rows, 2 * size) * 20
        assert torch.allclose(cpu.swiglu(wide), reference.swiglu(wide), rtol=1e-5, atol=1e-5)
        assert torch.equal(cpu.rms_norm(x[:1], weight, 1e-6), norm[:1])
        assert torch.equal(cpu.swiglu(wide[:1]), cpu.swiglu(wide)[:1])


#: heads, key heads, head size
HEADS = [(14, 2, 64), (9, 3, 64), (4, 4, 24), (2, 1, 128), (4, 2, 8)]


@pytest.mark.parametrize(("heads", "kv_heads", "dim"), HEADS)
@pytest.mark.parametrize("start", [0, 5, 63, 300])
def test_rotation_and_attention_equal_their_reference(
    heads: int, kv_heads: int, dim: int, start: int
) -> None:
    for rows in (1, 3, 4, 9, 33):
        fused = torch.randn(rows, (heads + 2 * kv_heads) * dim)
        angles = torch.randn(rows, dim // 2)
        rotation = (angles.cos(), angles.sin())
        keys, values = torch.randn(2, kv_heads, 512, dim).unbind()
        other_keys, other_values = keys.clone(), values.clone()
        q = cpu.rope_cache(fused, rotation, keys, values, start)
        meant = reference.rope_cache(fused, rotation, other_keys, other_values, start)
        assert torch.allclose(q, meant, atol=1e-6)
        assert torch.allclose(keys, other_keys, atol=1e-6)
        assert torch.equal(values, other_values)
        # what lies behind the last row is left over from longer texts and must not count
        keys[:, start + rows :], values[:, start + rows :] = 1e4, float("nan")
        seen = torch.arange(start + 1, start + rows + 1)
        mixed = cpu.attention(q, keys, values, seen)
        assert torch.allclose(
            mixed, reference.attention(meant, other_keys, other_values, seen), atol=2e-5
        )


@pytest.mark.parametrize(("heads", "kv_heads", "dim"), HEADS)
def test_an_attention_row_has_the_same_bits_in_any_batch_and_on_any_threads(
    heads: int, kv_heads: int, dim: int
) -> None:
    rows = 21
    q = torch.randn(heads, rows, dim) * 2
    keys, values = torch.randn(2, kv_heads, 128, dim).unbind()
    # causal, block-causal, everything, and in no order
    causal = torch.arange(78, 78 + rows)
    layouts = [causal, (causal + 3) // 4 * 4, torch.full((rows,), 101), causal.flip(0)]
    try:
        for visible in layouts:
            _check_rows_alone(q, keys, values, visible)
    finally:
        cpu.set_threads(None)


def _check_rows_alone(q: Tensor, keys: Tensor, values: Tensor, visible: Tensor) -> None:
    cpu.set_threads(1)
    whole = cpu.attention(q, keys, values, visible)
    assert torch.allclose(whole, reference.attention(q, keys, values, visible), atol=2e-5)
    for threads in (1, 3):
        cpu.set_threads(threads)
        for first in range(len(visible)):
            for count in (1, 2, 5):
                part = q[:, first : first + count].contiguous()
                again = cpu.attention(part, keys, values, visible[first : first + count])
                assert torch.equal(again, whole[first : first + count])


@pytest.mark.parametrize("wrong", [0, -1, 129])
def test_a_row_must_see_some_of_the_keys_there_are(wrong: int) -> None:
    q = torch.randn(2, 3, 64)
    keys, values = torch.randn(2, 1, 128, 64).unbind()
    with pytest.raises(ValueError):
        cpu.attention(q, keys, values, torch.tensor([128, wrong, 1]))


def test_scores_of_any_size_stay_finite() -> None:
    q = torch.randn(2, 3, 64) * 1e4
    keys, values = torch.randn(2, 1, 64, 64).unbind()
    assert torch.isfinite(cpu.attention(q, keys, values, torch.tensor([21, 22, 23]))).all()


def test_two_threads_may_call_at_the_same_time() -> None:
    weight = cpu.pack(torch.randn(512, 256))
    x = torch.randn(40, 256)
    right = cpu.linear(x, weight, None)
    wrong: list[int] = []

    def work(number: int) -> None:
        for _ in range(50):
            if not torch.equal(cpu.linear(x, weight, None), right):
                wrong.append(number)

    callers = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert wrong == []


def test_parts_that_do_not_fit_are_refused() -> None:
    whole = cpu.pack(torch.randn(16, 64))
    for codes, scales, outputs in (
        (whole.codes[:1], whole.scales, 16),
        (whole.codes, whole.scales[:, :1], 16),
        (whole.codes, whole.scales.float(), 16),
        (whole.codes, whole.scales, 17),
    ):
        with pytest.raises(ValueError):
            Packed(codes=codes, scales=scales, outputs=outputs, inputs=64)


def test_some_outputs_of_a_matrix() -> None:
    whole = cpu.pack(torch.randn(50, 70))
    ids = torch.tensor([49, 0, 17, 17, 3])
    assert torch.equal(whole.rows(ids).unpack(), whole.unpack()[ids])
