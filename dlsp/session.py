"""One editor session: settings, documents, the engine's client, status, and last answers.

Owns everything that changes while an editor is connected; the handlers in `server.py` call it.
Does not know how a completion comes about.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import time
from collections.abc import Coroutine
from typing import Any, cast

from lsprotocol import types as lsp
from pygls.capabilities import ServerCapabilitiesBuilder
from pygls.lsp.server import LanguageServer

from dlsp import __version__
from dlsp.ahead import AFTER_S, choose_snippets, first_place, prepare_next, warm
from dlsp.client.backend import Backend, EngineLost, EngineTimeout
from dlsp.completion import Ask, Desk, Filled
from dlsp.config.settings import Settings, parse
from dlsp.context.surroundings import Surroundings
from dlsp.engine_watch import follow_start
from dlsp.lifetime import wait_for_death
from dlsp.policy.pauses import Pauses, Place, Scope
from dlsp.policy.scheduler import Scheduler
from dlsp.policy.timing import Pace
from dlsp.protocol import Protocol, plain_converter
from dlsp.scores.answers import Answers, language_of
from dlsp.status import EngineState, Status
from dlsp.suggestion.cursor import Cursor
from dlsp.suggestion.flights import Flights
from dlsp.suggestion.memory import Memory
from dlsp.suggestion.reply import Answer
from dlsp.text.document import Documents, Encoding
from engine.request import EngineError

#: How long closing the engine's connection may hold up the end of the process.
CLOSE_LIMIT_S = 1.0

logger = logging.getLogger(__name__)


class Session(LanguageServer):
    """The server object that pygls hands to every handler."""

    protocol: Protocol

    def __init__(self) -> None:
        super().__init__(
            "dlsp", __version__, protocol_cls=Protocol, converter_factory=plain_converter
        )
        self.settings = Settings()
        self.initialized = False
        self.scheduler: Scheduler[Answer] = Scheduler()
        self._options: object = None
        self.answers = Answers()
        self._backend: Backend | None = None
        self.status = Status(self._send_status)
        self.pace = Pace()
        self._memory = Memory()
        self._flights: Flights[Filled] = Flights()
        self._surroundings = Surroundings()
        self._pauses = Pauses()
        self._said: set[str] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._watch: asyncio.Task[None] | None = None

    @property
    def documents(self) -> Documents:
        return cast(Documents, self.protocol.workspace)

    @property
    def was_shut_down(self) -> bool:
        """Whether the client said `shutdown`, rather than vanish."""
        return self.protocol._shutdown

    @property
    def backend(self) -> Backend:
        """The client of the engine that the settings name; made on first use."""
        if self._backend is None:
            settings = self.settings
            if settings.engine_url is not None:
                # Our default's name says nothing to an engine elsewhere; a chosen one does.
                chosen = settings.model if settings.model != Settings().model else None
                self._backend = Backend.remote(
                    settings.engine_url, settings.engine_token, model=chosen
                )
            else:
                self._backend = Backend.local(settings)
        return self._backend

    @property
    def desk(self) -> Desk:
        """What the next request works with."""
        self._surroundings.open_folders(self.documents.folder_paths())
        return Desk(
            documents=self.documents,
            backend=self.backend,
            settings=self.settings,
            memory=self._memory,
            pace=self.pace,
            flights=self._flights,
            surroundings=self._surroundings,
        )

    def prepare_next(self, ask: Ask, answer: Answer) -> None:
        """Have the suggestion behind this one ready, if nobody asks for another in the meantime."""
        document, shown, desk = self.documents.find(ask.uri), answer.suggestion, self.desk
        if document is None or answer.error is not None:
            return
        # An engine elsewhere may count requests, and cannot be told that this one may be late.
        if shown is None or ask.selected or self.settings.engine_url:
            self.warm(ask.uri, ask.position)
            return
        revision, cursor = document.revision, Cursor.at(document, ask.position)

        async def work() -> None:
            if document.revision == revision:
                await choose_snippets(cursor, desk)
                await prepare_next(ask.uri, cursor, shown, desk)

        self.scheduler.when_idle(work, after_s=AFTER_S)

    def warm(self, uri: str, position: lsp.Position | None = None) -> None:
        """Have the context of a resting cursor ready; of a document just opened, its first part."""
        document = self.documents.find(uri)
        if document is None or not self.initialized or self.paused(uri):
            return
        cursor = Cursor.at(document, position or first_place(document.line_count))
        self.scheduler.when_idle(lambda: warm(cursor, self.desk), after_s=AFTER_S)

    def open_documents(self, params: lsp.InitializeParams) -> None:
        """Put our documents in place of pygls' own, in the encoding that it will announce."""
        encoding = ServerCapabilitiesBuilder.choose_position_encoding(params.capabilities)
        self.protocol._workspace = Documents(
            root_uri=params.root_uri,
            folders=params.workspace_folders or (),
            encoding=cast(Encoding, str(getattr(encoding, "value", encoding))),
        )

    def read_options(self, options: object) -> None:
        """Take over the initialization options."""
        self._options = options
        self._configure(None)

    async def fetch_configuration(self, pushed: object = None) -> None:
        """Ask the client for its settings, where it has any to give, then start the engine."""
        workspace = self.client_capabilities.workspace
        if workspace is not None and workspace.configuration:
            item = lsp.ConfigurationItem(section="dlsp")
            try:
                # Never cancelled: pygls 2.1.1 fails on a late answer to a cancelled request.
                found = await self.workspace_configuration_async(
                    lsp.ConfigurationParams(items=[item])
                )
                self._configure(found[0] if found else None)
            except Exception as error:
                logger.warning("the client's settings could not be read: %s", error)
        elif isinstance(pushed, dict):
            self._configure(pushed.get("dlsp"))
        self.watch_engine()

    def _configure(self, configuration: object) -> None:
        layers = (("initializationOptions", self._options), ("settings", configuration))
        parsed = parse(environment=os.environ, layers=layers)
        for problem in parsed.problems:
            if problem not in self._said:
                self._said.add(problem)
                self._log(problem, lsp.MessageType.Warning)
        before, self.settings = self.settings, parsed.settings
        if self.settings != before:
            self._memory = Memory()  # what was suggested under other settings does not count
        others = self.settings.engine_identity != before.engine_identity
        limits = self.settings.engine_limits != before.engine_limits
        self.status.engine_at(self.settings.engine_url)
        self.answers.keep_figures = self.settings.developer.scorecard
        logging.getLogger("dlsp").setLevel(self.settings.log_level.upper())
        if (others or limits) and self._backend is not None:
            previous, self._backend = self._backend, None
            self.in_background(_part_with(previous, end=limits and not others))

    def watch_engine(self) -> None:
        """Start the engine if need be, and report how far it is until it is ready."""
        if self._watch is None or self._watch.done():
            self._watch = self.in_background(
                follow_start(lambda: self.backend.health(), self.status.engine)
            )

    async def restart_engine(self) -> None:
        """End the local engine, for everybody, and start it again; a remote one is left alone."""
        self.status.engine(EngineState(state="starting", message="restarting the engine"))
        try:
            await self.backend.stop_engine()
        except EngineError as error:
            self.engine_failed(error)
        self.watch_engine()

    def engine_answered(self, model: str) -> None:
        self.status.engine(EngineState(state="ready", message=model, model=model))

    def engine_failed(self, error: EngineError) -> None:
        """An expected failure: a status, never a popup."""
        logger.info("no completion: %s", error)
        if isinstance(error, EngineTimeout | EngineLost):
            # It may be loading, or just be coming back: its own word counts.
            self.watch_engine()
        else:
            self.status.engine(EngineState(state="error", message=str(error)))

    def _send_status(self, state: dict[str, Any]) -> None:
        self.protocol.send_notification("dlsp/status", state)

    def pause(self, scope: Scope, uri: str | None, *, paused: bool) -> None:
        """Be silent, or go on."""
        self._pauses.set(scope, None if uri is None else self._place(uri), paused=paused)
        self.status.pause(self._pauses.everywhere)

    def paused(self, uri: str) -> str | None:
        """Why there is silence in a document, if the user wanted it."""
        return self._pauses.reason(self._place(uri))

    def _place(self, uri: str) -> Place:
        document = self.documents.find(uri)
        return Place(uri=uri, language=language_of(document) if document else "")

    def remember(self, ask: Ask, answer: Answer) -> str | None:
        """Keep an open document's last answer for `dlsp/why`; the id of what is shown, if any."""
        total_ms = (time.perf_counter() - ask.received) * 1000.0
        logger.debug("answered in %.0f ms: %s", total_ms, answer.reason or "a suggestion")
        document = self.documents.find(ask.uri)
        if document is None:
            return None
        suggestion_id = self.answers.remember(document, answer, total_ms=total_ms)
        if suggestion_id is not None:
            self.status.answered(total_ms)
        return suggestion_id

    def forget(self, uri: str) -> None:
        """A document was closed: nobody waits for its completion any more."""
        self.scheduler.supersede(uri)
        self.answers.forget(uri)
        self._memory.forget(uri)
        self._flights.end(uri)
        self._surroundings.forget(uri)

    def watch_editor(self, process_id: int) -> None:
        """End this process when the editor's is gone."""
        self.in_background(self._end_with(process_id))

    async def _end_with(self, process_id: int) -> None:
        await wait_for_death(process_id)
        await self.end()
        # A thread still blocks on stdin, which some other process holds open: only this ends it.
        os._exit(1)

    async def end(self) -> None:
        """Let go of the engine, which goes on serving other editors."""
        self.scheduler.supersede_all()
        self._flights.end_all()
        await self.answers.close()
        backend, self._backend = self._backend, None
        if backend is not None:
            with contextlib.suppress(TimeoutError, EngineError):
                await asyncio.wait_for(backend.close(), CLOSE_LIMIT_S)

    def in_background(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run something nobody waits for; a failure of it is logged, never lost."""
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            logger.error("a background task failed: bug in dlsp", exc_info=task.exception())

    def report_server_error(self, error: Exception, source: Any) -> None:
        """Errors go to the log: pygls would open a popup in the editor for each."""
        logger.error("%s: %s", getattr(source, "__name__", source), error)

    def _log(self, message: str, kind: lsp.MessageType) -> None:
        self.window_log_message(lsp.LogMessageParams(type=kind, message=f"dlsp: {message}"))


async def _part_with(backend: Backend, *, end: bool) -> None:
    """Let go of an engine; `end`: it was started with other limits, so the next starts anew."""
    with contextlib.suppress(EngineError):
        if end:
            await backend.stop_engine()
    await backend.close()
