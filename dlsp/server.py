"""The language server: registrations and thin handlers; pygls lives here and nowhere deeper.

Each handler translates between LSP and one call, and is the last stop for errors: expected ones
become null and a status, bugs a traceback in the log and null. Does not know how a completion
comes about.
"""

from __future__ import annotations

import logging
import signal
import sys
import time

from lsprotocol import types as lsp

from dlsp import custom
from dlsp.completion import Ask, complete
from dlsp.policy.scheduler import Overdue, Superseded
from dlsp.session import Session
from dlsp.suggestion.reply import Answer, inline_completions
from engine.request import EngineError

#: The backend keeps its own time limits; this much later a request is given up whatever happens.
LAST_RESORT_MS = 5000.0

logger = logging.getLogger(__name__)


def serve_stdio() -> int:
    """Serve one editor on stdin and stdout until it is done."""
    logging.basicConfig(stream=sys.stderr, format="%(levelname)s %(name)s: %(message)s")
    # pygls logs every message it sends, code included.
    logging.getLogger("pygls").setLevel(logging.WARNING)
    # Python's own handler would wait for the thread that blocks on stdin.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    if sys.stdin.isatty():
        sys.stderr.write("dlsp speaks LSP on stdin: an editor starts it. Try dlsp --help.\n")
    session = build()
    session.start_io()
    return 0 if session.was_shut_down else 1


def build() -> Session:
    """A session with every handler registered."""
    session = Session()
    feature = session.feature
    feature(lsp.INITIALIZE)(on_initialize)
    feature(lsp.INITIALIZED)(on_initialized)
    feature(lsp.WORKSPACE_DID_CHANGE_CONFIGURATION)(on_configuration)
    feature(lsp.TEXT_DOCUMENT_DID_CHANGE)(on_change)
    feature(lsp.TEXT_DOCUMENT_DID_OPEN)(on_open)
    feature(lsp.TEXT_DOCUMENT_DID_CLOSE)(on_close)
    # Without options pygls advertises nothing.
    feature(lsp.TEXT_DOCUMENT_INLINE_COMPLETION, lsp.InlineCompletionOptions())(on_completion)
    feature(lsp.SHUTDOWN)(on_shutdown)
    custom.register(session)
    return session


def on_initialize(ls: Session, params: lsp.InitializeParams) -> None:
    """Runs after pygls has made its workspace and before it computes the capabilities."""
    ls.open_documents(params)
    ls.read_options(params.initialization_options)
    if params.process_id is not None:
        ls.watch_editor(params.process_id)


def on_initialized(ls: Session, params: lsp.InitializedParams) -> None:
    ls.initialized = True
    ls.in_background(ls.fetch_configuration())


def on_configuration(ls: Session, params: lsp.DidChangeConfigurationParams) -> None:
    ls.in_background(ls.fetch_configuration(params.settings))


def on_change(ls: Session, params: lsp.DidChangeTextDocumentParams) -> None:
    """Runs after pygls has had the document take over the changes."""
    ls.answers.feedback.changed(params.text_document.uri, params.content_changes)
    ls.pace.key()


def on_open(ls: Session, params: lsp.DidOpenTextDocumentParams) -> None:
    """Runs after pygls has opened the document."""
    ls.warm(params.text_document.uri)


def on_close(ls: Session, params: lsp.DidCloseTextDocumentParams) -> None:
    ls.forget(params.text_document.uri)


async def on_completion(
    ls: Session, params: lsp.InlineCompletionParams
) -> lsp.InlineCompletionList | None:
    """Answer with the latest request's suggestion, or null; a cancel passes through."""
    ask = Ask(
        uri=params.text_document.uri,
        position=params.position,
        invoked=params.context.trigger_kind == lsp.InlineCompletionTriggerKind.Invoked,
        received=time.perf_counter(),
        selected=params.context.selected_completion_info,
    )
    answer = await _answer(ls, ask)
    found = inline_completions(answer, ls.remember(ask, answer))
    ls.prepare_next(ask, answer)
    return found


async def _answer(ls: Session, ask: Ask) -> Answer:
    async def work() -> Answer:
        return await complete(ask, ls.desk)

    start_wait_ms = ls.settings.developer.start_wait_ms or 0.0
    limit_ms = ls.settings.deadline_ms + start_wait_ms + LAST_RESORT_MS
    if silence := ls.paused(ask.uri):
        return Answer(reason=silence)
    try:
        with ls.status.working():
            answer = await ls.scheduler.latest(ask.uri, work, limit_s=limit_ms / 1000.0)
    except Superseded:
        return Answer(reason="a newer request of this document took over")
    except Overdue:
        return Answer(reason=f"no answer within {limit_ms:.0f} ms")
    except EngineError as error:
        ls.engine_failed(error)
        return Answer(reason=str(error), error=error)
    except Exception:
        logger.exception("a completion failed: this is a bug in dlsp")
        return Answer(reason="a bug in dlsp; its log has the traceback")
    if answer.reply is not None and answer.reply.backend != "memory":
        ls.engine_answered(answer.reply.model)
    return answer


async def on_shutdown(ls: Session, params: None) -> None:
    await ls.end()
