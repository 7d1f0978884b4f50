"""The path of one request, top to bottom: cursor, memory, gate, wait, engine, postprocess, answer.

Reads like a table of contents; every station lives in its own room. Does not know pygls, tasks
or the wire; what lasts between requests is in the desk it is given.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field, replace

from lsprotocol import types as lsp

from dlsp.client.backend import Backend, BackendReply
from dlsp.config.settings import Settings
from dlsp.context.sides import Context
from dlsp.context.surroundings import Surroundings
from dlsp.guard.privacy import blanked
from dlsp.policy.gate import Gate, Scene, decide
from dlsp.policy.timing import Pace
from dlsp.suggestion.cursor import Cursor
from dlsp.suggestion.flights import Flights
from dlsp.suggestion.memory import Memory, Suggestion, near
from dlsp.suggestion.reply import Answer
from dlsp.text.document import Documents
from dlsp.text.postprocess import Finished, Place, finish
from engine.request import InfillRequest, Snippet, Sources, StageTimes, Want

#: The least the engine is given, however much of the deadline went before it was asked.
LEAST_DEADLINE_MS = 50.0
#: With nothing worth showing at the deadline, an answer may come until then: at a resting cursor a
#: late one is welcome. So long also newer requests wait for it: to begin anew would take longer.
PATIENCE_MS = 2000.0
STALE = "the document has changed since"

#: What the engine said, and what of it may be shown.
Filled = tuple[BackendReply, Finished]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """One client request; `received` is a `time.perf_counter()` reading.

    `selected`: the item that is selected in the editor's own list, if it is open.
    """

    uri: str
    position: lsp.Position
    invoked: bool
    received: float
    selected: lsp.SelectedCompletionInfo | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Desk:
    """What a request works with; documents, memory and pace last as long as the session."""

    documents: Documents
    backend: Backend
    settings: Settings
    memory: Memory = field(default_factory=Memory)
    pace: Pace = field(default_factory=Pace)
    flights: Flights[Filled] = field(default_factory=Flights)
    surroundings: Surroundings = field(default_factory=Surroundings)


async def complete(ask: Ask, desk: Desk) -> Answer:
    """Answer one request; raises EngineError when the engine cannot."""
    document = desk.documents.find(ask.uri)
    if document is None:
        return Answer(reason="the document is not open")
    silence = desk.surroundings.silence(document, desk.settings)
    if silence is not None:
        return Answer(reason=silence)
    cursor = Cursor.at(document, ask.position, ask.selected)
    before, after = cursor.near()

    remembered = recall(ask, cursor, desk)
    _learn(remembered, departed=bool(desk.memory.guess(ask.uri, before, after)), pace=desk.pace)
    if remembered is not None:
        return remembered
    scene = cursor.scene()
    settings = desk.settings
    gate = decide(scene, mode=settings.mode, mood=settings.mood, invoked=ask.invoked)
    if not gate.ask:
        return Answer(reason=gate.reason, gate=gate)
    revision = document.revision
    await desk.pace.wait(gate.kind, invoked=ask.invoked)
    await desk.flights.join(ask.uri, before, after)
    if desk.documents.find(ask.uri) is not document or document.revision != revision:
        return Answer(reason=STALE, gate=gate)
    return recall(ask, cursor, desk) or await _ask_engine(ask, cursor, scene, gate, desk)


async def _ask_engine(ask: Ask, cursor: Cursor, scene: Scene, gate: Gate, desk: Desk) -> Answer:
    """The engine's suggestion, in place; kept in memory even where it comes too late."""
    document, settings = cursor.document, desk.settings
    revision = document.revision
    before, after = cursor.near()
    hole = Hole(
        context=cursor.context(),
        want=wanted(gate.want, settings),
        path=document.path,
        language=scene.language,
        guess=desk.memory.guess(ask.uri, before, after),
        snippets=desk.surroundings.snippets(document, settings),
    )
    context_ms = _ms_since(ask.received)
    request = hole.request(settings, spent_ms=context_ms)
    place = Place(
        prefix=scene.prefix,
        suffix=scene.suffix,
        language=scene.language,
        may_cover=not ask.selected,
    )

    async def fill() -> Filled:
        reply = await desk.backend.complete(request, wait_ms=settings.developer.start_wait_ms)
        desk.surroundings.learn(reply)
        finished = await finished_reply(reply, place, want=hole.want, gate=gate)
        if is_lasting(reply):
            desk.memory.keep(ask.uri, as_suggestion(finished, place, reply))
        return reply, finished

    here = near(Suggestion(before=place.prefix, text="", after=place.suffix))
    reply, finished = await desk.flights.run(ask.uri, here, fill, serves_s=PATIENCE_MS / 1000.0)
    if desk.documents.find(ask.uri) is not document or document.revision != revision:
        return Answer(reason=STALE, gate=gate, request=request, reply=reply)
    return Answer(
        text=cursor.selected + finished.text if finished.text else "",
        range=cursor.range(finished.replace_after),
        reason=finished.dropped,
        gate=gate,
        request=request,
        reply=reply,
        syntax=finished.verdict.status,
        context_ms=context_ms,
        verdict_ms=finished.ms,
        suggestion=as_suggestion(finished, place, reply),
    )


def _learn(remembered: Answer | None, *, departed: bool, pace: Pace) -> None:
    """Whether the last suggestion came true decides how long the next request waits."""
    if remembered is not None or departed:
        pace.judge(came_true=remembered is not None)


def recall(ask: Ask, cursor: Cursor, desk: Desk) -> Answer | None:
    """An answer without the engine: what is left of a suggestion that is being typed."""
    if cursor.document.edits.kind in ("undone", "composed") and not ask.invoked:
        return None  # who has just taken a suggestion back does not want to see it again
    before, after = cursor.near()
    found = desk.memory.recall(ask.uri, before, after)
    if found is None or (ask.selected is not None and found.covers):
        return None
    reply = _from_memory(found.suggestion)
    if not found.text:
        silent = "there was nothing to suggest here a moment ago"
        return None if ask.invoked else Answer(reason=silent, reply=reply)
    return Answer(
        text=cursor.selected + found.text,
        range=cursor.range(found.covers),
        reply=reply,
        syntax=found.suggestion.syntax,
        suggestion=replace(
            found.suggestion, before=before, text=found.text, after=after, covers=found.covers
        ),
    )


def _from_memory(suggestion: Suggestion) -> BackendReply | None:
    """The engine's reply of then, without what it cost: this time it was not asked."""
    if suggestion.reply is None:
        return None
    return replace(
        suggestion.reply,
        backend="memory",
        text="",
        tokens=0,
        forwards=0,
        steps=0,
        sources=Sources(),
        ms=StageTimes(),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Hole:
    """What is to be filled, in the engine's terms."""

    context: Context
    want: Want
    path: str | None
    language: str | None
    guess: str = ""
    snippets: tuple[Snippet, ...] = ()

    def request(self, settings: Settings, *, spent_ms: float) -> InfillRequest:
        """Ask for it to be filled within what is left of the user's deadline."""
        prefix, suffix = blanked(self.context.prefix, self.context.suffix)
        return InfillRequest(
            prefix=prefix,
            suffix=suffix,
            snippets=self.snippets,
            max_tokens=settings.developer.max_tokens,
            language=self.language,
            path=self.path,
            want=self.want,
            mode=settings.developer.decoding,
            deadline_ms=max(settings.deadline_ms - spent_ms, LEAST_DEADLINE_MS),
            patience_ms=PATIENCE_MS,
            guess=self.guess,
        )


def wanted(by_place: Want, settings: Settings) -> Want:
    """A line or a block, by the place and what the settings allow."""
    if settings.developer.want != "auto":
        return settings.developer.want
    return by_place if settings.multi_line else "line"


async def finished_reply(reply: BackendReply, place: Place, *, want: Want, gate: Gate) -> Finished:
    """The reply as it may be shown, or why it may not; in a thread, since parsing takes a while."""
    started = time.perf_counter()
    cut_short = reply.finish_reason in ("deadline", "length")
    finished = await asyncio.to_thread(finish, reply.text, place, want=want, cut_short=cut_short)
    finished = replace(finished, ms=_ms_since(started))
    if finished.text and not gate.shows(reply.confidence):
        unsure = f"not sure enough ({reply.confidence:.2f} < {gate.least_confidence:.2f})"
        return replace(finished, text="", replace_after=0, dropped=unsure)
    return finished


def as_suggestion(finished: Finished, place: Place, reply: BackendReply) -> Suggestion:
    """What memory keeps."""
    return Suggestion(
        before=place.prefix,
        text=finished.text,
        after=place.suffix,
        covers=finished.replace_after,
        syntax=finished.verdict.status,
        reply=reply,
    )


def is_lasting(reply: BackendReply) -> bool:
    """Whether asking again would bring the same: what time cut off to nothing, it would not."""
    return reply.finish_reason != "cancelled" and bool(
        reply.text or reply.finish_reason != "deadline"
    )


def _ms_since(started: float) -> float:
    return (time.perf_counter() - started) * 1000.0
