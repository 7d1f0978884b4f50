"""What is done before anybody asks: the suggestion after this one, and the context of a cursor.

Idle work: it is begun when nothing is asked for, ended by any request, and shown to nobody; what
comes of it is in memory, and in the engine's cache. Does not know tasks or pygls.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Final

from lsprotocol import types as lsp

from dlsp.completion import Desk, Hole, as_suggestion, finished_reply, is_lasting, wanted
from dlsp.policy.gate import Gate, decide
from dlsp.suggestion.cursor import Cursor
from dlsp.suggestion.memory import NEAR, Suggestion
from dlsp.text.postprocess import Place
from engine.request import EngineError

#: How long a suggestion stands before the one behind it is prepared, and a cursor rests before
#: its context is: typing goes first.
AFTER_S: Final = 0.15
#: Nobody waits, so the engine may take its time.
_DEADLINE_MS: Final = 3000.0
#: Where the cursor of a document just opened is nobody tells: most cursors see its first part.
_FIRST_LINES: Final = 60

logger = logging.getLogger(__name__)


async def prepare_next(uri: str, cursor: Cursor, shown: Suggestion, desk: Desk) -> None:
    """Have the suggestion that follows accepting `shown` at `cursor` in memory."""
    document = cursor.document
    after = cursor.scene()
    scene = replace(
        after,
        prefix=after.prefix + shown.text,
        suffix=after.suffix[shown.covers :],
        last_edit="other",
    )
    if desk.memory.recall(uri, scene.prefix[-2 * NEAR :], scene.suffix[: 2 * NEAR]) is not None:
        return
    settings = desk.settings
    if desk.surroundings.silence(document, settings) is not None:
        return
    gate = decide(scene, mode=settings.mode, mood=settings.mood, invoked=False)
    if not gate.ask:
        return
    context = cursor.context()
    hole = Hole(
        context=replace(
            context, prefix=context.prefix + shown.text, suffix=context.suffix[shown.covers :]
        ),
        want=wanted(gate.want, settings),
        path=document.path,
        language=scene.language,
        snippets=desk.surroundings.snippets(document, settings),
    )
    place = Place(prefix=scene.prefix, suffix=scene.suffix, language=scene.language)
    await _fill(uri, hole, place, gate, desk)


async def _fill(uri: str, hole: Hole, place: Place, gate: Gate, desk: Desk) -> None:
    request = replace(
        hole.request(desk.settings, spent_ms=0.0), deadline_ms=_DEADLINE_MS, idle=True
    )
    try:
        reply = await desk.backend.complete(request)
    except EngineError as error:
        logger.debug("nothing was prepared: %s", error)
        return
    if is_lasting(reply):
        finished = await finished_reply(reply, place, want=hole.want, gate=gate)
        desk.memory.keep(uri, as_suggestion(finished, place, reply))


async def choose_snippets(cursor: Cursor, desk: Desk) -> None:
    """Have what is shown besides chosen for a cursor that rests."""
    line = cursor.end.line
    await desk.surroundings.choose(cursor.document, line, desk.documents, desk.settings)


async def warm(cursor: Cursor, desk: Desk) -> None:
    """Choose what is shown besides, and have the engine encode what a request here would send.

    An engine elsewhere may count requests: it is left alone.
    """
    document, settings, surroundings = cursor.document, desk.settings, desk.surroundings
    if surroundings.silence(document, settings) is not None:
        return
    await choose_snippets(cursor, desk)
    if settings.engine_url is not None:
        return
    hole = Hole(
        context=cursor.context(),
        want="line",
        path=document.path,
        language=document.language,
        snippets=surroundings.snippets(document, settings),
    )
    await desk.backend.warm(hole.request(settings, spent_ms=0.0))


def first_place(line_count: int) -> lsp.Position:
    """Where to warm a document of which no cursor is known yet."""
    return lsp.Position(line=min(line_count - 1, _FIRST_LINES), character=0)
