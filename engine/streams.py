"""Responses that last: presence, streamed text, and waiting for a result or a hang-up.

Knows ASGI messages and disconnects. A plain handler is not cancelled when its client leaves, so
each of these watches for it. Does not know routes or tokens.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from typing import Any

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from engine.request import EngineError, InfillResult
from engine.wire import Completion, render_chunk, render_error, render_figures
from engine.worker import Job, Stopped, Worker


@dataclass(slots=True, kw_only=True, eq=False)
class Presence:
    """Attached clients and running requests; once `closing`, nobody new is let in."""

    clients: int = 0
    running: int = 0
    closing: asyncio.Event = field(default_factory=asyncio.Event)

    @contextlib.contextmanager
    def attached(self) -> Iterator[None]:
        self.clients += 1
        try:
            yield
        finally:
            self.clients -= 1

    @contextlib.contextmanager
    def working(self) -> Iterator[None]:
        self.running += 1
        try:
            yield
        finally:
            self.running -= 1


class Attachment(Response):
    """A response that lasts until the client hangs up or the engine finishes."""

    def __init__(self, presence: Presence) -> None:
        super().__init__(media_type="application/json")
        self._presence = presence

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._presence.attached():
            await _start(send, b"application/json")
            await _part(send, b'{"attached": true}\n')
            waiting = [
                asyncio.ensure_future(_disconnect(receive)),
                asyncio.ensure_future(self._presence.closing.wait()),
            ]
            try:
                await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for task in waiting:
                    task.cancel()
            await send({"type": "http.response.body", "body": b"", "more_body": False})


class Stream(Response):
    """Server-sent events: text as it is committed, then the figures, then [DONE].

    An error before the first text is a plain error response; a later one is an event. When the
    result had to be dropped after all (`syntax`), the last event says so by its finish_reason.
    """

    def __init__(
        self, worker: Worker, wanted: Completion, head: dict[str, Any], presence: Presence
    ) -> None:
        super().__init__(media_type="text/event-stream")
        self._worker = worker
        self._wanted = wanted
        self._head = head
        self._presence = presence

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        loop = asyncio.get_running_loop()
        pieces: asyncio.Queue[str | None] = asyncio.Queue()

        def on_text(piece: str) -> None:
            with contextlib.suppress(RuntimeError):  # the loop has closed: nobody reads any more
                loop.call_soon_threadsafe(pieces.put_nowait, piece)

        with self._presence.working():
            job = self._worker.submit(self._wanted.infill, on_text)
            done = asyncio.wrap_future(job.future)
            done.add_done_callback(lambda _: pieces.put_nowait(None))
            hangup = asyncio.ensure_future(_disconnect(receive))
            hangup.add_done_callback(lambda _: pieces.put_nowait(None))
            try:
                first = await pieces.get()
                if first is None and done.done() and not done.cancelled() and done.exception():
                    done.result()
                await _start(send, b"text/event-stream")
                async for event in self._events(first, pieces, done):
                    await _part(send, b"data: " + event + b"\n\n")
                await send({"type": "http.response.body", "body": b"", "more_body": False})
            finally:
                hangup.cancel()
                job.cancel()
                done.add_done_callback(_retrieve)

    async def _events(
        self,
        piece: str | None,
        pieces: asyncio.Queue[str | None],
        done: asyncio.Future[InfillResult],
    ) -> AsyncIterator[bytes]:
        sent = ""
        while piece is not None:
            sent += piece
            yield _json(render_chunk(self._head, piece, None))
            piece = await pieces.get()
        if not done.done() or done.cancelled():
            return  # the client hung up
        try:
            result = done.result()
        except EngineError as error:
            yield _json(render_error(error))
            return
        rest = result.text[len(sent) :] if result.text.startswith(sent) else ""
        last = render_chunk(self._head, rest, result.finish_reason)
        yield _json({**last, **render_figures(result)})
        yield b"[DONE]"


_FINISHING = "the engine is finishing; ask again and another one will answer"


async def result_or_disconnect(job: Job, receive: Receive) -> InfillResult | None:
    """The job's result; None when the client hung up first, which cancels the job."""
    done = asyncio.wrap_future(job.future)
    hangup = asyncio.ensure_future(_disconnect(receive))
    try:
        await asyncio.wait((done, hangup), return_when=asyncio.FIRST_COMPLETED)
        if done.cancelled():
            raise Stopped(_FINISHING)
        return done.result() if done.done() else None
    except asyncio.CancelledError:  # the server's grace for running requests is over
        raise Stopped(_FINISHING) from None
    finally:
        hangup.cancel()
        job.cancel()
        done.add_done_callback(_retrieve)


def _retrieve(done: asyncio.Future[InfillResult]) -> None:
    """Look at an error that nobody waits for, so that asyncio does not report it as lost."""
    if not done.cancelled():
        done.exception()


async def _disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _start(send: Send, media_type: bytes) -> None:
    headers = [(b"content-type", media_type), (b"cache-control", b"no-store")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})


async def _part(send: Send, body: bytes) -> None:
    await send({"type": "http.response.body", "body": body, "more_body": True})


def _json(value: dict[str, Any]) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
