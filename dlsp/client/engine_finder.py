"""A living link to a fitting local engine: finds one, starts one, replaces one.

Knows the version handshake, the start lock and back-off. Presence (`/v1/attach`) is held open for
as long as this process wants the engine to stay. Does not know completions.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import subprocess
import time
from collections.abc import AsyncIterator

import httpx
from filelock import Timeout

from dlsp import __version__
from dlsp.client.engine_link import HANDSHAKE_S, Link, answers, ask_health, attach, client_of
from dlsp.client.engine_process import (
    BackOff,
    Endpoint,
    EngineFolder,
    EngineUnavailable,
    ProcessSettings,
)
from dlsp.client.wire import Health
from engine.request import WIRE_VERSION

logger = logging.getLogger(__name__)

_FINISH_S = 15.0
_POLL_S = 0.03
_LONGEST_PATIENCE_S = 2.0  # a shorter back-off is waited for, a longer one is told


class _Misfit(Exception):
    """An engine answers, but is of another version or serves another model."""

    def __init__(self, endpoint: Endpoint, health: Health) -> None:
        super().__init__(health.version)
        self.endpoint = endpoint
        self.health = health


class EngineFinder:
    """Gives out a living link to an engine of our version and model."""

    def __init__(
        self, settings: ProcessSettings, *, model: str | None, weights: str | None
    ) -> None:
        self._settings = settings
        self._model = model
        # The engine runs in another folder, so a relative path would mean another file there.
        self._weights = os.path.abspath(weights) if weights else None
        self._folder = EngineFolder(settings)
        self._back_off = BackOff()
        self._link: Link | None = None
        self._retired: Link | None = None
        self._finding: asyncio.Task[Link] | None = None
        self._children: list[subprocess.Popen[bytes]] = []

    async def link(self) -> Link:
        """The current link, or a new one. Cancelling the caller does not stop the search."""
        if self._link is not None and self._link.alive:
            return self._link
        if self._finding is None or self._finding.done():
            self._finding = asyncio.ensure_future(self._find())
            self._finding.add_done_callback(_retrieve)
        return await asyncio.shield(self._finding)

    async def close(self) -> None:
        """Let go of the engine and of any search for one."""
        if self._finding is not None:
            self._finding.cancel()
            with contextlib.suppress(asyncio.CancelledError, Exception):
                await self._finding
        if self._link is not None:
            await self._link.close()
        if self._retired is not None:
            await self._retired.close()
        self._reap()
        for child in self._children:
            child.returncode = 0  # lives on; else Popen warns about a child nobody waited for

    async def stop(self) -> None:
        """Ask the running engine, if there is one, to finish, and wait until it does."""
        await asyncio.to_thread(self._folder.prepare)
        async with self._locked():
            endpoint = self._folder.endpoint()
            if endpoint is not None:
                async with client_of(endpoint) as client:
                    health = await ask_health(client)
                if health is not None:
                    await self._end(endpoint, health)

    async def _find(self) -> Link:
        if self._link is not None:
            # Its engine may yet finish what it has begun, so its client stays for one more round.
            stale, self._retired, self._link = self._retired, self._link, None
            if stale is not None:
                await stale.close()
        self._folder.prepare()
        link = None
        with contextlib.suppress(_Misfit):
            link = await self._connect()
        if link is None:
            async with self._locked():
                link = await self._connect_or_replace() or await self._start()
        self._link = link
        return link

    @contextlib.asynccontextmanager
    async def _locked(self) -> AsyncIterator[None]:
        """Hold the start lock; polled, so that giving up never leaves it taken."""
        while True:
            try:
                lock = self._folder.start_lock.acquire(timeout=0)
                break
            except Timeout:
                await asyncio.sleep(_POLL_S)
            except OSError as error:
                raise EngineUnavailable(
                    f"cannot lock {self._folder.path}: {error.strerror}"
                ) from None
        try:
            yield
        finally:
            lock.lock.release()

    async def _connect(self) -> Link | None:
        """A link to the engine that announces itself, or None; raises `_Misfit`."""
        endpoint = self._folder.endpoint()
        if endpoint is None:
            return None
        client = client_of(endpoint)
        try:
            health = await ask_health(client)
            if health is not None:
                if not self._fits(health):
                    raise _Misfit(endpoint, health)
                presence = await attach(client)
                if presence is not None:
                    return Link(client, presence, "unix" if endpoint.socket else "http")
        except BaseException:
            await client.aclose()
            raise
        await client.aclose()
        return None

    async def _connect_or_replace(self) -> Link | None:
        """`_connect`, ending an engine that does not fit; the caller holds the start lock."""
        try:
            return await self._connect()
        except _Misfit as misfit:
            await self._end(misfit.endpoint, misfit.health)
            return None

    def _fits(self, health: Health) -> bool:
        if (health.version, health.wire_version) != (__version__, WIRE_VERSION):
            return False
        if self._model is None and self._weights is None:
            return True
        # A model named without a file means its own weights, not whatever file another user of
        # that name gave.
        return self._model in (None, health.model) and self._weights == health.weights

    async def _end(self, endpoint: Endpoint, health: Health) -> None:
        """Ask an engine to finish, and wait until it no longer announces itself."""
        logger.info("ending engine %s with model %s", health.version, health.model)
        async with client_of(endpoint) as client:
            await self._ask_to_finish(client, health)
            until = time.monotonic() + _FINISH_S
            while (now := self._folder.endpoint()) and now.instance == endpoint.instance:
                if not await answers(client):
                    return
                if time.monotonic() > until:
                    raise EngineUnavailable(
                        f"an engine of version {health.version} (process {health.pid}) does not "
                        "finish; end that process"
                    )
                await asyncio.sleep(_POLL_S)

    async def _ask_to_finish(self, client: httpx.AsyncClient, health: Health) -> None:
        asked = False
        with contextlib.suppress(httpx.HTTPError):
            asked = (await client.post("/v1/shutdown", timeout=HANDSHAKE_S)).is_success
        if not asked and health.pid is not None and health.pid > 1:
            # The pid is what the engine behind our private endpoint just said, so it is not stale;
            # the system refuses the signal if the process is not ours.
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(health.pid, signal.SIGTERM)

    async def _start(self) -> Link:
        """Start an engine and wait until it answers; the caller holds the start lock."""
        self._reap()
        wait_s = self._back_off.wait_s()
        if wait_s > _LONGEST_PATIENCE_S:
            raise EngineUnavailable(
                f"the engine stopped several times; next try in {wait_s:.0f} s: "
                f"{self._folder.last_words()}"
            )
        await asyncio.sleep(wait_s)
        self._back_off.started()
        child = self._folder.start(self._model, self._weights)
        self._children.append(child)
        until = time.monotonic() + self._settings.start_timeout_s
        while True:
            ended = child.poll() is not None  # looked at first: it may have found another engine
            try:
                link = await self._connect()
            except _Misfit as misfit:
                raise EngineUnavailable(
                    f"the engine just started is version {misfit.health.version} with model "
                    f"{misfit.health.model}, not {__version__} with {self._model}; reinstall dlsp"
                ) from None
            if link is not None:
                return link
            if ended:
                raise EngineUnavailable(
                    f"the engine ended at once (exit code {child.returncode}): "
                    f"{self._folder.last_words()}"
                )
            if time.monotonic() > until:
                raise EngineUnavailable(
                    f"the engine did not come up in {self._settings.start_timeout_s:g} s: "
                    f"{self._folder.last_words()}"
                )
            await asyncio.sleep(_POLL_S)

    def _reap(self) -> None:
        """Collect the exit codes of engines that have ended; the others live on without us."""
        self._children = [child for child in self._children if child.poll() is None]


def _retrieve(task: asyncio.Task[Link]) -> None:
    """Look at the outcome of a search that everybody stopped waiting for."""
    if not task.cancelled():
        task.exception()
