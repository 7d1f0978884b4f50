"""`dlsp replay` asks a replay file's request again and compares; `dlsp why` explains one place.

Knows arguments, exit codes and how differences are told. Light to import.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dlsp.commands.complete_command import INTERRUPTED, START_WAIT_MS, read_hole

if TYPE_CHECKING:
    from dlsp.client.wire import BackendReply
    from dlsp.diagnosis.replay import Replay

SAME, OTHER = 0, 1


def add_parsers(commands: Any) -> None:
    """Register both commands and their arguments."""
    replay: argparse.ArgumentParser = commands.add_parser(
        "replay",
        help="ask the request in a replay file again, and compare",
        description="Ask the request in a replay file again, of the engine on this machine, and "
        "compare the results. Editors and `dlsp why` write such files.",
        epilog="Exit codes: 0 the same result, 1 another, 2 not a replay file, 3 weights, "
        "4 download, 5 and 6 no engine.",
    )
    replay.add_argument("file", type=Path, metavar="FILE")
    replay.add_argument("--json", action="store_true", help="print both results as JSON")
    replay.set_defaults(run=run_replay)

    why: argparse.ArgumentParser = commands.add_parser(
        "why",
        help="explain what is suggested at one place of a file, or why nothing is",
        description="Ask at one place of a file as an editor does while you type, and say what "
        "decided: gate, model, confidence, syntax, privacy, time.",
    )
    why.add_argument("file", metavar="FILE", help="a UTF-8 text file")
    why.add_argument("--at", required=True, metavar="LINE:COL", help="the cursor, both from 1")
    why.add_argument("--json", action="store_true", help="print every detail as JSON")
    why.add_argument(
        "--replay", action="store_true", help="write a replay file too; print its path"
    )
    why.add_argument(
        "--with-code", action="store_true", help="with --replay: keep names, comments and strings"
    )
    why.set_defaults(run=run_why)


def run_why(arguments: argparse.Namespace) -> int:
    """Ask once, print why; the exit code."""
    import asyncio

    from dlsp.commands.one_shot import ask_server

    hole = read_hole(arguments.file, arguments.at)
    options = {"developer": {"start_wait_ms": START_WAIT_MS, "scorecard": False}}
    replay = {"withCode": arguments.with_code} if arguments.replay else None
    try:
        found = asyncio.run(ask_server(hole, options, invoked=False, replay=replay))
    except KeyboardInterrupt:
        return INTERRUPTED
    if arguments.json:
        sys.stdout.write(json.dumps(found, ensure_ascii=False, indent=2) + "\n")
    else:
        sys.stdout.writelines(f"{line}\n" for line in found["words"])
        if found.get("replay"):
            sys.stdout.write(f"replay file: {found['replay']['path']}\n")
    return 0


def run_replay(arguments: argparse.Namespace) -> int:
    """Ask again, compare, print; the exit code."""
    import asyncio

    from dlsp.diagnosis.replay import differences, read, result_of

    replay = read(arguments.file)
    reply, digest = asyncio.run(_ask(replay))
    told, changed = differences(replay, reply, digest)
    if arguments.json:
        found = {
            "same": not changed,
            "recorded": replay.result,
            "replayed": result_of(reply),
            "differences": told,
        }
        sys.stdout.write(json.dumps(found, ensure_ascii=False, indent=2) + "\n")
    else:
        sys.stdout.writelines(f"{line}\n" for line in told)
        sys.stdout.write("another result\n" if changed else "the same result\n")
    return OTHER if changed else SAME


async def _ask(replay: Replay) -> tuple[BackendReply, str | None]:
    """What the engine on this machine says to the file's request, and the digest of its weights."""
    from dlsp.client.backend import Backend
    from dlsp.config.settings import parse
    from dlsp.diagnosis.recording import digest_of_model

    layers = (("replay file", {"model": replay.model}),)
    settings = parse(environment=os.environ, layers=layers).settings
    backend = Backend.local(settings)
    try:
        reply = await backend.complete(replay.request, wait_ms=START_WAIT_MS)
    finally:
        await backend.close()
    return reply, await digest_of_model(replay.model)
