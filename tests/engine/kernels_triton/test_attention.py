"""Split attention equals its reference; nothing behind a row's visible keys counts."""

from __future__ import annotations

import pytest
import torch

from engine.kernels import reference, reference_step
from engine.kernels.triton.attention import Segment, attend, attention

#: heads, key heads, head size
HEADS = [(4, 2, 64), (3, 1, 128), (2, 2, 14)]


def rotation(rows: int, dim: int) -> tuple[torch.Tensor, torch.Tensor]:
    angles = torch.randn(rows, dim // 2)
    return angles.cos(), angles.sin()


@pytest.mark.parametrize(("heads", "kv_heads", "dim"), HEADS)
@pytest.mark.parametrize(("rows", "capacity", "turned"), [(1, 7, False), (7, 300, True)])
def test_rows_see_what_they_may(
    heads: int, kv_heads: int, dim: int, rows: int, capacity: int, turned: bool
) -> None:
    q = torch.randn(heads, rows, dim)
    keys, values = torch.randn(2, kv_heads, capacity, dim).unbind()
    visible = torch.randint(1, capacity, (rows,))
    turn = rotation(rows, dim) if turned else None
    meant = reference_step.attention(q, keys, values, visible, turn)
    most = int(visible.max())
    keys[:, most:], values[:, most:] = float("nan"), float("nan")
    mine = attention(q, keys, values, visible, turn)
    torch.testing.assert_close(mine, meant, atol=1e-5, rtol=1e-5)


def test_bfloat16_keys() -> None:
    q = torch.randn(4, 7, 64)
    keys, values = torch.randn(2, 2, 100, 64).bfloat16().unbind()
    visible = torch.arange(1, 8)
    meant = reference.attention(q, keys.float(), values.float(), visible)
    torch.testing.assert_close(attention(q, keys, values, visible), meant, atol=2e-2, rtol=2e-2)


def test_scores_of_any_size_stay_finite() -> None:
    q = torch.randn(2, 3, 64) * 1e4
    keys, values = torch.randn(2, 1, 70, 64).unbind()
    assert torch.isfinite(attention(q, keys, values, torch.full((3,), 70))).all()


def test_segments_are_one_softmax() -> None:
    """A cached prefix, and a canvas whose keys are stored as they came, in any memory order."""
    heads, kv_heads, rows, dim, length = 4, 2, 7, 64, 63
    fused = torch.randn(rows, heads + 2 * kv_heads, dim).transpose(0, 1)
    q, own_keys, own_values = fused.split((heads, kv_heads, kv_heads))
    keys, values = torch.randn(2, kv_heads, length, dim).unbind()
    turn = rotation(rows, dim)
    mine = attend(
        q,
        (
            Segment(keys=keys, values=values, visible=torch.full((rows,), length), turn=turn),
            Segment(
                keys=own_keys,
                values=own_values,
                visible=torch.full((rows,), rows),
                turn=turn,
                turn_keys=turn,
            ),
        ),
    )
    all_keys = torch.cat((keys, reference.rotate(own_keys, *turn)), dim=1)
    all_values = torch.cat((values, own_values), dim=1)
    visible = torch.full((rows,), length + rows)
    meant = reference_step.attention(q, all_keys, all_values, visible, turn)
    torch.testing.assert_close(mine, meant, atol=1e-5, rtol=1e-5)


def test_an_odd_head_size_is_refused() -> None:
    q, keys = torch.zeros(1, 1, 7), torch.zeros(1, 4, 7)
    with pytest.raises(ValueError, match="even"):
        attention(q, keys, keys, torch.ones(1, dtype=torch.int64))
