"""The engine's HTTP interface, as an ASGI application around one worker.

Knows routes, the bearer token and body limits. Does not know the model, or on which socket it is
served.
"""

from __future__ import annotations

import hmac
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from engine.request import WIRE_VERSION, EngineError, InfillResult, UnknownModel
from engine.streams import Attachment, Presence, Stream, result_or_disconnect
from engine.wire import Completion, parse_completion, render_chunk, render_error, render_figures
from engine.worker import Stopped, Worker

MAX_BODY_BYTES = 8 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """What this engine says it is; a client that wants another one replaces it."""

    model: str
    weights: str | None
    version: str
    pid: int


class Unauthorized(EngineError):
    """The bearer token is missing or wrong."""

    code, http_status, exit_code = "unauthorized", 401, 5


class BodyTooLarge(EngineError):
    """More text than any request needs."""

    code, http_status, exit_code = "too_large", 413, 2


class Api:
    """The handlers. `finish` asks the server around this application to end."""

    def __init__(
        self, worker: Worker, identity: Identity, presence: Presence, finish: Callable[[], None]
    ) -> None:
        self._worker = worker
        self._identity = identity
        self._presence = presence
        self._finish = finish

    async def health(self, request: Request) -> Response:
        """How far the model is, and who this engine is; answered at any time."""
        state = self._worker.state
        progress = None
        if state.progress is not None:
            what, done, total = state.progress
            progress = {"what": what, "done": done, "total": total}
        return JSONResponse(
            {
                "status": state.status,
                "message": state.message,
                "version": self._identity.version,
                "wire_version": WIRE_VERSION,
                "model": self._identity.model,
                "weights": self._identity.weights,
                "pid": self._identity.pid,
                "clients": self._presence.clients,
                "requests": self._worker.requests,
                "progress": progress,
            }
        )

    async def models(self, request: Request) -> Response:
        """The one model that this engine serves."""
        entry = {"id": self._identity.model, "object": "model", "created": 0, "owned_by": "dlsp"}
        return JSONResponse({"object": "list", "data": [entry]})

    async def shutdown(self, request: Request) -> Response:
        """Finish: running requests may end, new ones are sent elsewhere."""
        self._finish()
        return JSONResponse({"status": "finishing"})

    async def attach(self, request: Request) -> Response:
        """Held open by each client for as long as it lives, so that the engine knows to stay."""
        return Attachment(self._presence)

    async def complete(self, request: Request) -> Response:
        """Fill one hole; the work ends when the client hangs up."""
        wanted = parse_completion(await _limited_body(request))
        self._check_model(wanted)
        if wanted.stream:
            return Stream(self._worker, wanted, self._head(), self._presence)
        with self._presence.working():
            job = self._worker.submit(wanted.infill)
            result = await result_or_disconnect(job, request.receive)
        if result is None:
            return Response(status_code=499)  # nobody is there to read it
        return JSONResponse(_whole_answer(self._head(), result))

    async def warm(self, request: Request) -> Response:
        """Encode the context of a completion request that may come, when there is time for it."""
        wanted = parse_completion(await _limited_body(request))
        self._check_model(wanted)
        with self._presence.working():
            job = self._worker.warm(wanted.infill)
            result = await result_or_disconnect(job, request.receive)
        if result is None:
            return Response(status_code=499)
        return JSONResponse(_whole_answer(self._head(), result))

    def _check_model(self, wanted: Completion) -> None:
        known = (None, "", "default", self._identity.model, self._worker.state.model)
        if wanted.model not in known:
            raise UnknownModel(
                f"this engine serves {self._identity.model!r}, not {wanted.model!r}; start one "
                f"with --model {wanted.model}, or leave 'model' out"
            )

    def _head(self) -> dict[str, Any]:
        return {
            "id": f"cmpl-{secrets.token_hex(12)}",
            "created": int(time.time()),
            "model": self._worker.state.model or self._identity.model,
        }


def create_app(api: Api, presence: Presence, *, token: str | None) -> ASGIApp:
    """The whole application; with a token, every request must carry it."""
    app = Starlette(
        routes=[
            Route("/v1/fim/completions", api.complete, methods=["POST"]),
            Route("/v1/dlsp/warm", api.warm, methods=["POST"]),
            Route("/v1/models", api.models, methods=["GET"]),
            Route("/v1/attach", api.attach, methods=["GET"]),
            Route("/v1/shutdown", api.shutdown, methods=["POST"]),
            Route("/health", api.health, methods=["GET"]),
        ],
        exception_handlers={
            EngineError: _engine_error,
            HTTPException: _http_error,
            ClientDisconnect: _nobody_there,
            Exception: _unforeseen,
        },
    )
    return _Gate(app, presence, token)


class _Gate:
    """Turns away requests without the token, and all but /health once the engine is finishing."""

    def __init__(self, app: ASGIApp, presence: Presence, token: str | None) -> None:
        self._app = app
        self._presence = presence
        self._expected = None if token is None else b"Bearer " + token.encode("ascii")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and (refusal := self._refusal(scope)) is not None:
            await _error_response(refusal)(scope, receive, send)
            return
        await self._app(scope, receive, send)

    def _refusal(self, scope: Scope) -> EngineError | None:
        if self._expected is not None:
            given = dict(scope["headers"]).get(b"authorization", b"")
            if not hmac.compare_digest(given, self._expected):
                return Unauthorized("send 'Authorization: Bearer TOKEN' with the engine's token")
        if self._presence.closing.is_set() and scope["path"] != "/health":
            return Stopped("the engine is finishing; ask again and another one will answer")
        return None


async def _limited_body(request: Request) -> bytes:
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > MAX_BODY_BYTES:
            raise BodyTooLarge(f"the request is over {MAX_BODY_BYTES >> 20} MiB; send less text")
    return bytes(body)


def _whole_answer(head: dict[str, Any], result: InfillResult) -> dict[str, Any]:
    chunk = render_chunk(head, result.text, result.finish_reason)
    return {**chunk, **render_figures(result)}


def _error_response(error: EngineError) -> Response:
    headers = {"www-authenticate": "Bearer"} if isinstance(error, Unauthorized) else None
    return JSONResponse(render_error(error), status_code=error.http_status, headers=headers)


async def _engine_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, EngineError)
    return _error_response(error)


async def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    message = f"{request.method} {request.url.path}: {error.detail}"
    body = {"error": {"message": message, "type": "HTTPException", "code": "http_error"}}
    return JSONResponse(body, status_code=error.status_code)


async def _nobody_there(request: Request, error: Exception) -> Response:
    return Response(status_code=499)


async def _unforeseen(request: Request, error: Exception) -> Response:
    return _error_response(EngineError("the engine failed on this request; see its log"))
