"""An engine that answers from a table: scoring and counting are tested, not a model."""

from __future__ import annotations

from collections.abc import Callable

from engine.request import InfillRequest, InfillResult, Sources, StageTimes

Answer = Callable[[InfillRequest], str]


class FakeEngine:
    """Answers with what `answer` says; each text has as many tokens as words."""

    name = "fake"

    def __init__(self, answer: Answer, near_ties: int = 0) -> None:
        self._answer, self._near_ties = answer, near_ties
        self.asked: list[InfillRequest] = []

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
