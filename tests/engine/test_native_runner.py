"""Holes filled by tiny masked-diffusion models, from their checkpoints to the text."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from engine import cache_error, native_runner, syntax, trace
from engine.canvas import Committed
from engine.clock import Clock
from engine.context import Context, drift
from engine.engine import Engine
from engine.habits import Caching, Habits
from engine.hole import Hole
from engine.native_runner import NativeRunner
from engine.request import InfillRequest
from engine.slot_canvas import SlotCanvas
from engine.syntax import Verdict
from engine.trace import Snapshot
from tests.engine.tiny_native import family_of, native_engine

SOURCE = '''\
import os
from pathlib import Path


def read_lines(path: Path, limit: int = 10) -> list[str]:
    """Die ersten Zeilen — naïve 中文 🎉."""
    lines = []
    with path.open(encoding="utf-8") as file:
        for number, line in enumerate(file):
            if number >= limit:
                break
            lines.append(line.rstrip())
    return lines


def total(values: list[int]) -> int:
    counter = Counter()
    for value in values:
        counter.add(value)
    return counter.value
'''
KINDS = ("shifted", "in place", "edits", "blocks", "blocks in place")


def make(kind: str, folder: Path, habits: Habits | None = None) -> Engine:
    model_type = {"in place": "a2d-qwen2"}.get(kind, "Dream")
    if kind.startswith("blocks"):
        model_type = "Fast_dLLM_Qwen"
    made = native_engine(folder, model_type, seed=4, edits=kind == "edits", habits=habits)
    if kind != "blocks in place":
        return made
    runner = made.runner
    assert isinstance(runner, NativeRunner)
    family = replace(runner.family, shifted=False, block=4)
    return Engine("tiny", NativeRunner(runner.base, runner.tokenizer, family, habits))


@pytest.fixture(scope="module", params=KINDS)
def engine(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Engine:
    return make(request.param, Path(tmp_path_factory.mktemp("native")))


@pytest.fixture(scope="module")
def dream(tmp_path_factory: pytest.TempPathFactory) -> Engine:
    return make("shifted", Path(tmp_path_factory.mktemp("dream")))


def hole(cut: int = 300, **changes: object) -> InfillRequest:
    made = InfillRequest(
        prefix=SOURCE[:cut], suffix=SOURCE[cut:], language="python", max_tokens=8, syntax=False
    )
    return replace(made, **changes)  # type: ignore[arg-type]


def holes(count: int) -> list[InfillRequest]:
    rng = random.Random(3)
    return [
        hole(
            rng.randrange(1, len(SOURCE)),
            want="block" if n % 2 else "line",
            max_tokens=rng.choice((1, 4, 8)),
            temperature=0.0 if n % 3 else 0.8,
            seed=n,
            exact=n % 4 == 0,
        )
        for n in range(count)
    ]


def test_a_hole_is_filled_with_text(engine: Engine) -> None:
    specials = set(engine.tokenizer.special_ids)
    filled = 0
    for request in holes(8):
        result = engine.infill(request)
        assert result.finish_reason in ("stop", "length", "empty")
        assert result.tokens <= request.max_tokens
        assert (result.tokens > 0) == bool(result.text)
        assert result.sources.denoiser == result.tokens
        assert result.mode == "free"
        assert result.forwards >= result.steps > 0
        assert 0 <= result.cached_tokens <= result.prompt_tokens
        assert not any(special in result.text for special in specials)
        if Hole.of(request).one_line:
            assert "\n" not in result.text
        if request.exact:  # what was cached cannot matter
            assert engine.infill(request).text == result.text
        filled += bool(result.text)
    assert filled > 2


def test_exact_does_not_depend_on_what_was_asked_before(engine: Engine) -> None:
    wanted = hole(exact=True, policy="one_per_step")
    engine.reset()
    cold = engine.infill(wanted).text
    for request in holes(2):
        engine.infill(replace(request, exact=False))
    assert engine.infill(wanted).text == cold


def _context(engine: Engine, caching: Caching | None, before: int = 21) -> Context:
    runner = engine.runner
    assert isinstance(runner, NativeRunner)
    ids = runner.tokenizer.encode(SOURCE)
    sides = runner.family.sides(ids[:before], ids[before : before + 30])
    return Context(runner.base, runner.family, runner.base.new_stream(), sides, caching)


def _by_hand(engine: Engine, context: Context, canvas: SlotCanvas) -> torch.Tensor:
    """Every row of the sequence in one pass over nothing cached."""
    runner = engine.runner
    assert isinstance(runner, NativeRunner)
    ids = [*context.before, *canvas.ids.tolist(), *context.after]
    visible = runner.family.visible(0, len(ids), len(ids))
    hidden = runner.base.forward(ids, runner.base.new_stream(), start=0, visible=visible)
    start = len(context.before)
    places = [runner.family.scoring_row(start + n) for n in range(context.reach(canvas))]
    return hidden[places]


@torch.inference_mode()
def test_exact_rows_are_those_of_one_whole_pass(engine: Engine) -> None:
    """Through commits, growth, deletion and a repair, however little is computed anew."""
    for before in (0, 16, 21):
        context = _context(engine, None, before)
        context.encode(lambda: False)
        mask_id = family_of(engine).mask_id
        assert mask_id is not None
        canvas = SlotCanvas(11, mask_id, 30)

        def check(context: Context = context, canvas: SlotCanvas = canvas) -> None:
            expected = _by_hand(engine, context, canvas)
            torch.testing.assert_close(context.hidden(canvas), expected, rtol=1e-4, atol=1e-4)

        check()
        for slot in (0, 2, 1, 3, 4, 5, 6, 7, 8):
            canvas.commit(torch.tensor([slot]), torch.tensor([70 + slot]), torch.ones(1), 0)
            check()
        canvas.insert(9, 3)
        check()
        canvas.drop(torch.arange(len(canvas)) == 4)
        check()
        canvas.blank(torch.arange(len(canvas)) == 1)  # a repair far to the left
        check()
        canvas.commit(torch.tensor([1]), torch.tensor([99]), torch.ones(1), 0)
        check()


@torch.inference_mode()
def test_a_cache_computes_the_canvas_alone(dream: Engine) -> None:
    context = _context(dream, Caching(refresh=100, drift=9.0))
    canvas = SlotCanvas(6, context.family.mask_id or 0, 12)
    rows = []
    for change in ("none", "none", "commit", "grow", "none"):
        if change == "commit":
            canvas.commit(torch.tensor([2]), torch.tensor([80]), torch.ones(1), 0)
        if change == "grow":
            canvas.insert(3)
        before = context.passes.rows
        context.hidden(canvas)
        rows.append(context.passes.rows - before)
    whole = len(context.before) + 6 + len(context.after)
    # one row before the canvas scores its first slot; what is behind it moved when it grew
    assert rows == [whole, 7, 7, 1 + 7 + len(context.after), 8]


@torch.inference_mode()
@pytest.mark.parametrize(
    ("caching", "expected"),
    [
        (Caching(refresh=2, drift=9.0), [True, False, False, True, False]),
        (Caching(refresh=99, drift=1e-6), [True, False, True, False, True]),
    ],
)
def test_a_cache_is_refreshed(dream: Engine, caching: Caching, expected: list[bool]) -> None:
    context = _context(dream, caching)
    canvas = SlotCanvas(5, context.family.mask_id or 0)
    whole = []
    for slot in range(5):
        before = context.passes.rows
        context.hidden(canvas)
        whole.append(context.passes.rows - before > 20)
        canvas.commit(torch.tensor([slot]), torch.tensor([80]), torch.ones(1), 0)
    assert whole == expected


def test_drift() -> None:
    rows = torch.randn(4, 8)
    assert drift(rows, rows) == pytest.approx(0.0, abs=1e-6)
    assert drift(rows, -rows) == pytest.approx(2.0, abs=1e-6)
    assert drift(rows[:0], rows[:0]) == 0.0


def test_the_error_of_a_cache_can_be_measured(tmp_path: Path) -> None:
    never_stale = make("shifted", tmp_path / "a", Habits(caching=Caching(refresh=0)))
    lazy = make("shifted", tmp_path / "b", Habits(caching=Caching(refresh=10**6, drift=9.0)))
    typed = [hole(cut, length="fixed", slots=6, want="block") for cut in range(300, 324, 6)]
    runners = [engine.runner for engine in (never_stale, lazy)]
    exact, stale = (cache_error.measure(r, typed) for r in runners if isinstance(r, NativeRunner))
    assert exact.agreement == 1.0
    assert exact.divergence == pytest.approx(0.0, abs=1e-5)
    assert exact.cached_rows == exact.exact_rows
    assert stale.slots > 40
    assert stale.divergence > 1e-5
    assert 0.2 < stale.agreement < 1.0
    assert stale.cached_rows < stale.exact_rows / 3


def test_typing_on_starts_from_the_prefix_of_the_last_request(tmp_path: Path) -> None:
    engine = make("shifted", tmp_path, Habits(caching=Caching(refresh=10**6, drift=9.0)))
    line, suffix = "    counter.add(value) + other", "\n    return counter\n"
    for end in range(4, len(line), 3):
        result = engine.infill(hole(prefix=SOURCE + line[:end], suffix=suffix))
        known = result.cached_tokens
        assert known == 0 if end == 4 else known > len(engine.tokenizer.encode(SOURCE)) * 0.7
    assert engine.infill(hole(exact=True)).cached_tokens == 0


def test_blocks_are_kept_exactly(tmp_path: Path) -> None:
    engine = make("blocks", tmp_path)
    first = engine.infill(hole(prefix=SOURCE, suffix=""))
    again = engine.infill(hole(prefix=SOURCE, suffix=""))
    assert first.cached_tokens == 0 < again.cached_tokens
    assert again.cached_tokens % 8 == 0
    assert again.forwards < first.forwards
    assert again.text == first.text


def test_warming_up_computes_the_context(engine: Engine) -> None:
    engine.reset()
    request = hole()
    assert engine.warm(request).text == ""
    assert engine.infill(request).cached_tokens > 0


@pytest.mark.parametrize("polls", [1, 2, 5])
def test_a_cancelled_request_says_so(engine: Engine, polls: int) -> None:
    seen = iter(range(10**9))
    result = engine.infill(hole(want="block"), lambda: next(seen) >= polls)
    assert (result.finish_reason, result.text, result.tokens) == ("cancelled", "", 0)
    assert engine.infill(hole()).finish_reason != "cancelled"


def test_at_the_deadline_what_stands_on_the_left_is_returned(dream: Engine) -> None:
    whole = dream.infill(hole(mode="ar", slots=8, length="fixed", exact=True))
    assert whole.mode == "ar"
    rounds = iter(range(10**9))
    filling = dream.runner.begin(
        Hole.of(hole()),
        hole(mode="ar", slots=8, length="fixed", exact=True),
        Clock(None, lambda: False),
        None,
    )
    assert filling.run(lambda canvas: "deadline" if next(rounds) == 5 else None) == "deadline"
    assert filling.text
    assert (whole.text + " ").startswith(filling.text)


class _Judge:
    """Stands in for the syntax check: finds fault with one span, so many times."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, faults: int, span: tuple[int, int]) -> None:
        self.faults, self.span, self.seen = faults, span, []  # type: ignore[var-annotated]
        monkeypatch.setattr(syntax, "check", self)

    def __call__(self, *, prefix: str, text: str, suffix: str, language: str | None) -> Verdict:
        self.seen.append(text)
        if len(self.seen) > self.faults:
            return Verdict(status="ok")
        return Verdict(status="broken", spans=(self.span,))


@pytest.mark.parametrize("span", [(0, 1), (4, 6), (5, 5), (90, 99)])
def test_only_what_breaks_the_syntax_is_filled_again(
    dream: Engine, monkeypatch: pytest.MonkeyPatch, span: tuple[int, int]
) -> None:
    request = hole(SOURCE.index("counter.add"), length="fixed", slots=6, seed=1)
    request = replace(request, suffix="\n", syntax=True, want="block", exact=True)
    judge = _Judge(monkeypatch, 1, span)
    before: list[Committed] = []
    remask = native_runner.NativeFilling.remask

    def noted(filling: native_runner.NativeFilling, start: int, end: int) -> None:
        before.extend(filling.returned(filling.text))
        remask(filling, start, end)

    monkeypatch.setattr(native_runner.NativeFilling, "remask", noted)
    result = dream.infill(request)
    first, second = judge.seen
    assert first != second == result.text
    assert result.repaired
    # the token that failed is another now; what is left of it stands
    kept = first[: span[0]] if span[0] < len(first) else ""
    spelled, whole = "", ""
    for token in before:
        whole += dream.tokenizer.decode([token.token_id])
        spelled = whole if len(whole) <= len(kept) else spelled
    assert second.startswith(spelled)


def test_a_judge_who_is_never_content_sees_other_texts(
    dream: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    judge = _Judge(monkeypatch, 99, (0, 1))
    result = dream.infill(hole(syntax=True, suffix="\n", exact=True))
    assert (result.text, result.finish_reason) == ("", "syntax")
    assert len(set(judge.seen)) == len(judge.seen) == 3


@pytest.mark.parametrize(
    ("length", "policy", "forwards"),
    [("fixed", "one_per_step", 6), ("fixed", "top_k", 3), ("probe", "one_per_step", None)],
)
def test_what_a_strategy_costs(
    tmp_path: Path, length: str, policy: str, forwards: int | None
) -> None:
    engine = make("in place", tmp_path)
    request = hole(
        prefix="x = ", suffix="\n", max_tokens=32, length=length, policy=policy, healing=False
    )
    result = engine.infill(replace(request, slots=6 if forwards else None))
    assert result.steps == result.forwards
    if forwards is None:  # at most so many probes
        assert result.tokens < result.forwards <= result.tokens + 8
    else:
        assert result.forwards <= forwards


def test_the_canvas_can_be_watched(engine: Engine) -> None:
    seen: list[Snapshot] = []
    result = engine.infill(hole(policy="one_per_step"), on_step=seen.append)
    assert len(seen) > 2
    assert [snapshot.step for snapshot in seen] == list(range(len(seen)))
    assert any(slot.state == "committed" for snapshot in seen for slot in snapshot.slots)
    assert all(0.0 <= slot.probability <= 1.0 for snapshot in seen for slot in snapshot.slots)
    spelled = "".join(slot.text for slot in seen[-1].slots)
    ascii_text = result.text.encode("ascii", "ignore")  # characters may be split between tokens
    assert ascii_text.strip() in spelled.encode("ascii", "ignore")
    lines = [trace.line(snapshot) for snapshot in seen]
    assert all("\n" not in line for line in lines)
    assert any("_" in line for line in lines)


def test_a_canvas_model_can_be_watched_too(tmp_path: Path) -> None:
    from tests.engine.tiny_denoiser import tiny_engine

    engine = tiny_engine(tmp_path, seed=3)
    seen: list[Snapshot] = []
    result = engine.infill(hole(want="block", max_tokens=12), on_step=seen.append)
    spelled = "".join(slot.text for slot in seen[-1].slots if slot.state != "rejected")
    ascii_text = result.text.encode("ascii", "ignore")  # characters may be split between tokens
    assert ascii_text in spelled.encode("ascii", "ignore")
    states = {slot.state for snapshot in seen for slot in snapshot.slots}
    assert states == {"held", "committed", "rejected"}
    assert any("drafts" in snapshot.note for snapshot in seen)
