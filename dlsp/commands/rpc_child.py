"""JSON-RPC with a child process over its stdio: requests out, results and notifications in.

Just what `dlsp complete` needs of LSP's framing. pygls has a client too, but imports all of LSP's
types, a second of a cold start. Does not know LSP's messages.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from engine.request import EngineError

_METHOD_NOT_FOUND = -32601
_LENGTH = b"content-length:"
_TAIL_BYTES = 4096

Listener = Callable[[dict[str, Any]], None]


class ChildLost(EngineError):
    """The process ended, or broke the protocol, while it was needed."""

    code, exit_code = "server_lost", 6


class RpcChild:
    """A running child. Once it is gone, what waits and what follows raises `ChildLost`."""

    def __init__(self, process: asyncio.subprocess.Process, listeners: Mapping[str, Listener]):
        self._process = process
        self._listeners = listeners
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._last_id = 0
        self._gone = False
        self._stderr_tail = b""
        self._tasks = (
            asyncio.ensure_future(self._read_messages()),
            asyncio.ensure_future(self._read_stderr()),
        )

    @classmethod
    async def start(
        cls,
        command: Sequence[str],
        listeners: Mapping[str, Listener],
        *,
        environment: Mapping[str, str] | None = None,
    ) -> RpcChild:
        """Start the child in a session of its own: Ctrl-C is for us to handle.

        `listeners`: method -> what is called with the parameters of its notifications.
        `environment`: variables besides our own.
        """
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=pipe,
            stdout=pipe,
            stderr=pipe,
            start_new_session=True,
            env={**os.environ, **(environment or {})},
        )
        return cls(process, listeners)

    @property
    def process_id(self) -> int:
        return self._process.pid

    async def request(self, method: str, params: object) -> Any:
        """The result of a request; raises ChildLost, also when the answer is an error."""
        if self._gone:
            raise await self._lost()
        number = self._last_id = self._last_id + 1
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting[number] = answer
        self._send({"id": number, "method": method, "params": params})
        try:
            message = await answer
        finally:
            self._waiting.pop(number, None)
        if message is None:
            raise await self._lost()
        if "error" in message:
            reason = message["error"].get("message", "no reason given")
            raise ChildLost(f"the server process refused {method}: {reason}")
        return message.get("result")

    def notify(self, method: str, params: object) -> None:
        """Send a notification; nothing tells whether it arrived."""
        self._send({"method": method, "params": params})

    async def wait(self) -> None:
        """Until the child has ended."""
        await self._process.wait()

    def abandon(self) -> None:
        """Stop listening; kill the child if it still runs."""
        for task in self._tasks:
            task.cancel()
        if self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()

    def _send(self, message: dict[str, Any]) -> None:
        body = json.dumps({"jsonrpc": "2.0", **message}).encode()
        assert self._process.stdin is not None
        self._process.stdin.write(b"Content-Length: %d\r\n\r\n%b" % (len(body), body))

    async def _read_messages(self) -> None:
        try:
            while (message := await self._next()) is not None:
                self._take(message)
        except (ValueError, OSError, asyncio.IncompleteReadError):
            pass  # no longer a protocol that we could follow
        finally:
            self._gone = True
            for answer in self._waiting.values():
                if not answer.done():
                    answer.set_result(None)

    async def _next(self) -> dict[str, Any] | None:
        """The next message; None at the end of the stream."""
        stream = self._process.stdout
        assert stream is not None
        length = None
        while line := (await stream.readline()).strip().lower():
            if line.startswith(_LENGTH):
                length = int(line.removeprefix(_LENGTH))
        if length is None:
            return None
        message = json.loads(await stream.readexactly(length))
        if not isinstance(message, dict):
            raise ValueError("not a message")
        return message

    def _take(self, message: dict[str, Any]) -> None:
        number, method = message.get("id"), message.get("method")
        if method is None:
            answer = self._waiting.get(number) if isinstance(number, int) else None
            if answer is not None and not answer.done():
                answer.set_result(message)
        elif number is not None:
            error = {"code": _METHOD_NOT_FOUND, "message": f"{method} is not known here"}
            self._send({"id": number, "error": error})
        elif listener := self._listeners.get(method):
            listener(message.get("params") or {})

    async def _read_stderr(self) -> None:
        """Keep the end of it; a full pipe that nobody reads would block the child."""
        assert self._process.stderr is not None
        with contextlib.suppress(OSError):
            while part := await self._process.stderr.read(_TAIL_BYTES):
                self._stderr_tail = (self._stderr_tail + part)[-_TAIL_BYTES:]

    async def _lost(self) -> ChildLost:
        with contextlib.suppress(TimeoutError):  # its last words may still be on their way
            await asyncio.wait_for(asyncio.shield(self._tasks[1]), 1.0)
        lines = self._stderr_tail.decode("utf-8", "replace").strip().splitlines()
        last = lines[-1].strip() if lines else "it said nothing"
        return ChildLost(f"the server process ended early: {last}")
