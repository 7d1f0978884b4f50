from __future__ import annotations

import pytest
import torch

from engine.policy import confidence_threshold, one_per_step

NAN, INF = float("nan"), float("inf")


def _commit(confidence: list[float], open_: list[int], threshold: float | None = None) -> list[int]:
    sure, free = torch.tensor(confidence), torch.tensor(open_, dtype=torch.bool)
    if threshold is None:
        return one_per_step(sure, free).int().tolist()
    return confidence_threshold(sure, free, threshold).int().tolist()


@pytest.mark.parametrize(
    ("confidence", "open_", "expected"),
    [
        ([0.1, 0.9, 0.5], [1, 1, 1], [0, 1, 0]),
        ([0.1, 0.9, 0.5], [1, 0, 1], [0, 0, 1]),  # never a closed slot
        ([0.5, 0.5, 0.5], [1, 1, 1], [1, 0, 0]),  # a tie goes to the leftmost
        ([0.9, 0.5, 0.5], [0, 1, 1], [0, 1, 0]),
        ([0.1, 0.9], [0, 0], [0, 0]),
        ([0.3], [1], [1]),
        ([0.3], [0], [0]),
        ([NAN, 0.2], [1, 1], [0, 1]),  # unknown counts as no confidence
        ([NAN, NAN], [1, 1], [1, 0]),
        ([NAN, 0.9], [1, 0], [1, 0]),
        ([0.9, -INF], [0, 1], [0, 1]),
        ([0.0, 0.0], [0, 1], [0, 1]),
    ],
)
def test_one_per_step(confidence: list[float], open_: list[int], expected: list[int]) -> None:
    assert _commit(confidence, open_) == expected


@pytest.mark.parametrize(
    ("confidence", "open_", "threshold", "expected"),
    [
        ([0.7, 0.8, 0.2], [1, 1, 1], 0.6, [1, 1, 0]),
        ([0.7, 0.8, 0.2], [0, 1, 1], 0.6, [0, 1, 0]),
        ([0.3, 0.4, 0.2], [1, 1, 1], 0.6, [0, 1, 0]),  # none above: the best one
        ([0.6, 0.6], [1, 1], 0.6, [1, 0]),  # at the threshold is not above it
        ([0.7, 0.8], [0, 0], 0.6, [0, 0]),
        ([NAN, 0.7], [1, 1], 0.6, [0, 1]),
        ([NAN, NAN], [1, 1], 0.6, [1, 0]),
        ([0.1], [1], 0.6, [1]),
    ],
)
def test_threshold(
    confidence: list[float], open_: list[int], threshold: float, expected: list[int]
) -> None:
    assert _commit(confidence, open_, threshold) == expected


@pytest.mark.parametrize("seed", range(20))
def test_a_step_makes_progress_and_stays_inside_what_is_open(seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    sure = torch.rand(9, generator=generator)
    open_ = torch.rand(9, generator=generator) < 0.4
    for commit in (one_per_step(sure, open_), confidence_threshold(sure, open_, 0.7)):
        assert not bool((commit & ~open_).any())
        assert bool(commit.any()) == bool(open_.any())
