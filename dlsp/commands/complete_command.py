"""`dlsp complete`: one completion from the command line, through the same server over stdio.

Knows files, arguments and exit codes; `one_shot.py` speaks to the server. Light to import, and so
is all that it needs: a cold start waits for each module that is imported before the engine starts.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dlsp.config.settings import parse
from dlsp.text.lines import split_lines
from engine.request import BadRequest

FOUND, NOTHING, USAGE, INTERRUPTED = 0, 1, 2, 130

#: A first run may download the model; nobody at a terminal wants that to time out.
START_WAIT_MS = 6 * 3600 * 1000

#: More than an editor gives: whoever asks on a terminal waits for the answer.
DEADLINE_MS = 1500

JSON_KEYS = (
    "text", "range", "model", "mode", "tokens", "forwards", "tokens_per_forward", "from", "steps",
    "finish_reason", "syntax", "repaired", "backend", "ms", "reason",
)  # fmt: skip


#: Bounded, because Python refuses to read a number of thousands of digits.
_PLACE = re.compile(r"([0-9]{1,20}):([0-9]{1,20})")


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
    parser.add_argument("--deadline-ms", type=_milliseconds, metavar="N",
                        default=DEADLINE_MS, help=f"default: {DEADLINE_MS}")  # fmt: skip
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Complete, print, and return the exit code."""
    from dlsp.commands.head_start import engine_on_its_way

    hole = read_hole(arguments.file, arguments.at)
    options = _options(arguments)
    layers = (("initializationOptions", options),)
    settings = parse(environment=os.environ, layers=layers).settings
    try:
        with engine_on_its_way(settings):
            found = _ask(hole, options)
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


def _ask(hole: Hole, options: dict[str, Any]) -> dict[str, Any]:
    import asyncio

    from dlsp.commands.one_shot import ask_server

    return asyncio.run(ask_server(hole, options))


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
    # The engine runs in a folder of its own, so a relative path would mean another file there.
    weights = str(Path(arguments.weights).absolute()) if arguments.weights else None
    return {
        "model": arguments.model,
        "deadline_ms": arguments.deadline_ms,
        "developer": {
            "decoding": arguments.mode,
            "want": arguments.want,
            "weights": weights,
            "start_wait_ms": START_WAIT_MS,
            # Nobody sees it in an editor: it says nothing of how useful suggestions are.
            "scorecard": False,
        },
    }
