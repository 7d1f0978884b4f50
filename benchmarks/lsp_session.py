"""A client of the real LSP server: one process, documents, completions with their details.

Drives `python -m dlsp lsp` over stdio as an editor does. Knows LSP and the server's own `dlsp/why`
request; knows nothing of the engine, which the server starts by itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from lsprotocol import types as lsp
from pygls.client import JsonRPCClient
from pygls.exceptions import JsonRpcException
from pygls.lsp.client import LanguageClient
from pygls.protocol import LanguageServerProtocol

from benchmarks.report import BenchmarkError
from dlsp.protocol import plain_converter

#: Nothing here waits for ever: a server that says nothing for this long has failed.
ANSWER_S = 120.0
#: Nor does a request wait longer than this for an engine that is loading (or downloading).
LOADING_S = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Suggestion:
    """What the client got: the text (empty for none), how long it took here, and the story."""

    text: str
    wall_ms: float
    detail: dict[str, Any] = field(default_factory=dict)

    @property
    def error(self) -> str | None:
        """The server's own sentence when the engine could not answer."""
        error = self.detail.get("error")
        return str(error["message"]) if error else None


class LspSession:
    """One server with one client; an async context manager that ends the server it started."""

    def __init__(
        self,
        *,
        options: Mapping[str, object],
        environment: Mapping[str, str],
        answer_s: float = ANSWER_S,
        on_status: Callable[[str, str], None] | None = None,
    ) -> None:
        """`on_status` gets the engine's state and one line about it whenever they change."""
        self._answer_s = answer_s
        self._options, self._environment = dict(options), dict(environment)
        self._client = LanguageClient(
            "dlsp-benchmarks",
            "1",
            protocol_cls=LanguageServerProtocol,
            converter_factory=plain_converter,
        )
        self._client.feature("dlsp/status")(_status_handler(on_status))
        self._versions: dict[str, int] = {}
        self._stderr: deque[str] = deque(maxlen=20)
        self._reader: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        await self._client.start_io(
            sys.executable,
            "-m",
            "dlsp",
            "lsp",
            env={**os.environ, **self._environment},
        )
        self._reader = asyncio.create_task(self._keep_stderr())
        params = lsp.InitializeParams(
            process_id=os.getpid(),
            capabilities=lsp.ClientCapabilities(
                general=lsp.GeneralClientCapabilities(
                    # Code points: the client's columns are Python's own.
                    position_encodings=[lsp.PositionEncodingKind.Utf32]
                ),
                text_document=lsp.TextDocumentClientCapabilities(
                    inline_completion=lsp.InlineCompletionClientCapabilities()
                ),
            ),
            initialization_options=self._options,
        )
        try:
            await self._answer(self._client.initialize_async(params))
        except BaseException:
            await self._end()
            raise
        self._client.initialized(lsp.InitializedParams())
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with contextlib.suppress(BenchmarkError):
            await self._answer(self._client.shutdown_async(None), limit_s=5.0)
            self._client.exit(None)
        await self._end()

    def open(self, uri: str, language_id: str, text: str) -> None:
        """Opens a document with this text."""
        self._versions[uri] = 1
        self._client.text_document_did_open(
            lsp.DidOpenTextDocumentParams(
                text_document=lsp.TextDocumentItem(
                    uri=uri, language_id=language_id, version=1, text=text
                )
            )
        )

    def insert(self, uri: str, position: lsp.Position, text: str) -> None:
        """Types the text at the position: one incremental change."""
        self._versions[uri] += 1
        self._client.text_document_did_change(
            lsp.DidChangeTextDocumentParams(
                text_document=lsp.VersionedTextDocumentIdentifier(
                    uri=uri, version=self._versions[uri]
                ),
                content_changes=[
                    lsp.TextDocumentContentChangePartial(
                        range=lsp.Range(start=position, end=position), text=text
                    )
                ],
            )
        )

    def close(self, uri: str) -> None:
        """Closes the document."""
        del self._versions[uri]
        self._client.text_document_did_close(
            lsp.DidCloseTextDocumentParams(text_document=lsp.TextDocumentIdentifier(uri=uri))
        )

    async def complete(self, uri: str, position: lsp.Position) -> Suggestion:
        """Asks for a completion, invoked by hand, and for the story behind the answer."""
        started = time.perf_counter()
        reply = await self._answer(
            self._client.text_document_inline_completion_async(
                lsp.InlineCompletionParams(
                    text_document=lsp.TextDocumentIdentifier(uri=uri),
                    position=position,
                    context=lsp.InlineCompletionContext(
                        trigger_kind=lsp.InlineCompletionTriggerKind.Invoked
                    ),
                )
            )
        )
        wall_ms = (time.perf_counter() - started) * 1000
        why = await self._answer(
            self._client.protocol.send_request_async("dlsp/why", {"textDocument": {"uri": uri}})
        )
        return Suggestion(text=_text(reply), wall_ms=wall_ms, detail=why or {})

    async def _answer(self, reply: Any, limit_s: float | None = None) -> Any:
        """The server's answer; raises BenchmarkError with its last words when there is none."""
        limit_s = limit_s or self._answer_s
        try:
            return await asyncio.wait_for(reply, limit_s)
        except TimeoutError:
            raise BenchmarkError(f"the server did not answer within {limit_s:.0f} s") from None
        except (JsonRpcException, RuntimeError, OSError) as error:
            await asyncio.sleep(0.1)  # what a dying server wrote last is still on its way
            last = f" ({self._stderr[-1]})" if self._stderr else ""
            raise BenchmarkError(f"the server failed: {error}{last}") from None

    async def _keep_stderr(self) -> None:
        server = _server(self._client)
        assert server.stderr is not None
        async for line in server.stderr:
            if line.strip():
                self._stderr.append(line.decode("utf-8", "replace").rstrip())

    async def _end(self) -> None:
        """Leaves no server behind: a polite wait, then the end of this one process."""
        server = _server(self._client)
        try:
            await asyncio.wait_for(server.wait(), 5.0)
        except TimeoutError:
            server.kill()
        await self._client.stop()  # type: ignore[no-untyped-call]
        if self._reader is not None:
            await self._reader


def server_options(
    model: str | None, weights: Path | None, *, deadline_ms: float, decoding: str | None = None
) -> dict[str, object]:
    """Initialization options that name the model; None leaves the server's own default.

    Each request waits for an engine that is still loading, for `LOADING_S` at most.
    """
    return {
        "model": model,
        "deadline_ms": deadline_ms,
        "developer": {
            # the engine runs in a folder of its own
            "weights": str(weights.absolute()) if weights is not None else None,
            "decoding": decoding,
            "start_wait_ms": LOADING_S * 1000,
        },
    }


def _server(client: JsonRPCClient) -> asyncio.subprocess.Process:
    server = client._server
    assert server is not None, "the session has not been started"
    return server


def _status_handler(tell: Callable[[str, str], None] | None) -> Callable[[Any], None]:
    def on_status(params: Any) -> None:
        if tell is not None and isinstance(params, dict):
            tell(str(params.get("state", "")), str(params.get("message", "")))

    return on_status


def _text(reply: Any) -> str:
    items = getattr(reply, "items", reply) or []
    if not items:
        return ""
    inserted = items[0].insert_text
    return inserted if isinstance(inserted, str) else str(inserted.value)
