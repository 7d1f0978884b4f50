"""The requests and the command that LSP has no name for; thin handlers, like those of `server.py`.

Their parameters and results are plain JSON with keys in camelCase. Does not know how a completion
comes about.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias, cast, get_args

from lsprotocol import types as lsp
from pygls.exceptions import JsonRpcInternalError, JsonRpcInvalidParams

from dlsp.client.engine_facts import ask_engine
from dlsp.diagnosis.recording import record
from dlsp.diagnosis.why import explain
from dlsp.policy.pauses import Scope
from dlsp.scores.scorecard import default_path, read_rows
from dlsp.scores.summary import summarise
from dlsp.session import Session
from dlsp.suggestion.reply import ACCEPTED_COMMAND
from engine.request import EngineError

#: How far back `dlsp/stats` looks when the client does not say.
STATS_DAYS, MOST_DAYS = 30, 10_000

_Handler: TypeAlias = Callable[[Session, Any], Awaitable[Any]]


def register(session: Session) -> None:
    """Add these handlers to a session."""
    feature = session.feature
    feature("dlsp/why")(on_why)
    feature("dlsp/stats")(_told(on_stats))
    feature("dlsp/models")(_told(on_models))
    feature("dlsp/pause")(on_pause)
    feature("dlsp/restart")(on_restart)
    feature("dlsp/replay")(_told(on_replay))
    feature("dlsp/cursor")(on_cursor)
    feature("dlsp/documentText")(on_document_text)
    session.command(ACCEPTED_COMMAND)(on_accepted)


def _told(handler: _Handler) -> _Handler:
    """The same handler; an expected error of it reaches the client as its line alone."""

    @functools.wraps(handler)
    async def told(ls: Session, params: Any) -> Any:
        try:
            return await handler(ls, params)
        except EngineError as error:
            raise JsonRpcInternalError(str(error)) from None

    return told


def on_why(ls: Session, params: Any) -> dict[str, Any] | None:
    """The detail of a document's last answer, and what it means in words."""
    found = ls.answers.why(uri_of(params))
    return {**found, "words": explain(found, ls.settings.engine_url)} if found else None


async def on_stats(ls: Session, params: Any) -> dict[str, Any]:
    """The scorecard's figures."""
    days = params.get("days", STATS_DAYS) if isinstance(params, dict) else STATS_DAYS
    if isinstance(days, bool) or not isinstance(days, int | float) or not 0 < days <= MOST_DAYS:
        raise JsonRpcInvalidParams(f"days must be a number above 0, at most {MOST_DAYS}")
    rows = await asyncio.to_thread(read_rows, default_path(), days=days)
    return summarise(rows, days=days)


async def on_models(ls: Session, params: Any) -> list[dict[str, Any]]:
    """The models that one can name, as the engine's own program lists them."""
    found = await asyncio.to_thread(ask_engine, "models", "--json")
    return [
        {
            "name": model["name"],
            "description": model["description"],
            "licence": model["licence"],
            "sizeMb": model["megabytes"],
            "current": model["name"] == ls.settings.model,
            "onDisk": model["cached"],
        }
        for model in found
    ]


def on_pause(ls: Session, params: Any) -> dict[str, bool]:
    """Be silent, or go on: everywhere, in the language of a document, or in that document."""
    given = params if isinstance(params, dict) else {}
    scope, paused, uri = given.get("scope"), given.get("paused"), given.get("uri")
    scopes = get_args(Scope)
    if scope not in scopes:
        raise JsonRpcInvalidParams(f"scope must be one of {', '.join(scopes)}")
    if not isinstance(paused, bool):
        raise JsonRpcInvalidParams("paused must be true or false")
    uri = uri if isinstance(uri, str) else None
    if scope != "all" and uri is None:
        raise JsonRpcInvalidParams(f"scope {scope!r} needs the uri of a document")
    if scope == "language" and ls.documents.find(uri or "") is None:
        raise JsonRpcInvalidParams(f"no document {uri!r} is open, so its language is not known")
    ls.pause(cast(Scope, scope), uri, paused=paused)
    return {"paused": paused}


async def on_restart(ls: Session, params: Any) -> None:
    """Ask the engine to finish, for everybody, and start it again."""
    await ls.restart_engine()


def on_cursor(ls: Session, params: Any) -> None:
    """The cursor rests at a position: the next suggestion there may be wanted soon."""
    given = params.get("position") if isinstance(params, dict) else None
    if not isinstance(given, dict):
        return
    with contextlib.suppress(KeyError, ValueError):  # none, or none of LSP's
        position = lsp.Position(line=given["line"], character=given["character"])
        ls.warm(uri_of(params), position)


async def on_replay(ls: Session, params: Any) -> dict[str, str] | None:
    """Write a replay file of what the engine was asked last for a document; null before that."""
    asked = ls.answers.asked(uri_of(params))
    if asked is None:
        return None
    with_code = params.get("withCode") is True
    path = await record(asked, ls.backend, model=ls.settings.model, with_code=with_code)
    return {"path": str(path)}


def on_accepted(ls: Session, suggestion_id: str = "") -> None:
    """The client has just put a suggestion into the document."""
    if not suggestion_id:  # pygls passes none where the client leaves `arguments` out
        raise JsonRpcInvalidParams(f"{ACCEPTED_COMMAND} needs the id of a suggestion")
    ls.answers.feedback.accepted(suggestion_id)


def on_document_text(ls: Session, params: Any) -> dict[str, Any] | None:
    """The mirror's text, for tests that compare it with the editor's."""
    document = ls.documents.find(uri_of(params)) if ls.settings.developer.debug else None
    return {"text": document.text, "version": document.version} if document else None


def uri_of(params: Any) -> str:
    """The document that a request is about; empty when it names none."""
    found = params.get("textDocument", {}) if isinstance(params, dict) else {}
    return str(found.get("uri", "")) if isinstance(found, dict) else ""
