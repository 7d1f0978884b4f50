from __future__ import annotations

from pathlib import Path

import pytest
import torch

from engine.canvas import MASKED, Draft
from engine.drafting import Acceptance, Costs, Drafter, Experience, Unfinished
from engine.engine import Engine
from engine.lookup import MAX_RUN, Lookup, Remembered
from tests.engine.tiny_denoiser import ROWS, tiny_engine


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Engine:
    return tiny_engine(Path(tmp_path_factory.mktemp("tiny")))


@pytest.fixture
def experience() -> Experience:
    return Experience(acceptance=Acceptance(()), costs=Costs())


def _drafter(engine: Engine, experience: Experience, *, denoiser: bool = True) -> Drafter:
    stream = engine.runner.base.new_stream()
    with torch.inference_mode():
        engine.runner.base.encode(engine.tokenizer.encode("def f(x):\n    return "), stream)
    return Drafter(
        engine.runner.denoiser if denoiser else None,
        engine.runner.base.embedding,
        stream,
        None,
        experience,
    )


def _drafts(*confidence: float) -> list[Draft]:
    return [Draft(token_id=5, source="lookup", confidence=c) for c in confidence]


def test_no_slots_when_none_pays(engine: Engine, experience: Experience) -> None:
    drafter = _drafter(engine, experience)
    assert drafter._paying(_drafts(0.01, 0.01)) == ()
    assert drafter._paying([]) == ()


def test_surer_drafts_make_more_slots(engine: Engine, experience: Experience) -> None:
    drafter = _drafter(engine, experience)
    counts = [len(drafter._paying(_drafts(*[c] * 7))) for c in (0.02, 0.2, 0.4, 0.7, 0.95)]
    assert counts == sorted(counts)
    assert (counts[0], counts[-1]) == (0, 7)
    assert 0 < counts[1] < 7


def test_a_doubtful_draft_ends_the_run(engine: Engine, experience: Experience) -> None:
    drafter = _drafter(engine, experience)
    assert len(drafter._paying(_drafts(0.9, 0.9, 0.0, 0.9))) == 2


def test_the_denoiser_is_asked_when_it_gains_more_than_it_costs(engine: Engine) -> None:
    good = Experience(acceptance=Acceptance((0.8, 0.7)), costs=Costs())
    assert good.acceptance.gained == pytest.approx(0.8 + 0.56)
    proposal = _drafter(engine, good).propose(Lookup([], frozenset()), 40, 20)
    assert proposal.steps == 1
    dear = Experience(acceptance=Acceptance((0.8, 0.7)), costs=Costs(step_ms=500))
    assert _drafter(engine, dear).propose(Lookup([], frozenset()), 40, 20).steps == 0


def test_an_unprofitable_denoiser_is_tried_again_now_and_then(
    engine: Engine, experience: Experience
) -> None:
    drafter = _drafter(engine, experience)
    asked = [drafter.propose(Lookup([], frozenset()), 40, 20).steps for _ in range(48)]
    assert sum(asked) == 4


def test_without_a_denoiser_only_look_up_drafts(engine: Engine, experience: Experience) -> None:
    drafter = _drafter(engine, experience, denoiser=False)
    lookup = Lookup([1, 2, 3, 4, 5, 6, 1, 2, 3], frozenset())
    proposal = drafter.propose(lookup, 3, 20)
    assert [d.token_id for d in proposal.drafts] == [4, 5, 6, 1, 2, 3][: len(proposal.drafts)]
    assert proposal.drafts
    assert proposal.match == 3
    assert drafter.propose(Lookup([1], frozenset()), 1, 20).drafts == ()
    assert drafter.denoise([1], 5, 4, 0.6).drafts == ()


@pytest.mark.parametrize("room", [0, 1, 2, 3, 50])
def test_never_more_drafts_than_there_is_room(engine: Engine, room: int) -> None:
    sure = Experience(acceptance=Acceptance((1.0,) * 5), costs=Costs())
    drafter = _drafter(engine, sure)
    repeated = Lookup([1, 2, 3, 4, 5, 6, 7, 8] * 3, frozenset())
    assert len(drafter.propose(repeated, 8, room).drafts) <= room
    slots = drafter.denoise([40], room, 3, 0.5).drafts
    assert len(slots) == min(room, ROWS - 1)


@pytest.mark.parametrize("steps", [1, 2, 5, 9])
@pytest.mark.parametrize("threshold", [0.0, 0.6, 1.0])
def test_denoising_closes_every_slot(
    engine: Engine, experience: Experience, steps: int, threshold: float
) -> None:
    assert engine.runner.denoiser is not None
    drafter = _drafter(engine, experience)
    filled = drafter.denoise([40], 20, steps, threshold)
    shortlist = set(engine.runner.denoiser.shortlist.tolist())
    assert [d.source for d in filled.drafts] == ["denoiser"] * (ROWS - 1)
    assert all(d.token_id in shortlist and 0 < d.confidence <= 1 for d in filled.drafts)
    assert filled.steps == {0.0: 1, 1.0: min(steps, ROWS - 1)}.get(threshold, filled.steps)
    assert 1 <= filled.steps <= steps


def test_visible_slots_stay_and_are_seen(engine: Engine, experience: Experience) -> None:
    drafter = _drafter(engine, experience)
    blank = drafter.denoise([40, MASKED, MASKED], 5, 1, 1.0).drafts
    shown = drafter.denoise([40, MASKED, 77], 5, 1, 1.0).drafts
    assert (shown[1].token_id, shown[1].confidence) == (77, 1.0)
    assert [d.confidence for d in shown[2:]] != [d.confidence for d in blank[2:]]
    assert shown[0].confidence != blank[0].confidence  # to its left, too


def test_costs_follow_measurements() -> None:
    costs = Costs(one_row_ms=40, step_ms=5)
    for _ in range(300):
        costs.saw_forward(8, 100.0)
        costs.saw_step(2.0)
    assert costs.forward(8) == pytest.approx(100, rel=0.01)
    assert costs.step_ms == pytest.approx(2, rel=0.01)
    assert costs.forward(1) < costs.forward(8) < costs.forward(32) == costs.forward(500)


def test_costs_learn_what_more_rows_cost() -> None:
    costs = Costs(one_row_ms=40, step_ms=5)
    for _ in range(200):
        costs.saw_forward(1, 20.0)
        costs.saw_forward(5, 60.0)
    assert costs.forward(1) == pytest.approx(20, rel=0.02)
    assert costs.forward(3) == pytest.approx(40, rel=0.02)
    for _ in range(200):  # a machine on which rows are free
        costs.saw_forward(1, 30.0)
        costs.saw_forward(8, 29.0)
    assert costs.forward(8) == pytest.approx(costs.forward(1), rel=0.02)


def test_costs_hardly_notice_an_outlier() -> None:
    costs = Costs(one_row_ms=40, step_ms=5)
    costs.saw_forward(1, 60_000.0)
    costs.saw_step(60_000.0)
    assert costs.forward(1) < 45
    assert costs.step_ms < 6


def test_acceptance_follows_what_came_true() -> None:
    acceptance = Acceptance(())
    assert acceptance.gained == 0.0
    for _ in range(200):
        acceptance.saw_lookup(2, False)
        acceptance.saw_lookup(4, True)
        acceptance.saw_denoiser(3)
    assert acceptance.lookup[2] < 0.01
    assert acceptance.lookup[4] > 0.99
    assert acceptance.lookup[3] == 0.65
    assert acceptance.gained == pytest.approx(3, abs=0.01)


def test_a_remembered_text_is_drafted_as_far_as_it_pays(
    engine: Engine, experience: Experience
) -> None:
    drafter = _drafter(engine, experience)
    remembered = Remembered(list(range(10, 40)))
    remembered.follow([10, 11])
    proposal = drafter.recall(remembered, 5)
    assert [d.token_id for d in proposal.drafts] == [12, 13, 14, 15, 16]
    assert {d.source for d in proposal.drafts} == {"memory"}
    assert proposal.recalled == MAX_RUN
    for _ in range(200):
        experience.acceptance.saw_memory(MAX_RUN, False)
    assert drafter.recall(remembered, 5).drafts == ()


@pytest.mark.parametrize(
    ("prefix", "left"),
    [
        ("x = ", "alpha + beta"),
        ("x = alp", "ha + beta"),
        ("x = alpha + beta", ""),
        ("x = alq", ""),
        ("y = ", ""),
        ("x =", ""),
    ],
)
def test_what_is_left_of_a_request_that_was_cut_off(prefix: str, left: str) -> None:
    unfinished = Unfinished()
    file = "import os\n" * 50
    unfinished.keep(file + "x = ", "alpha + beta")
    assert unfinished.behind(file + prefix) == left
    unfinished.clear()
    assert unfinished.behind(file + prefix) == ""
