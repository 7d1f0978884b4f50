"""An engine that answers from a table: scoring and counting are tested, not a model."""

from __future__ import annotations

import json
import re
from collections.abc import Callable

import pytest

from benchmarks.sandbox import Run
from engine.request import InfillRequest, InfillResult, Sources, StageTimes

Answer = Callable[[InfillRequest], str]


class FakeTokens:
    """A word or a sign is one token with the blanks before it."""

    def __init__(self) -> None:
        self._known: list[str] = []

    def encode(self, text: str) -> list[int]:
        pieces = re.findall(r"\s*\w+|\s*[^\w\s]|\s+", text)
        self._known += [piece for piece in dict.fromkeys(pieces) if piece not in self._known]
        return [self._known.index(piece) for piece in pieces]

    def spell(self, ids: list[int]) -> bytes:
        return "".join(self._known[i] for i in ids).encode()


class FakeEngine:
    """Answers with what `answer` says; each text has as many tokens as words."""

    name = "fake"

    def __init__(self, answer: Answer, near_ties: int = 0) -> None:
        self._answer, self._near_ties = answer, near_ties
        self.asked: list[InfillRequest] = []
        self.tokenizer = FakeTokens()

    def infill(self, request: InfillRequest) -> InfillResult:
        self.asked.append(request)
        text = self._answer(request)
        tokens = len(text.split())
        return InfillResult(
            text=text,
            finish_reason="stop" if text else "empty",
            model=self.name,
            mode=request.mode,
            tokens=tokens,
            forwards=tokens if request.mode == "ar" else (tokens + 1) // 2,
            near_ties=self._near_ties,
            sources=Sources(base=tokens),
            ms=StageTimes(total=1.0),
        )


#: The line that solves the tasks of `conftest.data`; the last task needs another.
RIGHT = "    return x + y"


def answer(request: InfillRequest) -> str:
    return "    y = y + y" if "return y" in request.suffix else RIGHT


def run_here(source: str) -> Run:
    """The verdict without a process of its own: these programs are ours."""
    try:
        exec(compile(source, "program", "exec"), {})
    except Exception as error:
        return Run(outcome="failed", detail=repr(error))
    return Run(outcome="passed")


def json_line(capsys: pytest.CaptureFixture[str]) -> dict[str, object]:
    """The figures of a benchmark that was run with --json: one line, and no other."""
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 1
    figures: dict[str, object] = json.loads(lines[0])
    return figures
