"""The path of one request, on a tiny random base and denoiser."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from engine import clock, syntax
from engine.canvas import Canvas, Draft
from engine.canvas_runner import ENCODE_CHUNK, CanvasRunner
from engine.denoise import Loop, Stop
from engine.drafting import Costs, Drafter, Proposal
from engine.engine import Engine
from engine.hole import Hole
from engine.request import BadRequest, InfillRequest, InfillResult
from engine.syntax import Verdict
from tests.engine.tiny_denoiser import tiny_engine

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


class Counter:
    def __init__(self, start: int = 0) -> None:
        self.value = start
        self.history = [start]

    def add(self, amount: int) -> int:
        self.value += amount
        self.history.append(self.value)
        return self.value


def total(values: list[int]) -> int:
    counter = Counter()
    for value in values:
        counter.add(value)
    return counter.value
'''


@pytest.fixture(scope="module", params=["markers", "two streams"])
def engine(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Engine:
    folder, fim = Path(tmp_path_factory.mktemp("tiny")), request.param == "markers"
    made = tiny_engine(folder, architecture="qwen2" if fim else "llama", fim=fim, seed=5)
    assert made.runner.style.trained == fim
    return made


@pytest.fixture(scope="module")
def qwen_like(tmp_path_factory: pytest.TempPathFactory) -> Engine:
    return tiny_engine(Path(tmp_path_factory.mktemp("tiny")), seed=3)


def _request(cut: int = 700, **changes: object) -> InfillRequest:
    made = InfillRequest(
        prefix=SOURCE[:cut], suffix=SOURCE[cut:], language="python", max_tokens=16, syntax=False
    )
    return replace(made, **changes)  # type: ignore[arg-type]


def _holes(count: int) -> list[InfillRequest]:
    """Holes of every kind: any cut, healed or not, words split, lines and blocks, warm and cold."""
    rng = random.Random(5)
    found = []
    for n in range(count):
        cut = rng.randrange(1, len(SOURCE))
        if n % 5 == 0:  # start of a line
            cut = SOURCE.rfind("\n", 0, cut) + 1
        after = cut if n % 3 else min(len(SOURCE), SOURCE.find("\n", cut) % (len(SOURCE) + 1))
        found.append(
            InfillRequest(
                prefix=SOURCE[:cut],
                suffix=SOURCE[after:],
                want="block" if n % 2 else "line",
                max_tokens=rng.choice((1, 5, 24)),
                temperature=0.0 if n % 4 else rng.choice((0.3, 1.0)),
                seed=n,
                syntax=False,
            )
        )
    return found


def _same(ar: InfillResult, verified: InfillResult) -> bool:
    keys = ("text", "finish_reason", "tokens", "near_ties", "prompt_tokens")
    return all(getattr(ar, key) == getattr(verified, key) for key in keys)


def _check_counters(result: InfillResult, request: InfillRequest) -> None:
    sources = result.sources
    assert result.tokens == sources.base + sources.lookup + sources.denoiser
    assert result.tokens <= request.max_tokens
    assert (result.tokens > 0) == bool(result.text)
    assert result.forwards <= result.tokens
    assert result.mode == request.mode
    assert 0 <= result.cached_tokens <= result.prompt_tokens
    assert 0.0 <= result.confidence <= 1.0
    assert result.ms.total >= result.ms.encode + result.ms.denoise + result.ms.verify - 1e-6
    if request.mode == "ar":
        assert (sources.lookup, sources.denoiser, result.steps) == (0, 0, 0)
        assert result.forwards == result.tokens
        assert result.tokens_per_forward == (1.0 if result.text else 0.0)


class _Guesses:
    """Drafts that are right about two times in three, as a trained denoiser's are.

    Random weights never guess right; so `ar` is recorded, and its tokens are drafted with errors.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.known: list[int] = []
        self.context = 0
        self.rng = random.Random(11)
        run = Loop.run
        guesses = self

        def recorded(loop: Loop, canvas: Canvas, stop: Stop) -> str:
            guesses.context = loop.context
            reason = run(loop, canvas, stop)
            if loop.mode == "ar":
                guesses.known = canvas.ids
            return reason

        def propose(drafter: Drafter, lookup: object, token_id: int, room: int) -> Proposal:
            at = len(drafter.stream) - guesses.context + 1
            ids = [
                i if guesses.rng.random() < 0.7 else guesses.rng.randrange(600)
                for i in guesses.known[at : at + min(room, guesses.rng.choice((0, 1, 4, 9, 15)))]
            ]
            kind = guesses.rng.choice(("lookup", "denoiser"))
            drafts = tuple(Draft(token_id=i, source=kind, confidence=0.5) for i in ids)  # type: ignore[arg-type]
            return Proposal(drafts=drafts, match=3 if kind == "lookup" else 0, steps=1)

        monkeypatch.setattr(Loop, "run", recorded)
        monkeypatch.setattr(Drafter, "propose", propose)


def test_verified_equals_ar_token_for_token(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    _Guesses(monkeypatch)
    excused = drafted = saved = 0
    for request in _holes(60):
        ar = engine.infill(replace(request, mode="ar"))
        verified = engine.infill(replace(request, mode="verified"))
        _check_counters(ar, replace(request, mode="ar"))
        _check_counters(verified, request)
        drafted += verified.sources.denoiser + verified.sources.lookup
        saved += ar.forwards - verified.forwards
        if not _same(ar, verified):
            excused += 1
            assert ar.near_ties + verified.near_ties > 0, request
    assert excused <= 1
    assert drafted > 50  # otherwise this proved nothing
    assert saved > 50


def test_verified_equals_ar_with_its_own_drafts(engine: Engine) -> None:
    for request in _holes(10):
        ar = engine.infill(replace(request, mode="ar"))
        verified = engine.infill(request)
        _check_counters(verified, request)
        assert _same(ar, verified) or ar.near_ties


def test_cold_equals_warm(qwen_like: Engine) -> None:
    for request in _holes(12):
        warm = qwen_like.infill(request)
        again = qwen_like.infill(request)
        assert again.text == warm.text
        assert again.cached_tokens == again.prompt_tokens


def test_a_result_is_a_function_of_the_seed(qwen_like: Engine) -> None:
    warm = _request(temperature=1.2, seed=1)
    first = qwen_like.infill(warm).text
    assert qwen_like.infill(warm).text == first
    others = {qwen_like.infill(replace(warm, seed=seed)).text for seed in range(2, 8)}
    assert others - {first}


def test_the_healed_text_joins_the_prefix(engine: Engine) -> None:
    """Only new text is returned: what the base was made to spell again is not."""
    for request in _holes(20):
        hole = Hole.of(request)
        plan = engine.runner.anchors.plan(hole)
        assert hole.prefix.encode().endswith(plan.spell)
        result = engine.infill(request)
        if request.want == "line" and not hole.blank:
            assert "\n" not in result.text


@pytest.mark.parametrize("want", ["line", "block"])
def test_free_mode_ends_and_writes_no_marker(engine: Engine, want: str) -> None:
    markers = set(engine.tokenizer.special_ids)
    steps = 0
    for request in _holes(20):
        free = replace(request, mode="free", want=want)  # type: ignore[arg-type]
        result = engine.infill(free)
        _check_counters(result, free)
        assert not any(marker in result.text for marker in markers)
        assert result.finish_reason in ("stop", "length", "empty")
        steps += result.steps
    assert steps > 0


def test_free_mode_needs_a_denoiser(qwen_like: Engine) -> None:
    runner = qwen_like.runner
    assert isinstance(runner, CanvasRunner)
    plain = Engine("plain", CanvasRunner(runner.base, runner.tokenizer, None))
    with pytest.raises(BadRequest, match="has no denoiser"):
        plain.infill(_request(mode="free"))
    assert plain.infill(_request()).sources.denoiser == 0


def _after(polls: int) -> Callable[[], bool]:
    """A cancel flag that is raised at the given poll and stays so."""
    seen = iter(range(10**9))
    return lambda: next(seen) >= polls


@pytest.mark.parametrize("mode", ["ar", "verified", "free"])
@pytest.mark.parametrize("polls", [0, 1, 3, 6, 9, 14])
def test_a_cancelled_request_leaves_the_engine_usable(
    qwen_like: Engine, mode: str, polls: int
) -> None:
    request = _request(mode=mode, want="block", temperature=0.7, seed=4)
    qwen_like.reset()
    expected = qwen_like.infill(request)
    qwen_like.reset()
    pieces: list[str] = []
    stopped = qwen_like.infill(request, _after(polls), pieces.append)
    assert (stopped.finish_reason, stopped.text, stopped.tokens) == ("cancelled", "", 0)
    assert pieces == []
    again = qwen_like.infill(request)
    assert (again.text, again.finish_reason) == (expected.text, expected.finish_reason)
    # what was encoded stays: everything, if the cancel struck after the context
    chunks = -(-again.prompt_tokens // ENCODE_CHUNK)
    assert again.cached_tokens == min(polls * ENCODE_CHUNK, again.prompt_tokens)
    assert chunks < 14  # so that some of these cancels strike inside the loop


def test_a_cancel_that_comes_too_late_changes_nothing(qwen_like: Engine) -> None:
    request = _request()
    assert qwen_like.infill(request, _after(10**6)).text == qwen_like.infill(request).text


def test_typing_on_encodes_only_what_is_new(engine: Engine) -> None:
    engine.reset()
    line = "    counter.add(value) + other"
    suffix = "\n    return counter\n"
    first = engine.infill(_request(prefix=SOURCE, suffix=suffix))
    assert first.cached_tokens == 0
    for end in range(4, len(line)):
        result = engine.infill(_request(prefix=SOURCE + line[:end], suffix=suffix))
        assert result.prompt_tokens - result.cached_tokens <= 10, line[:end]


def test_warming_up_encodes_the_context(engine: Engine) -> None:
    engine.reset()
    request = _request()
    engine.warm(request)
    result = engine.infill(request)
    assert result.cached_tokens == result.prompt_tokens > 0
    engine.reset()
    engine.warm(request, _after(1))
    assert engine.infill(request).cached_tokens == ENCODE_CHUNK


class _Watch:
    """A clock that tests turn: every look takes `tick_ms`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, tick_ms: float) -> None:
        self.now, self.tick = 0.0, tick_ms / 1e3
        monkeypatch.setattr(clock.time, "perf_counter", self)

    def __call__(self) -> float:
        self.now += self.tick
        return self.now


def test_at_the_deadline_what_is_committed_is_returned(
    qwen_like: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = _request(SOURCE.index("counter.add(value)"), mode="ar", max_tokens=40, want="block")
    whole = qwen_like.infill(request)
    assert whole.tokens > 3
    _Watch(monkeypatch, 1.0)
    total = qwen_like.infill(request).ms.total
    cut = [
        qwen_like.infill(replace(request, deadline_ms=total * f, patience_ms=0))
        for f in (0.5, 0.65, 0.8)
    ]
    for result in cut:
        assert result.finish_reason == "deadline"
        assert result.text
        assert whole.text.startswith(result.text)
        _check_counters(result, request)
    assert len({result.tokens for result in cut}) > 1
    assert max(result.tokens for result in cut) < whole.tokens


def test_a_late_answer_is_better_than_none(
    qwen_like: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    _Watch(monkeypatch, 20.0)
    result = qwen_like.infill(_request(deadline_ms=1.0, mode="ar"))
    assert result.finish_reason == "deadline"
    assert result.text.strip()
    _Watch(monkeypatch, 3000.0)
    nothing = qwen_like.infill(_request(SOURCE.index("return lines"), deadline_ms=1.0))
    assert nothing.finish_reason == "deadline"


@pytest.fixture
def _cheap_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows cost as on a large model: on a tiny one no draft pays."""
    monkeypatch.setattr(Costs, "forward", lambda costs, rows: 40.0 + rows)


@pytest.mark.usefixtures("_cheap_rows")
def test_a_guess_changes_the_speed_and_not_the_text(engine: Engine) -> None:
    saved = recalled = 0
    for number, request in enumerate(_holes(30)):
        engine.reset()
        plain = engine.infill(request)
        middle = len(plain.text) // 2
        guess = (plain.text, plain.text[:middle] + "zz" + plain.text[middle:])[number % 2]
        engine.reset()
        guided = engine.infill(replace(request, guess=guess))
        if plain.near_ties == guided.near_ties == 0:
            assert guided.text == plain.text, request
        saved += plain.forwards - guided.forwards
        recalled += guided.sources.memory
    assert saved > 20
    assert recalled > 20


@pytest.mark.usefixtures("_cheap_rows")
def test_a_request_that_was_cut_off_helps_the_next_one(qwen_like: Engine) -> None:
    request = _request(SOURCE.index("counter.add(value)"), max_tokens=24, want="block")
    qwen_like.reset()
    whole = qwen_like.infill(request)
    assert (whole.tokens > 8, whole.sources.memory) == (True, 0)
    cancelled = qwen_like.infill(request, cancelled=_after(12))
    assert (cancelled.finish_reason, cancelled.text) == ("cancelled", "")
    again = qwen_like.infill(request)
    assert again.text == whole.text
    assert again.sources.memory > 0
    assert again.forwards < whole.forwards


def test_the_text_is_handed_on_once_and_whole(qwen_like: Engine) -> None:
    pieces: list[str] = []
    result = qwen_like.infill(_request(), on_text=pieces.append)
    assert "".join(pieces) == result.text
    assert result.text


class _Judge:
    """Stands in for the syntax check: finds fault at an offset, so many times."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, faults: int, offset: int = 0) -> None:
        self.faults, self.offset, self.seen = faults, offset, []  # type: ignore[var-annotated]
        monkeypatch.setattr(syntax, "check", self)

    def __call__(self, *, prefix: str, text: str, suffix: str, language: str | None) -> Verdict:
        self.seen.append(text)
        if len(self.seen) > self.faults:
            return Verdict(status="ok")
        at = min(self.offset, len(text) - 1)
        return Verdict(status="broken", spans=((at, len(text)),))


@pytest.mark.parametrize("mode", ["ar", "verified", "free"])
@pytest.mark.parametrize("offset", [0, 3])
def test_what_breaks_the_syntax_is_filled_again(
    qwen_like: Engine,
    ending: dict[str, InfillRequest],
    monkeypatch: pytest.MonkeyPatch,
    mode: str,
    offset: int,
) -> None:
    request = ending[mode]
    clean = qwen_like.infill(request)
    judge = _Judge(monkeypatch, 1, offset)
    result = qwen_like.infill(replace(request, syntax=True))
    assert judge.seen[0] == clean.text
    assert len(judge.seen) == 2
    assert judge.seen[1] != clean.text
    assert (result.text, result.repaired, result.syntax) == (judge.seen[1], True, "ok")
    _check_repaired(result)


def _check_repaired(result: InfillResult) -> None:
    sources = result.sources
    assert result.tokens == sources.base + sources.lookup + sources.denoiser
    assert 0 < result.forwards <= result.tokens
    if result.mode == "ar":
        assert result.forwards == result.tokens


@pytest.fixture(scope="module")
def ending(qwen_like: Engine) -> dict[str, InfillRequest]:
    """Per mode a request whose text ends by itself and is some characters long."""
    found: dict[str, InfillRequest] = {}
    for hole in _holes(60):
        for mode in {"ar", "free"} - set(found):
            asked = replace(hole, mode=mode, want="line", max_tokens=60, temperature=0.0)  # type: ignore[arg-type]
            result = qwen_like.infill(asked)
            if result.finish_reason == "stop" and len(result.text.strip()) > 8 and not _word(asked):
                found[mode] = asked
    return found | {"verified": replace(found["ar"], mode="verified")}


def _word(request: InfillRequest) -> str:
    return Hole.of(request).word


def test_the_token_that_failed_is_not_chosen_again(
    qwen_like: Engine, ending: dict[str, InfillRequest], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A judge that always finds fault with the same place sees another text each time."""
    request = ending["verified"]
    judge = _Judge(monkeypatch, 99)
    result = qwen_like.infill(replace(request, syntax=True))
    assert (result.text, result.finish_reason, result.syntax) == ("", "syntax", "broken")
    assert not result.repaired
    assert len(judge.seen) == 3
    assert len(set(judge.seen)) == 3
    assert result.tokens == result.forwards == 0


def test_a_repair_gives_the_same_in_both_modes(
    qwen_like: Engine, ending: dict[str, InfillRequest], monkeypatch: pytest.MonkeyPatch
) -> None:
    request = replace(ending["ar"], syntax=True)
    texts = []
    for mode in ("ar", "verified"):
        _Judge(monkeypatch, 2, 2)
        texts.append(qwen_like.infill(replace(request, mode=mode)).text)  # type: ignore[arg-type]
    assert texts[0] == texts[1]


def test_after_a_repair_the_look_up_knows_what_was_taken_back(
    qwen_like: Engine, ending: dict[str, InfillRequest], monkeypatch: pytest.MonkeyPatch
) -> None:
    request = replace(ending["verified"], syntax=True)
    seen: list[tuple[list[int], list[int]]] = []
    index = Loop._index

    def watched(self: Loop, canvas: object) -> None:
        index(self, canvas)  # type: ignore[arg-type]
        seen.append((self.lookup._ids[self.context :], canvas.ids))  # type: ignore[attr-defined]

    monkeypatch.setattr(Loop, "_index", watched)
    _Judge(monkeypatch, 1, 2)
    assert qwen_like.infill(request).repaired
    assert all(indexed == committed for indexed, committed in seen)


def test_a_text_cut_short_is_shortened_until_it_is_whole(
    qwen_like: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def check(*, prefix: str, text: str, suffix: str, language: str | None) -> Verdict:
        bad = len(text) > 3
        return Verdict(status="broken" if bad else "ok", spans=((0, 1),) if bad else ())

    request = next(
        r
        for r in (replace(h, max_tokens=8, want="block", mode="ar") for h in _holes(60))
        if not _word(r)
        and (result := qwen_like.infill(r)).finish_reason == "length"
        and len(result.text.strip()) > 5
    )
    monkeypatch.setattr(syntax, "check", check)
    kept: list[str] = []

    def complete(
        prefix: str, text: str, suffix: str, language: str | None, *, at: str, judged: bool
    ) -> str:
        assert judged  # no verdict is asked for twice
        kept.append(at)
        return text[:3]

    monkeypatch.setattr(syntax, "complete_prefix", complete)
    block = qwen_like.infill(replace(request, syntax=True))
    line = qwen_like.infill(replace(request, syntax=True, want="line"))
    assert kept[0] == "line"
    assert (len(block.text), block.finish_reason, block.syntax) == (3, "length", "ok")
    assert not block.repaired
    _check_counters(block, replace(request, syntax=True))
    assert line.finish_reason in ("length", "syntax", "empty")
    monkeypatch.setattr(syntax, "complete_prefix", lambda *_, **__: "")
    nothing = qwen_like.infill(replace(request, syntax=True))
    assert (nothing.text, nothing.finish_reason, nothing.syntax) == ("", "syntax", "broken")


def test_real_syntax_is_asked_about_the_whole_document(engine: Engine) -> None:
    """A random model writes nonsense: nothing that breaks the file may come back."""
    verdicts = set()
    for request in _holes(10):
        asked = replace(request, syntax=True, language="python", max_tokens=24)
        result = engine.infill(asked)
        verdicts.add(result.syntax)
        if result.text and result.syntax == "ok":
            hole = Hole.of(asked)
            again = syntax.check(
                prefix=hole.prefix,
                text=result.text,
                suffix=hole.word + hole.suffix,
                language="python",
            )
            assert again.status == "ok"
        assert not (result.text and result.syntax == "broken")
    assert "broken" in verdicts


@pytest.mark.parametrize(
    ("prefix", "suffix"),
    [
        ("", ""),
        ("", "x = 1\n"),
        ("\n\n", ""),
        ("🎉", "🎉"),
        ("a" * 5000, "b" * 5000),
        ("\ud800", ""),
    ],
)
@pytest.mark.parametrize("mode", ["ar", "verified", "free"])
def test_odd_surroundings(engine: Engine, prefix: str, suffix: str, mode: str) -> None:
    request = _request(prefix=prefix, suffix=suffix, mode=mode, syntax=True)
    result = engine.infill(request)
    _check_counters(result, request) if not result.repaired else _check_repaired(result)


def test_healing_does_not_use_up_the_tokens(qwen_like: Engine) -> None:
    # a long piece of rare characters is spelled again, byte by byte
    result = qwen_like.infill(_request(prefix="x = '" + "ŋ" * 30, suffix="", max_tokens=2))
    assert 0 < result.tokens <= 2


def test_stop_strings_are_not_returned(qwen_like: Engine) -> None:
    request = _request(want="block", max_tokens=24)
    whole = qwen_like.infill(request).text
    middle = whole.strip()[len(whole.strip()) // 2]
    cut = qwen_like.infill(replace(request, stop=(middle,)))
    assert middle not in cut.text
    assert whole.startswith(cut.text)
