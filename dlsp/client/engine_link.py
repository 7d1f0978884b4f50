"""HTTP to one engine: the client, the handshake, and presence.

Knows connections and what a broken one means before a request is sent. Does not know completions,
or how an engine is found and started.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import httpx

from dlsp.client.dialects import Dialect, Own
from dlsp.client.engine_process import Endpoint, EngineUnavailable
from dlsp.client.wire import Health, parse_health

HANDSHAKE_S = 10.0


def open_client(
    url: str, *, token: str | None = None, socket: str | None = None, verify: bool = True
) -> httpx.AsyncClient:
    """A client that reads no proxy settings: code must not leave this machine by accident."""
    return httpx.AsyncClient(
        base_url=url,
        headers={"authorization": f"Bearer {token}"} if token else None,
        transport=httpx.AsyncHTTPTransport(
            uds=socket,
            verify=verify,
            trust_env=False,
            limits=httpx.Limits(keepalive_expiry=30.0),  # shorter than the engine's
        ),
        timeout=httpx.Timeout(None, connect=5.0),
        trust_env=False,
    )


class Link:
    """A client to one engine that has noted our presence; `alive` until that presence ends."""

    dialect: Dialect = Own()

    def __init__(self, client: httpx.AsyncClient, presence: httpx.Response, backend: str) -> None:
        self.client = client
        self.backend = backend
        self.alive = True
        self._presence = presence
        self._task = asyncio.ensure_future(self._hold())

    async def _hold(self) -> None:
        try:
            with contextlib.suppress(httpx.HTTPError):
                async for _ in self._presence.aiter_raw():
                    pass
        finally:
            self.alive = False
            await self._presence.aclose()

    async def post(self, path: str, fields: dict[str, Any]) -> httpx.Response:
        """Ask the engine."""
        return await self.client.post(path, json=fields)

    def lost(self) -> None:
        """Note a broken connection: the next request looks for an engine again."""
        self.alive = False

    async def close(self) -> None:
        """Let the engine go; it stays for others, or exits after a while."""
        self.alive = False
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task
        await self.client.aclose()


def client_of(endpoint: Endpoint) -> httpx.AsyncClient:
    # Never TLS on this machine: without `verify` no certificates are read, which takes a while.
    return open_client(endpoint.url, token=endpoint.token, socket=endpoint.socket, verify=False)


async def ask_health(client: httpx.AsyncClient) -> Health | None:
    """What the engine says; None when nobody is there or it is no engine."""
    try:
        response = await client.get("/health", timeout=HANDSHAKE_S)
        return parse_health(response.json()) if response.is_success else None
    except httpx.ReadTimeout:
        raise EngineUnavailable(
            "the engine is there but does not answer; if this lasts, end its process"
        ) from None
    except (httpx.HTTPError, OSError, ValueError):
        return None


async def answers(client: httpx.AsyncClient) -> bool:
    try:
        await client.get("/health", timeout=HANDSHAKE_S)
    except (httpx.HTTPError, OSError):
        return False
    return True


async def attach(client: httpx.AsyncClient) -> httpx.Response | None:
    """Make our presence known; None when the engine is just finishing."""
    try:
        response = await client.send(client.build_request("GET", "/v1/attach"), stream=True)
    except (httpx.HTTPError, OSError):
        return None
    if response.is_success:
        return response
    await response.aclose()
    return None
