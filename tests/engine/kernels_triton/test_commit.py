"""Every policy on the device commits what `engine.policy` says, in place."""

from __future__ import annotations

import pytest
import torch

from engine.kernels import reference_step
from engine.kernels.reference_step import MASKED, Guess, Rule
from engine.kernels.triton.commit import RULES, commit
from engine.policy import POLICIES

STRENGTHS = (0.0, 0.1, 0.5, 1.0, 2.7)


def guesses(slots: int) -> Guess:
    """Coarse figures, so that ties happen; some slots have no allowed token."""

    def coarse() -> torch.Tensor:
        return (torch.rand(slots) * 8).round() / 8

    return Guess(
        token=torch.randint(-1, 20, (slots,)),
        second=torch.randint(-1, 20, (slots,)),
        probability=coarse(),
        entropy=coarse(),
        margin=coarse(),
    )


def both(tokens: torch.Tensor, guess: Guess, rule: Rule, progress: list[int]) -> torch.Tensor:
    """The canvas after the kernel, which the reference must have made the same."""
    canvases = []
    for run in (commit, reference_step.commit):
        state = (tokens.clone(), torch.ones(len(tokens)), torch.tensor(progress).int())
        run(*state[:2], guess, rule, state[2])
        canvases.append(state)
    for mine, meant in zip(*canvases, strict=True):
        torch.testing.assert_close(mine, meant, equal_nan=True)
    return canvases[0][0]


def test_every_policy_is_there() -> None:
    assert set(RULES) == set(POLICIES)


@pytest.mark.parametrize("name", RULES)
@pytest.mark.parametrize("slots", [1, 7, 63])
def test_what_is_committed(name: str, slots: int) -> None:
    for strength in STRENGTHS:
        tokens = torch.where(torch.rand(slots) < 0.6, MASKED, 5)
        both(tokens, guesses(slots), Rule(name=name, strength=strength), [0, 4])


@pytest.mark.parametrize("name", RULES)
def test_what_is_not_a_number_is_no_confidence(name: str) -> None:
    guess = guesses(7)
    for figures in (guess.probability, guess.entropy, guess.margin):
        figures[:] = float("nan")
        figures[4] = 0.25
    guess.token[:] = 9
    after = both(torch.full((7,), MASKED), guess, Rule(name=name, strength=0.5), [0, 4])
    assert after[4] == 9


def test_the_last_step_closes_all_and_a_done_canvas_stays() -> None:
    guess, rule = guesses(7), Rule(name="one_per_step", strength=0.0)
    guess.token[:] = 9
    blank = torch.full((7,), MASKED)
    assert both(blank, guess, rule, [0, 1]).tolist() == [9] * 7
    assert both(blank, guess, rule, [1, 3]).tolist() == [MASKED] * 7
    assert both(torch.full((7,), 3), guess, rule, [0, 3]).tolist() == [3] * 7


def test_too_many_slots_are_refused() -> None:
    rule, progress = Rule(name="top_k", strength=1.0), torch.tensor([0, 1]).int()
    with pytest.raises(ValueError, match="at most 256"):
        commit(torch.zeros(257, dtype=torch.int64), torch.ones(257), guesses(257), rule, progress)
