"""The path of one request, top to bottom: document, context, gate, backend, postprocess, answer.

Reads like a table of contents; every station lives in its own room. Does not know pygls, tasks
or the wire, and keeps nothing between requests.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass

from lsprotocol import types as lsp

from dlsp.backend import Backend
from dlsp.context import Context, gather
from dlsp.document import Documents
from dlsp.gate import decide
from dlsp.postprocess import finish
from dlsp.reply import Answer
from dlsp.settings import Settings
from engine.request import InfillRequest, Want
from engine.syntax import language_for

#: The least the engine is given, however much of the deadline went before it was asked.
LEAST_DEADLINE_MS = 50.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """One client request; `received` is a `time.perf_counter()` reading."""

    uri: str
    position: lsp.Position
    invoked: bool
    received: float


async def complete(
    ask: Ask, *, documents: Documents, backend: Backend, settings: Settings
) -> Answer:
    """Answer one request; raises EngineError when the engine cannot."""
    document = documents.find(ask.uri)
    if document is None:
        return Answer(reason="the document is not open")
    revision = document.revision
    language = language_for(document.path, document.language_id)

    context = gather(document, ask.position)
    prefix, suffix = context.prefix, context.suffix
    gate = decide(prefix=prefix, suffix=suffix, language=language, invoked=ask.invoked)
    if not gate.ask:
        return Answer(reason=gate.reason)
    want = gate.want if settings.want == "auto" else settings.want
    hole = Hole(context=context, want=want, path=document.path, language=language)
    context_ms = _ms_since(ask.received)

    request = _request(hole, settings, spent_ms=context_ms)
    reply = await backend.complete(request, wait_ms=settings.start_wait_ms)

    started = time.perf_counter()
    finished = await asyncio.to_thread(
        finish, reply.text, prefix=prefix, suffix=suffix, language=language, want=want
    )
    if documents.find(ask.uri) is not document or document.revision != revision:
        return Answer(reason="the document has changed since", reply=reply)
    return Answer(
        text=finished.text,
        range=document.range_from(ask.position, covering=finished.replace_after),
        reason=finished.dropped,
        reply=reply,
        syntax=finished.verdict.status,
        context_ms=context_ms,
        verdict_ms=_ms_since(started),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Hole:
    """What is to be filled, in the engine's terms."""

    context: Context
    want: Want
    path: str | None
    language: str | None


def _request(hole: Hole, settings: Settings, *, spent_ms: float) -> InfillRequest:
    return InfillRequest(
        prefix=hole.context.prefix,
        suffix=hole.context.suffix,
        max_tokens=settings.max_tokens,
        language=hole.language,
        path=hole.path,
        want=hole.want,
        mode=settings.mode,
        deadline_ms=max(settings.deadline_ms - spent_ms, LEAST_DEADLINE_MS),
    )


def _ms_since(started: float) -> float:
    return (time.perf_counter() - started) * 1000.0
