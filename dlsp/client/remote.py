"""An engine at an address that the user gave: what it is, its key, and patience with its limits.

The key comes from the environment or from the system's keyring, never from settings. Too many
requests and failures of the server are retried a little, as long as somebody may be waiting; what
it asks for beyond that is waited out in silence. Does not know requests' contents.
"""

from __future__ import annotations

import asyncio
import email.utils
import ipaddress
import logging
import random
import time
from collections.abc import Mapping
from typing import Any
from urllib.parse import SplitResult, urlsplit

import httpx

from dlsp.client.dialects import FIM_PATH, Dialect, Fim, LlamaServer, Own
from dlsp.client.engine_link import open_client
from dlsp.client.engine_process import EngineUnavailable
from engine.request import WIRE_VERSION, EngineError

logger = logging.getLogger(__name__)

_PROBE_S = 5.0
_RETRIED = frozenset([429, 500, 502, 503, 504])
_ATTEMPTS = 3
_FIRST_WAIT_S = 0.25
#: Nobody waits for a suggestion longer than that; a server that asks for more gets its silence.
_LONGEST_WAIT_S = 1.5
_LONGEST_SILENCE_S = 300.0
#: Endpoints that refuse a request without a model, and the one that fills holes there.
_MODELS: Mapping[str, str] = {"api.inceptionlabs.ai": "mercury-edit-2"}


class RateLimited(EngineError):
    """The engine asked for fewer requests."""

    code, http_status, exit_code = "rate_limited", 429, 6


def describe(url: str) -> str:
    """One clause for the status: where the user's code goes."""
    parts = urlsplit(url)
    if _is_loopback(parts):
        return f"engine at {parts.netloc.rpartition('@')[2]}"
    unsafe = ", unencrypted" if parts.scheme == "http" else ""
    return f"code is sent to {parts.hostname}{unsafe}"


def default_model(url: str) -> str | None:
    """The model to name where the user named none; None: the server has one of its own."""
    return _MODELS.get(urlsplit(url).hostname or "")


class RemoteEngine:
    """A fixed address, as the `Source` of a backend and its only `Line`."""

    backend = "http"

    def __init__(self, url: str, token: str | None, dialect: Dialect | None = None) -> None:
        """`dialect`: None finds out, by the address or by asking the server."""
        parts = urlsplit(url)
        base, known = _by_address(parts)
        self.client = open_client(base, token=token)
        self._parts = parts
        self._has_key = token is not None
        self._dialect = dialect or known
        self._probing = asyncio.Lock()
        self._silent_until = 0.0

    @property
    def dialect(self) -> Dialect:
        """How it is asked; known once `link` has been awaited."""
        assert self._dialect is not None, "link() comes first"
        return self._dialect

    async def link(self) -> RemoteEngine:
        """Ready to be asked; raises RateLimited while it wants to be left alone."""
        wait_s = self._silent_until - time.monotonic()
        if wait_s > 0:
            raise RateLimited(f"{self._parts.hostname} asks to wait {wait_s:.0f} s more")
        async with self._probing:
            await self._find_key()
            if self._dialect is None:
                self._dialect = await self._probe()
        return self

    async def post(self, path: str, fields: dict[str, Any]) -> httpx.Response:
        """Ask; again after a while where the server is overwhelmed or failed."""
        if isinstance(self._dialect, Own):
            return await self.client.post(path, json=fields)  # says itself what to do
        for attempt in range(_ATTEMPTS):
            response = await self.client.post(path, json=fields)
            if response.status_code not in _RETRIED:
                return response
            asked_s = retry_after_s(response.headers.get("retry-after"))
            wait_s = _back_off_s(attempt) if asked_s is None else asked_s
            if wait_s > _LONGEST_WAIT_S:
                self._silent_until = time.monotonic() + min(wait_s, _LONGEST_SILENCE_S)
                raise RateLimited(
                    f"{self._parts.hostname} asks to wait {wait_s:.0f} s "
                    f"(HTTP {response.status_code})"
                )
            if attempt + 1 < _ATTEMPTS:
                await asyncio.sleep(wait_s)
        return response

    def lost(self) -> None:
        """The address stays the same."""

    async def stop(self) -> None:
        """Not ours to stop."""

    async def close(self) -> None:
        await self.client.aclose()

    async def _find_key(self) -> None:
        if self._has_key or _is_loopback(self._parts):
            return
        self._has_key = True  # looked for once, whatever comes of it
        key = await asyncio.to_thread(_key_in_keyring, self._parts.netloc.rpartition("@")[2])
        if key:
            self.client.headers["authorization"] = f"Bearer {key}"

    async def _probe(self) -> Dialect:
        """What answers there: our engine says so, llama-server shows its properties."""
        health = await self._ask("/health")
        if health.get("wire_version") == WIRE_VERSION:
            return Own()
        if "wire_version" in health:
            # What every FIM client knows, another version knows too.
            logger.warning("the engine at %s is of another version", self._parts.hostname)
            return Fim()
        settings = (await self._ask("/props")).get("default_generation_settings")
        if isinstance(settings, dict):
            context = settings.get("n_ctx")
            return LlamaServer(context_tokens=context if isinstance(context, int) else None)
        return Fim()

    async def _ask(self, path: str) -> Mapping[str, Any]:
        try:
            response = await self.client.get(path, timeout=_PROBE_S)
            found = response.json() if response.is_success else None
        except httpx.HTTPError as error:
            raise EngineUnavailable(
                f"cannot reach the engine at {self._parts.hostname} ({type(error).__name__})"
            ) from None
        except ValueError:
            found = None
        return found if isinstance(found, dict) else {}


def retry_after_s(header: str | None) -> float | None:
    """Seconds that a `Retry-After` asks for (a number or a date, RFC 9110 10.2.3), or None."""
    if header is None:
        return None
    if header.strip().isdigit():
        return float(header)
    try:
        return max(email.utils.parsedate_to_datetime(header).timestamp() - time.time(), 0.0)
    except (ValueError, TypeError):
        return None


def _back_off_s(attempt: int) -> float:
    return _FIRST_WAIT_S * 2.0**attempt * random.uniform(1.0, 1.5)


def _by_address(parts: SplitResult) -> tuple[str, Dialect | None]:
    """The base of every request, and the dialect where the address says it."""
    path = parts.path.rstrip("/")
    origin = f"{parts.scheme}://{parts.netloc}"
    if path.endswith("/infill"):
        return origin, LlamaServer(path=path)
    if path.endswith(FIM_PATH):
        return origin + path.removesuffix(FIM_PATH), None  # may be our own engine's
    if path.endswith("/completions"):
        return origin, Fim(path=path)
    if path.endswith("/v1"):
        return origin, Fim(path=f"{path}/fim/completions")
    return origin + path, None


def _is_loopback(parts: SplitResult) -> bool:
    try:
        return ipaddress.ip_address(parts.hostname or "").is_loopback
    except ValueError:
        return parts.hostname == "localhost"


def _key_in_keyring(host: str) -> str | None:
    """The key that `keyring set dlsp HOST` stored; None where there is none, or no keyring."""
    import keyring  # looks for the system's services: only where it is needed
    from keyring.errors import KeyringError

    try:
        return keyring.get_password("dlsp", host)
    except (KeyringError, RuntimeError, OSError) as error:
        logger.info("no keyring: %s", error)
        return None
