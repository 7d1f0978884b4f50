"""An infiller without a model, told by the prefix what to do."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from engine.request import BadRequest, InfillRequest, InfillResult, Sources, StageTimes

PIECES = ("alpha ", "beta ", "gamma")


class FakeInfiller:
    """Answers `PIECES`; `wait` lasts until cancelled or released, `boom` and `refuse` fail."""

    name = "fake"

    def __init__(self) -> None:
        self.asked: list[InfillRequest] = []
        self.warmed: list[InfillRequest] = []
        self.waiting = threading.Event()
        self.release = threading.Event()
        self.saw_cancel = threading.Event()

    def infill(
        self,
        request: InfillRequest,
        cancelled: Callable[[], bool],
        on_text: Callable[[str], None] | None,
    ) -> InfillResult:
        self.asked.append(request)
        if "boom" in request.prefix:
            raise RuntimeError("boom in the middle")
        if "refuse" in request.prefix:
            raise BadRequest("refused by the model")
        if on_text is not None:
            on_text(PIECES[0])
        if "late" in request.prefix:
            raise BadRequest("refused after some text")
        if "wait" in request.prefix and not self._wait(cancelled):
            return self._result(request, "", "cancelled")
        if on_text is not None:
            on_text(PIECES[1])
        return self._result(request, "".join(PIECES), "stop")

    def warm(self, request: InfillRequest, cancelled: Callable[[], bool]) -> InfillResult:
        self.warmed.append(request)
        if "wait" in request.prefix and not self._wait(cancelled):
            return self._result(request, "", "cancelled")
        return self._result(request, "", "empty")

    def _wait(self, cancelled: Callable[[], bool]) -> bool:
        self.waiting.set()
        while not self.release.is_set():
            if cancelled():
                self.saw_cancel.set()
                return False
            time.sleep(0.005)
        return True

    def _result(self, request: InfillRequest, text: str, reason: str) -> InfillResult:
        return InfillResult(
            text=text,
            finish_reason=reason,  # type: ignore[arg-type]
            model=self.name,
            mode=request.mode,
            tokens=3,
            forwards=2,
            steps=4,
            prompt_tokens=10,
            cached_tokens=7,
            near_ties=1,
            sources=Sources(base=1, lookup=1, denoiser=1),
            syntax="ok",
            confidence=0.5,
            ms=StageTimes(encode=1.0, denoise=2.0, verify=3.0, syntax=4.0, total=10.0),
        )
