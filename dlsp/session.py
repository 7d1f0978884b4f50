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
from dlsp.backend import Backend, EngineLost, EngineTimeout, Health
from dlsp.completion import Ask
from dlsp.document import Documents, Encoding
from dlsp.lifetime import wait_for_death
from dlsp.protocol import Protocol, plain_converter
from dlsp.reply import Answer, detail
from dlsp.scheduler import Scheduler
from dlsp.settings import Settings, parse
from engine.request import EngineError

#: How often a starting engine is asked how far it is.
WATCH_INTERVAL_S = 0.25
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
        self.scheduler: Scheduler[Answer] = Scheduler()
        self._options: object = None
        self._details: dict[str, dict[str, Any]] = {}
        self._backend: Backend | None = None
        self._status: tuple[str, str] | None = None
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
        changed = parsed.settings.engine_identity != self.settings.engine_identity
        self.settings = parsed.settings
        logging.getLogger("dlsp").setLevel(self.settings.log_level.upper())
        if changed and self._backend is not None:
            previous, self._backend = self._backend, None
            self.in_background(previous.close())

    def watch_engine(self) -> None:
        """Start the engine if need be, and report how far it is until it is ready."""
        if self._watch is None or self._watch.done():
            self._watch = self.in_background(self._report_engine())

    async def _report_engine(self) -> None:
        heard = False  # a busy engine may answer slowly: that is not a new start
        while True:
            asking = asyncio.ensure_future(self.backend.health())
            if not (await asyncio.wait({asking}, timeout=WATCH_INTERVAL_S))[0] and not heard:
                self.set_status("starting", "starting the engine")
            try:
                health = await asking
            except EngineError as error:
                self.set_status("error", str(error))
                return
            heard = True
            self.set_status(health.status, _message(health))
            if health.status in ("ready", "error"):
                return
            await asyncio.sleep(WATCH_INTERVAL_S)

    def engine_answered(self, model: str) -> None:
        self.set_status("ready", model)

    def engine_failed(self, error: EngineError) -> None:
        """An expected failure: a status, never a popup."""
        logger.info("no completion: %s", error)
        if isinstance(error, EngineTimeout | EngineLost):
            # It may be loading, or just be coming back: its own word counts.
            self.watch_engine()
        else:
            self.set_status("error", str(error))

    def set_status(self, state: str, message: str) -> None:
        """Tell the client, when something has changed."""
        if self._status != (state, message):
            self._status = (state, message)
            self.protocol.send_notification("dlsp/status", {"state": state, "message": message})

    def remember(self, ask: Ask, answer: Answer) -> None:
        """Keep the detail of an open document's last answer for `dlsp/why`."""
        total_ms = (time.perf_counter() - ask.received) * 1000.0
        logger.debug("answered in %.0f ms: %s", total_ms, answer.reason or "a suggestion")
        if self.documents.find(ask.uri) is not None:
            self._details[ask.uri] = detail(answer, total_ms=total_ms)

    def why(self, uri: str) -> dict[str, Any] | None:
        return self._details.get(uri)

    def forget(self, uri: str) -> None:
        """A document was closed: nobody waits for its completion any more."""
        self.scheduler.supersede(uri)
        self._details.pop(uri, None)

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


def _message(health: Health) -> str:
    if health.status == "ready":
        return health.model or ""
    if health.progress is not None and health.progress[2] > 0:
        what, done, total = health.progress
        return f"{what}, {done / total:.0%}"
    return health.message
