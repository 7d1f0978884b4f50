"""The LSP client behind `dlsp complete`: starts a server, asks once, lets it go.

Knows LSP's messages as plain JSON, not the command line. Light to import.
"""

from __future__ import annotations

import asyncio
import os
import re
import sys
from typing import Any

from dlsp.commands.complete_command import Hole
from dlsp.commands.rpc_child import ChildLost, RpcChild

#: How long the server may take to end once it was asked to.
END_LIMIT_S = 5.0
_INVOKED, _AUTOMATIC = 1, 2  # InlineCompletionTriggerKind
_NUMBERS = re.compile(r"[\d.]+ ?%?")


async def ask_server(
    hole: Hole,
    options: dict[str, Any],
    *,
    invoked: bool = True,
    replay: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """Open the file in a server of our own, ask once, and let the server go.

    Not `invoked`: as an editor asks while its user types. `replay`: the parameters of a
    `dlsp/replay`, whose result is then in the answer's key of that name.
    """
    progress = Progress()
    # -P: a folder that happens to hold a `dlsp` must not become the server.
    server = await RpcChild.start(
        (sys.executable, "-P", "-m", "dlsp", "lsp"),
        {"dlsp/status": progress.show, "window/logMessage": _show_log},
    )
    try:
        uri = await _open(server, hole, options)
        found = await _complete_once(server, uri, hole, _INVOKED if invoked else _AUTOMATIC)
        if replay is not None:
            parameters = {"textDocument": {"uri": uri}, **replay}
            found["replay"] = await server.request("dlsp/replay", parameters)
        return found
    finally:
        progress.finish()
        await _let_go(server)


async def _open(server: RpcChild, hole: Hole, options: dict[str, Any]) -> str:
    """Begin a session with the file open; its URI."""
    await server.request(
        "initialize",
        {
            "processId": os.getpid(),
            "rootUri": None,
            "capabilities": {"general": {"positionEncodings": ["utf-32"]}},
            "initializationOptions": options,
        },
    )
    server.notify("initialized", {})
    uri = hole.path.absolute().as_uri()
    document = {"uri": uri, "languageId": "", "version": 1, "text": hole.text}
    server.notify("textDocument/didOpen", {"textDocument": document})
    return uri


async def _complete_once(
    server: RpcChild, uri: str, hole: Hole, trigger_kind: int
) -> dict[str, Any]:
    await server.request(
        "textDocument/inlineCompletion",
        {
            "textDocument": {"uri": uri},
            "position": {"line": hole.line, "character": hole.column},
            "context": {"triggerKind": trigger_kind},
        },
    )
    found: dict[str, Any] = await server.request("dlsp/why", {"textDocument": {"uri": uri}})
    return found


async def _let_go(server: RpcChild) -> None:
    """End the server politely, or, when it does not listen, by force."""
    try:
        async with asyncio.timeout(END_LIMIT_S):
            await server.request("shutdown", None)
            server.notify("exit", None)
            await server.wait()
    except (TimeoutError, ChildLost):
        pass
    finally:
        server.abandon()


def _show_log(params: dict[str, Any]) -> None:
    sys.stderr.write(f"{params.get('message')}\n")


class Progress:
    """The engine's state on stderr: one line, rewritten on a terminal."""

    def __init__(self) -> None:
        self._open_line = False
        self._last = ""

    def show(self, params: dict[str, Any]) -> None:
        """Take one `dlsp/status`; all but a start is told by the result."""
        if params["state"] not in ("starting", "downloading"):
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
