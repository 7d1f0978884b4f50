"""`dlsp complete`: one completion from the command line, through the same server over stdio.

A small LSP client. Knows files, arguments and exit codes; everything about completing is behind
the server process that it starts.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import logging
import os
import re
import sys
from collections import deque
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lsprotocol import types as lsp
from pygls.lsp.client import LanguageClient

from dlsp import __version__
from dlsp.document import split_lines
from dlsp.protocol import plain_converter
from engine.request import BadRequest, EngineError

FOUND, NOTHING, USAGE, INTERRUPTED = 0, 1, 2, 130

#: A first run may download the model; nobody at a terminal wants that to time out.
START_WAIT_MS = 6 * 3600 * 1000
#: How long the server may take to end once it was asked to.
END_LIMIT_S = 5.0

JSON_KEYS = (
    "text", "range", "model", "mode", "tokens", "forwards", "tokens_per_forward", "from", "steps",
    "finish_reason", "syntax", "repaired", "backend", "ms", "reason",
)  # fmt: skip


_NUMBERS = re.compile(r"[\d.]+ ?%?")
#: Bounded, because Python refuses to read a number of thousands of digits.
_PLACE = re.compile(r"([0-9]{1,20}):([0-9]{1,20})")


class ServerLost(EngineError):
    """The server process ended while it was needed."""

    code, exit_code = "server_lost", 6


@dataclass(frozen=True, slots=True, kw_only=True)
class Hole:
    """Where to complete: a file's text, and a zero-based line and column in characters."""

    path: Path
    text: str
    line: int
    column: int


def add_parser(commands: Any) -> None:
    """Register the command and its arguments."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "complete",
        help="print the completion at one place of a file",
        description="Print the completion at one place of a file, by the server that editors use.",
        epilog="Exit codes: 0 a suggestion, 1 nothing to suggest, 2 usage, 3 weights, "
        "4 download, 5 no engine can be reached or started, 6 engine or server lost on the way, "
        "130 interrupted.",
    )
    parser.add_argument("file", metavar="FILE", help="a UTF-8 text file")
    parser.add_argument(
        "--at", required=True, metavar="LINE:COL", help="the cursor: both count from 1, "
        "COL in characters (code points); COL one past the end of the line is its end",
    )  # fmt: skip
    parser.add_argument("--json", action="store_true", help="print the whole answer as JSON; "
                        "its range is LSP's: zero-based, in characters")  # fmt: skip
    parser.add_argument("--model", metavar="NAME", help="a model of `dlsp-engine models`")
    parser.add_argument("--weights", metavar="FILE", help="a weights file instead of a download")
    parser.add_argument("--want", choices=("line", "block"), help="default: by the place")
    parser.add_argument("--mode", choices=("verified", "free", "ar"), help="default: verified")
    parser.add_argument("--deadline-ms", type=_milliseconds, metavar="N", help="default: 1500")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Complete, print, and return the exit code."""
    hole = read_hole(arguments.file, arguments.at)
    # pygls 2.1.1 logs a traceback when an answer comes after Ctrl-C; what matters is raised.
    logging.getLogger("pygls").setLevel(logging.CRITICAL + 1)
    try:
        found = asyncio.run(_ask_server(hole, _options(arguments)))
    except KeyboardInterrupt:
        return INTERRUPTED
    if error := found.get("error"):
        sys.stderr.write(f"dlsp: {error['message']}\n")
        return int(error["exit_code"])
    if arguments.json:
        shown = {key: found.get(key) for key in JSON_KEYS}
        sys.stdout.write(json.dumps(shown, ensure_ascii=False, indent=2) + "\n")
    elif found["text"]:
        sys.stdout.write(found["text"] + "\n")
    else:
        sys.stderr.write(f"dlsp: nothing to suggest: {found['reason']}\n")
    sys.stdout.flush()
    return FOUND if found["text"] else NOTHING


def read_hole(file: str, at: str) -> Hole:
    """Read the file and check the place; raises BadRequest with a line that says what to do."""
    path = Path(file)
    try:
        text = path.read_bytes().decode("utf-8")
    except FileNotFoundError:
        raise BadRequest(f"{file}: no such file") from None
    except IsADirectoryError:
        raise BadRequest(f"{file}: is a folder; name a file") from None
    except UnicodeDecodeError as error:
        raise BadRequest(
            f"{file}: not UTF-8 text (byte {error.start}); convert it to UTF-8 first"
        ) from None
    except OSError as error:
        raise BadRequest(f"{file}: cannot be read: {error.strerror}") from None
    if "\0" in text:
        raise BadRequest(f"{file}: a binary file; name a text file")
    line, column = parse_place(at)
    lines = [part.rstrip("\r\n") for part in split_lines(text)]
    if not text or text.endswith(("\n", "\r")):
        lines.append("")
    if line >= len(lines):
        raise BadRequest(f"--at {at}: past the end: {file} has {_count(len(lines), 'line')}")
    if column > len(lines[line]):
        raise BadRequest(
            f"--at {at}: past the end: line {line + 1} of {file} has "
            f"{_count(len(lines[line]), 'character')}, so COL is at most {len(lines[line]) + 1}"
        )
    return Hole(path=path, text=text, line=line, column=column)


def parse_place(at: str) -> tuple[int, int]:
    """LINE:COL, both from 1, as zero-based numbers."""
    found = _PLACE.fullmatch(at)
    if found is None or not (int(found[1]) and int(found[2])):
        raise BadRequest(f"--at {at}: give LINE:COL, two numbers from 1, such as 12:5")
    return int(found[1]) - 1, int(found[2]) - 1


def _milliseconds(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 1 <= number <= 600_000:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 1 to 600000")
    return number


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _options(arguments: argparse.Namespace) -> dict[str, Any]:
    names = ("model", "weights", "want", "mode", "deadline_ms")
    chosen = {name: getattr(arguments, name) for name in names}
    options = {name: value for name, value in chosen.items() if value is not None}
    if weights := options.get("weights"):
        # The engine runs in a folder of its own.
        options["weights"] = str(Path(weights).absolute())
    return {"start_wait_ms": START_WAIT_MS, **options}


async def _ask_server(hole: Hole, options: dict[str, Any]) -> dict[str, Any]:
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
