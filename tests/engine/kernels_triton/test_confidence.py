"""Best tokens and their figures equal the reference's, ties included, closed slots left out."""

from __future__ import annotations

from dataclasses import fields

import pytest
import torch

from engine.kernels import reference_step
from engine.kernels.grouped import Grouped, Matrix
from engine.kernels.reference_step import Guess, Norm
from engine.kernels.triton import confidence as module
from engine.kernels.triton.confidence import confidence


def close(mine: Guess, meant: Guess) -> None:
    for field in fields(Guess):
        a, b = getattr(mine, field.name), getattr(meant, field.name)
        torch.testing.assert_close(a, b, atol=1e-4, rtol=1e-4, msg=field.name)


def head(kind: str, vocab: int, hidden: int) -> Matrix:
    weight = torch.randn(vocab, hidden)
    if kind.startswith("int"):
        return Grouped.quantise(weight, int(kind.removeprefix("int")))
    return weight.to(getattr(torch, kind))


@pytest.mark.parametrize("kind", ["float32", "bfloat16", "int8", "int4"])
@pytest.mark.parametrize(("rows", "hidden", "vocab"), [(1, 63, 7), (7, 32, 2501)])
def test_best_tokens(kind: str, rows: int, hidden: int, vocab: int) -> None:
    x, weight = torch.randn(rows, hidden), head(kind, vocab, hidden)
    forbidden = torch.rand(vocab) < 0.3
    open_ = torch.rand(rows) < 0.6
    open_[0] = True
    norm = Norm(weight=torch.randn(hidden), eps=1e-6)
    names = torch.randperm(10 * vocab)[:vocab]
    mine = confidence(
        x, weight, open_, norm=norm, temperature=0.7, forbidden=forbidden, names=names
    )
    meant = reference_step.confidence(
        x, weight, open_, norm=norm, temperature=0.7, forbidden=forbidden, names=names
    )
    close(mine, meant)
    assert bool((mine.token[~open_] == -1).all())


def test_a_large_vocabulary() -> None:
    """151,936 entries, ties across shares: the same row stands at both ends of the head."""
    weight, x = torch.randn(151_936, 16), torch.randn(7, 16)
    weight[[40, 90_000, 151_900]] = 3 * x[2]
    open_ = torch.ones(7, dtype=torch.bool)
    mine = confidence(x, weight, open_)
    close(mine, reference_step.confidence(x, weight, open_))
    assert (int(mine.token[2]), int(mine.second[2])) == (40, 90_000)


@pytest.mark.parametrize("tile", [32])
def test_ties_go_to_the_lower_row_within_and_across_tiles(
    tile: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_TILE", tile)
    monkeypatch.setattr(module, "PROGRAMS", 1)
    vocab = 100  # in four tiles
    weight = torch.zeros(vocab, 16)
    open_ = torch.ones(5, dtype=torch.bool)
    mine = confidence(torch.randn(5, 16), weight, open_)
    assert mine.token.tolist() == [0] * 5
    assert mine.second.tolist() == [1] * 5
    assert torch.allclose(mine.entropy, torch.full((5,), vocab).float().log(), atol=1e-5)
    assert torch.allclose(mine.margin, torch.zeros(5))
    # the second best may stand before the best
    weight[70, 0], weight[3, 0], weight[71, 0] = 2.0, 1.0, 1.0
    x = torch.zeros(5, 16)
    x[:, 0] = 1.0
    found = confidence(x, weight, open_)
    assert found.token.tolist() == [70] * 5 and found.second.tolist() == [3] * 5
    close(found, reference_step.confidence(x, weight, open_))


@pytest.mark.parametrize("closed", ["all", "none", "all but one"])
def test_any_number_of_open_slots(closed: str) -> None:
    open_ = torch.full((33,), closed == "none")
    open_[20] = closed != "all"
    x, weight = torch.randn(33, 32), torch.randn(63, 32)
    x[~open_] = float("nan")  # what a closed slot holds does not matter
    mine = confidence(x, weight, open_)
    close(mine, reference_step.confidence(x.nan_to_num(), weight, open_))


def test_hardly_anything_allowed() -> None:
    x, weight, open_ = torch.randn(3, 16), torch.randn(40, 16), torch.ones(3, dtype=torch.bool)
    for allowed in ([], [17], [3, 17]):
        forbidden = torch.ones(40, dtype=torch.bool)
        forbidden[allowed] = False
        mine = confidence(x, weight, open_, forbidden=forbidden)
        close(mine, reference_step.confidence(x, weight, open_, forbidden=forbidden))
        assert set(mine.token.tolist()) <= {*allowed, -1}
