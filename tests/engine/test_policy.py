from __future__ import annotations

from typing import get_args

import pytest
import torch

from engine import policy
from engine.policy import POLICIES, Slots
from engine.request import PolicyName

NAN, INF = float("nan"), float("inf")


def slots(
    probability: list[float],
    open_: list[int] | None = None,
    entropy: list[float] | None = None,
    margin: list[float] | None = None,
) -> Slots:
    sure = torch.tensor(probability)
    return Slots(
        open=torch.tensor(open_ or [1] * len(probability), dtype=torch.bool),
        probability=sure,
        entropy=torch.tensor(entropy) if entropy else 1 - sure,
        margin=torch.tensor(margin) if margin else sure,
    )


def commit(name: str, given: Slots, strength: float | None = None) -> list[int]:
    rule = POLICIES[name]
    chosen = rule.select(given, rule.strength if strength is None else strength)
    assert chosen.dtype == torch.bool
    found: list[int] = chosen.int().tolist()
    return found


def test_every_name_of_a_request_is_a_policy() -> None:
    assert set(POLICIES) == set(get_args(PolicyName))


@pytest.mark.parametrize(
    ("probability", "open_", "expected"),
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
def test_one_per_step(probability: list[float], open_: list[int], expected: list[int]) -> None:
    assert commit("one_per_step", slots(probability, open_)) == expected
    assert commit("speculative", slots(probability, open_)) == expected
    assert commit("top_k", slots(probability, open_), 1) == expected


@pytest.mark.parametrize(
    ("probability", "open_", "threshold", "expected"),
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
    probability: list[float], open_: list[int], threshold: float, expected: list[int]
) -> None:
    assert commit("confidence", slots(probability, open_), threshold) == expected
    # margin is the same rule over another figure
    assert commit("margin", slots([0.5] * len(open_), open_, margin=probability), threshold) == (
        expected
    )


@pytest.mark.parametrize(
    ("probability", "open_", "k", "expected"),
    [
        ([0.1, 0.9, 0.5], [1, 1, 1], 2, [0, 1, 1]),
        ([0.1, 0.9, 0.5], [1, 0, 1], 2, [1, 0, 1]),
        ([0.1, 0.9, 0.5], [1, 1, 1], 9, [1, 1, 1]),
        ([0.5, 0.5, 0.5], [1, 1, 1], 2, [1, 1, 0]),
        ([0.5, 0.9], [1, 1], 0, [0, 1]),  # never none
        ([0.5, NAN, 0.1], [1, 1, 1], 2, [1, 0, 1]),
    ],
)
def test_top_k(probability: list[float], open_: list[int], k: int, expected: list[int]) -> None:
    assert commit("top_k", slots(probability, open_), k) == expected


@pytest.mark.parametrize(
    ("probability", "open_", "factor", "expected"),
    [
        # (n + 1)(1 - p_n) < f: 2 * 0.1, 3 * 0.2, 4 * 0.5
        ([0.9, 0.8, 0.5], [1, 1, 1], 1.0, [1, 1, 0]),
        ([0.9, 0.8, 0.5], [1, 1, 1], 0.5, [1, 0, 0]),
        ([0.9, 0.8, 0.5], [1, 1, 1], 2.5, [1, 1, 1]),
        ([0.9, 0.8, 0.5], [0, 1, 1], 1.0, [0, 1, 0]),
        ([0.1, 0.2], [1, 1], 1.0, [0, 1]),  # none holds: the best one
        ([0.0, 0.95, 0.9], [1, 1, 1], 0.3, [0, 1, 0]),  # 2 * 0.05 holds, 3 * 0.1 does not
        ([0.75, 0.75], [1, 1], 0.5, [1, 0]),  # equal is not below
        ([1.0, 1.0], [0, 0], 1.0, [0, 0]),
        ([NAN, 0.9], [1, 1], 1.0, [0, 1]),
        ([NAN], [1], 1.0, [1]),
        ([1.0], [1], 0.0, [1]),
    ],
)
def test_factor(
    probability: list[float], open_: list[int], factor: float, expected: list[int]
) -> None:
    assert commit("factor", slots(probability, open_), factor) == expected


def test_factor_takes_the_largest_number_that_holds() -> None:
    # 2 * 0.26 = 0.52 fails, 3 * 0.27 fails, but a larger n never holds where a smaller does not
    assert commit("factor", slots([0.74, 0.99, 0.73]), 0.5) == [0, 1, 0]


@pytest.mark.parametrize(
    ("entropy", "open_", "bound", "expected"),
    [
        # sums less the largest, by rising entropy: 0, 0.1, 0.1 + 0.2
        ([0.2, 0.1, 0.3], [1, 1, 1], 0.25, [1, 1, 0]),
        ([0.2, 0.1, 0.3], [1, 1, 1], 0.35, [1, 1, 1]),
        ([0.2, 0.1, 0.3], [1, 1, 1], 0.0, [0, 1, 0]),
        ([0.2, 0.1, 0.3], [1, 0, 1], 0.1, [1, 0, 0]),
        ([0.2, 0.1, 0.3], [1, 0, 1], 0.2, [1, 0, 1]),  # at the bound is within it
        ([0.0, 0.0, 0.0], [1, 1, 1], 0.0, [1, 1, 1]),  # what is certain costs nothing
        ([9.0, 9.0], [1, 1], 0.1, [1, 0]),
        ([0.1, 0.1], [0, 0], 1.0, [0, 0]),
        ([NAN, 0.4], [1, 1], 0.3, [0, 1]),
        ([NAN, NAN], [1, 1], 5.0, [1, 0]),
        ([NAN, 0.4], [1, 1], 5.0, [0, 1]),
        ([INF, 0.0], [1, 1], 5.0, [1, 1]),  # the largest itself does not count
        ([5.0], [1], 0.0, [1]),
    ],
)
def test_entropy(entropy: list[float], open_: list[int], bound: float, expected: list[int]) -> None:
    given = slots([0.5] * len(open_), open_, entropy=entropy)
    assert commit("entropy", given, bound) == expected


def test_no_slots_at_all() -> None:
    empty = torch.empty(0)
    given = Slots(open=empty.bool(), probability=empty, entropy=empty, margin=empty)
    for name in POLICIES:
        assert commit(name, given) == []


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("name", POLICIES)
def test_a_step_makes_progress_and_stays_inside_what_is_open(name: str, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    figures = torch.rand(3, 50, 9, generator=generator)
    figures[torch.rand(figures.shape, generator=generator) < 0.1] = NAN
    given = Slots(
        open=torch.rand(50, 9, generator=generator) < 0.4,
        probability=figures[0],
        entropy=figures[1] * 3,
        margin=figures[2],
    )
    strength = float(torch.rand((), generator=generator)) * 2
    chosen = POLICIES[name].select(given, strength)
    assert not bool((chosen & ~given.open).any())
    assert torch.equal(chosen.any(-1), given.open.any(-1))
    # a batch is decided row by row
    for row in range(50):
        alone = Slots(
            open=given.open[row],
            probability=given.probability[row],
            entropy=given.entropy[row],
            margin=given.margin[row],
        )
        assert torch.equal(POLICIES[name].select(alone, strength), chosen[row])


def test_leaning_left() -> None:
    given = slots([0.5, 0.6, 0.9], [1, 0, 1])
    assert policy.lean_left(given, 0.0) is given
    leaned = policy.lean_left(given, 0.7)
    # the closed slot in between is no distance
    assert torch.allclose(leaned.probability[2], torch.tensor(0.9) * torch.exp(torch.tensor(-0.7)))
    assert commit("one_per_step", given) == [0, 0, 1]
    assert commit("one_per_step", leaned) == [1, 0, 0]
    assert commit("entropy", policy.lean_left(slots([0.5, 0.5], entropy=[0.2, 0.1]), 1.0), 0) == [
        1,
        0,
    ]
    assert commit("margin", policy.lean_left(slots([0.5, 0.5], margin=[0.1, 0.9]), 50.0)) == [1, 0]


def test_drafts_come_by_falling_confidence() -> None:
    assert policy.draft_order(slots([0.1, 0.9, NAN, 0.5, 0.9])).tolist() == [1, 4, 3, 0, 2]


@pytest.mark.parametrize(
    ("drafts", "choices", "expected"),
    [
        ([[0, 5], [1, 6]], [[0, 5], [1, 6]], 2),
        ([[0, 5], [1, 6]], [[0, 5], [1, 7]], 1),
        ([[0, 5], [1, 6]], [[2, 5], [1, 6]], 0),  # another slot, and what follows does not count
    ],
)
def test_what_agrees(drafts: list[list[int]], choices: list[list[int]], expected: int) -> None:
    assert policy.agreed(torch.tensor(drafts), torch.tensor(choices)) == expected


def test_remasking_by_the_present_score() -> None:
    score, held = torch.tensor([0.05, 0.5, 0.05, NAN]), torch.tensor([1, 1, 0, 1]).bool()
    found = policy.remask_by_score(score, held, torch.zeros(4), 0.1)
    assert found.tolist() == [True, False, False, True]
    assert not bool(policy.remask_by_score(score, ~held & False, torch.zeros(4), 1.0).any())


def test_remdm_masks_the_least_sure_most_often() -> None:
    score, held = torch.tensor([0.1, 0.9, 0.1, NAN]), torch.tensor([1, 1, 0, 0]).bool()
    generator = torch.Generator().manual_seed(0)
    counts = torch.zeros(4)
    for _ in range(2000):
        counts += policy.remask_remdm(score, held, torch.rand(4, generator=generator), 0.8)
    assert counts[2] == counts[3] == 0
    assert counts[0] > 1.8 * counts[1] > 0
    assert abs(float(counts.sum()) / 2000 - 0.8) < 0.05  # on average so many of them
    assert not bool(policy.remask_remdm(score, held, torch.rand(4), 0.0).any())
    assert not bool(policy.remask_remdm(score, held & False, torch.zeros(4), 5.0).any())
