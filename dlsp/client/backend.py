"""The client of an engine: one request out, one reply or one typed error back.

Knows retries, time limits and what a broken connection means. Does not know editors or processes:
`engine_finder` finds and starts the local engine, `wire` speaks its JSON. Never imports torch.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any, Protocol

import httpx

from dlsp.client.dialects import Dialect, Own
from dlsp.client.engine_finder import EngineFinder
from dlsp.client.engine_process import EngineUnavailable, ProcessSettings
from dlsp.client.remote import RemoteEngine, default_model
from dlsp.client.wire import (
    BackendReply,
    EngineClosing,
    Health,
    RemoteError,
    parse_error,
    parse_health,
)
from dlsp.config.settings import Settings
from engine.request import EngineError, InfillRequest

__all__ = [
    "Backend",
    "BackendReply",
    "EngineLost",
    "EngineTimeout",
    "EngineUnavailable",
    "Health",
    "ProcessSettings",
    "RemoteError",
]

_WARM_PATH = "/v1/dlsp/warm"
_HEALTH_S = 10.0
#: How far past its deadline an answer may come, at a cursor that rests.
_LATE_MS = 2000.0


class EngineLost(EngineError):
    """The connection broke while the engine worked on the request."""

    code, http_status, exit_code = "engine_lost", 502, 6


class EngineTimeout(EngineError):
    """No answer in the time that the caller would wait."""

    code, http_status, exit_code = "timeout", 504, 6


class Line(Protocol):
    """Where the next request goes."""

    @property
    def client(self) -> httpx.AsyncClient: ...
    @property
    def backend(self) -> str: ...
    @property
    def dialect(self) -> Dialect: ...
    async def post(self, path: str, fields: dict[str, Any]) -> httpx.Response: ...
    def lost(self) -> None: ...


class Source(Protocol):
    """Gives out a line, and closes what it opened."""

    async def link(self) -> Line: ...
    async def close(self) -> None: ...
    async def stop(self) -> None: ...


class Backend:
    """An engine to ask, here or elsewhere. Cancelling a call closes its connection, which ends
    the work in the engine."""

    def __init__(self, source: Source, *, model: str | None) -> None:
        self._source = source
        self._model = model
        self._warms = True

    @classmethod
    def local(cls, settings: Settings, process: ProcessSettings | None = None) -> Backend:
        """The engine that all editors of this user share; started and revived as needed."""
        finder = EngineFinder(
            process or ProcessSettings.of(settings),
            model=settings.model,
            weights=settings.developer.weights,
        )
        return cls(finder, model=settings.model)

    @classmethod
    def remote(
        cls,
        url: str,
        token: str | None = None,
        *,
        model: str | None = None,
        dialect: Dialect | None = None,
    ) -> Backend:
        """Any FIM endpoint, or a llama-server; `dialect` None finds out which.

        The code and the token go to that address as they are: use https outside this machine.
        """
        return cls(RemoteEngine(url, token, dialect), model=model or default_model(url))

    async def complete(
        self, request: InfillRequest, *, wait_ms: float | None = None
    ) -> BackendReply:
        """Fill one hole. `wait_ms`: how long, on top of the deadline, the engine may take to start.

        Without a deadline `wait_ms` bounds the whole call, and without both nothing does.
        """
        limit_ms = wait_ms
        if request.deadline_ms is not None:
            limit_ms = (wait_ms or 0.0) + request.deadline_ms + _LATE_MS
        try:
            async with asyncio.timeout(None if limit_ms is None else limit_ms / 1000.0):
                return await self._complete(request)
        except TimeoutError:
            raise EngineTimeout(
                f"the engine did not answer within {limit_ms:.0f} ms; it may still be loading"
            ) from None

    async def _complete(self, request: InfillRequest) -> BackendReply:
        for last in (False, False, True):
            line = await self._source.link()
            dialect = line.dialect
            try:
                response = await line.post(dialect.path, dialect.render(request, self._model))
            except (httpx.ConnectError, httpx.ConnectTimeout) as error:
                # Nothing was sent: the engine ended between two requests. Find the next one.
                line.lost()
                failure: EngineError = EngineUnavailable(f"cannot reach the engine: {error}")
            except httpx.HTTPError as error:
                line.lost()
                raise EngineLost(
                    f"the engine was lost during the request ({type(error).__name__}); ask again"
                ) from None
            else:
                if response.is_success:
                    return dialect.parse(_json(response), request, line.backend)
                failure = parse_error(response.status_code, _json(response))
                if not isinstance(failure, EngineClosing):
                    raise failure
                line.lost()
            if last:
                raise failure
            await asyncio.sleep(0.05)
        raise AssertionError("unreachable")

    async def warm(self, request: InfillRequest) -> None:
        """Have the context of a request encoded before anybody asks for a completion there.

        Engines other than our own cannot, and are told once only; a failure is of no consequence.
        """
        if not self._warms:
            return
        with contextlib.suppress(EngineError, httpx.HTTPError):
            line = await self._source.link()
            self._warms = isinstance(line.dialect, Own)
            if self._warms:
                fields = line.dialect.render(request, self._model)
                response = await line.post(_WARM_PATH, fields)
                self._warms = response.status_code not in (404, 405)

    async def health(self) -> Health:
        """How the engine is; a local one is started first when it does not run."""
        for last in (False, True):
            line = await self._source.link()
            if not isinstance(line.dialect, Own):
                return Health(model=self._model)  # it was there to say what it is
            try:
                response = await line.client.get("/health", timeout=_HEALTH_S)
            except httpx.HTTPError as error:
                line.lost()
                if last:
                    raise EngineUnavailable(
                        f"cannot reach the engine ({type(error).__name__})"
                    ) from None
                await asyncio.sleep(0.05)
                continue
            if response.status_code == 404:
                return Health()  # a foreign server that has no such page answers, so it is there
            if response.is_success:
                return parse_health(_json(response))
            raise parse_error(response.status_code, _json(response))
        raise AssertionError("unreachable")

    async def stop_engine(self) -> None:
        """Ask the local engine to finish, for everybody; a remote one is left alone."""
        await self._source.stop()

    async def close(self) -> None:
        """Close every connection; the local engine goes on serving others."""
        await self._source.close()


def _json(response: httpx.Response) -> object:
    try:
        return response.json()
    except (ValueError, RecursionError):
        return None
