"""The LSP client behind `dlsp complete`: starts a server, asks once, lets it go.

Knows the protocol, not the command line.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import sys
from collections import deque
from typing import Any

from lsprotocol import types as lsp
from pygls.lsp.client import LanguageClient

from dlsp import __version__
from dlsp.complete_command import Hole
from dlsp.protocol import plain_converter
from engine.request import EngineError

#: How long the server may take to end once it was asked to.
END_LIMIT_S = 5.0
_NUMBERS = re.compile(r"[\d.]+ ?%?")


class ServerLost(EngineError):
    """The server process ended while it was needed."""

    code, exit_code = "server_lost", 6


async def ask_server(hole: Hole, options: dict[str, Any]) -> dict[str, Any]:
    """Open the file in a server of our own, ask once, and let the server go."""
    client = LanguageClient("dlsp-complete", __version__, converter_factory=plain_converter)
    stderr_tail: deque[str] = deque(maxlen=20)
    progress = Progress()
    client.feature("dlsp/status")(lambda params: progress.show(params))
    client.feature(lsp.WINDOW_LOG_MESSAGE)(_show_log)
    # -P: a folder that happens to hold a `dlsp` must not become the server. A session of its own:
    # Ctrl-C is ours to handle, and the server ends when its stdin does.
    server = (sys.executable, "-P", "-m", "dlsp", "lsp")
    await client.start_io(*server, start_new_session=True)
    draining = asyncio.ensure_future(_drain(client, stderr_tail))
    try:
        return await _complete_once(client, hole, options)
    except RuntimeError:
        last = stderr_tail[-1].strip() if stderr_tail else "it said nothing"
        raise ServerLost(f"the server process ended early: {last}") from None
    finally:
        progress.finish()
        await _let_go(client)
        draining.cancel()


async def _complete_once(
    client: LanguageClient, hole: Hole, options: dict[str, Any]
) -> dict[str, Any]:
    encodings = lsp.GeneralClientCapabilities(position_encodings=[lsp.PositionEncodingKind.Utf32])
    await client.initialize_async(
        lsp.InitializeParams(
            process_id=os.getpid(),
            capabilities=lsp.ClientCapabilities(general=encodings),
            initialization_options=options,
        )
    )
    client.initialized(lsp.InitializedParams())
    uri = hole.path.absolute().as_uri()
    client.text_document_did_open(
        lsp.DidOpenTextDocumentParams(
            text_document=lsp.TextDocumentItem(uri=uri, language_id="", version=1, text=hole.text)
        )
    )
    document = lsp.TextDocumentIdentifier(uri=uri)
    invoked = lsp.InlineCompletionContext(trigger_kind=lsp.InlineCompletionTriggerKind.Invoked)
    await client.text_document_inline_completion_async(
        lsp.InlineCompletionParams(
            text_document=document,
            position=lsp.Position(line=hole.line, character=hole.column),
            context=invoked,
        )
    )
    found: dict[str, Any] = await client.protocol.send_request_async(
        "dlsp/why", {"textDocument": {"uri": uri}}
    )
    return found


async def _let_go(client: LanguageClient) -> None:
    """End the server politely, or, when it does not listen, by force."""
    process = client._server
    if process is None:
        return
    try:
        if process.returncode is None:
            async with asyncio.timeout(END_LIMIT_S):
                await client.shutdown_async(None)
                client.exit(None)
                await process.wait()
    except (TimeoutError, RuntimeError, OSError):
        with contextlib.suppress(ProcessLookupError):
            process.kill()


async def _drain(client: LanguageClient, tail: deque[str]) -> None:
    """Read the server's stderr, which would block it once full, and keep the last lines."""
    process = client._server
    if process is None or process.stderr is None:
        return
    while line := await process.stderr.readline():
        tail.append(line.decode("utf-8", "replace"))


def _show_log(params: lsp.LogMessageParams) -> None:
    sys.stderr.write(f"{params.message}\n")


class Progress:
    """The engine's state on stderr: one line, rewritten on a terminal."""

    def __init__(self) -> None:
        self._open_line = False
        self._last = ""

    def show(self, params: dict[str, Any]) -> None:
        """Take one `dlsp/status`; ready and error are told by the result."""
        if params["state"] in ("ready", "error"):
            return
        line = f"dlsp: {params['state']}: {params['message']}"
        what = _NUMBERS.sub("", line)
        if sys.stderr.isatty():
            sys.stderr.write(f"\r\x1b[K{line}")
            self._open_line = True
        elif what != self._last:
            # A log needs no line for each percent.
            sys.stderr.write(line + "\n")
        self._last = what
        sys.stderr.flush()

    def finish(self) -> None:
        if self._open_line:
            sys.stderr.write("\r\x1b[K")
            self._open_line = False
