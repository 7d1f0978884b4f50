"""The last answer of each open document, and what becomes of the suggestions in them.

Joins what an answer is (reply.py), how its suggestion fares (feedback.py) and where that is kept
(scorecard.py). Does not know how an answer comes about, or who asks for it again.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

from dlsp.scores.feedback import Facts, Feedback
from dlsp.scores.scorecard import Row, Scorecard, default_path
from dlsp.suggestion.reply import Answer, detail
from dlsp.text.document import Document
from engine.request import InfillRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What the engine was asked, and the detail of the answer that came of it."""

    request: InfillRequest
    detail: dict[str, Any]


class Answers:
    """The answers of one session; every method is called from its event loop."""

    def __init__(self) -> None:
        self.keep_figures = True
        self.feedback = Feedback(self._put, _later)
        self._scorecard = Scorecard(default_path())
        self._details: dict[str, dict[str, Any]] = {}
        self._asked: dict[str, Asked] = {}

    def remember(self, document: Document, answer: Answer, *, total_ms: float) -> str | None:
        """Keep a document's last answer; the id of the suggestion that it shows, if any."""
        key = unquote(document.uri)
        found = self._details[key] = detail(answer, total_ms=total_ms)
        if answer.request is not None:
            self._asked[key] = Asked(request=answer.request, detail=found)
        return self._follow(document, answer, total_ms)

    def why(self, uri: str) -> dict[str, Any] | None:
        """The detail of a document's last answer."""
        return self._details.get(unquote(uri))

    def asked(self, uri: str) -> Asked | None:
        """What the engine was asked last for a document."""
        return self._asked.get(unquote(uri))

    def forget(self, uri: str) -> None:
        """A document was closed."""
        self.feedback.closed(uri)
        self._details.pop(unquote(uri), None)
        self._asked.pop(unquote(uri), None)

    async def close(self) -> None:
        """Write what is left of the figures."""
        await asyncio.to_thread(self._scorecard.close)

    def _follow(self, document: Document, answer: Answer, total_ms: float) -> str | None:
        reply = answer.reply
        if reply is None:
            return None
        facts = Facts(
            at=time.time(),
            language=language_of(document),
            model=reply.model,
            latency_ms=total_ms,
            confidence=reply.confidence,
        )
        if answer.text and answer.range is not None:
            return self.feedback.show(document, answer.text, answer.range, facts)
        if reply.text.strip():
            self.feedback.withhold(reply.text, facts)
        return None

    def _put(self, row: Row) -> None:
        if self.keep_figures:
            self._scorecard.put(row)


def language_of(document: Document) -> str:
    """A name for the document's language: ours, else the editor's."""
    return document.language or document.language_id or "other"


def _later(seconds: float, call: Callable[[], None]) -> None:
    asyncio.get_running_loop().call_later(seconds, call)
