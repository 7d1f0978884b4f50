"""The nine holes of `examples/`, completed through the real LSP server, shown as ghost text.

One server, one client. Exits 1 when the server or the engine fails; a hole without a suggestion
is said to be one. Knows what a person at a terminal sees, nothing of how it comes about.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lsprotocol import types as lsp

from benchmarks.engine_run import explain
from benchmarks.lsp_session import LOADING_S, LspSession, Suggestion, server_options
from benchmarks.report import BenchmarkError, say

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"
LANGUAGE_IDS = {".py": "python", ".ts": "typescript", ".go": "go"}
STAGES = ("context", "queue", "encode", "denoise", "verify", "syntax", "total")

#: The first run may still fetch and convert the model.


@dataclass(frozen=True, slots=True, kw_only=True)
class Cursor:
    """One hole of an example; line and column count from 1, as editors show them."""

    file: str
    line: int
    col: int
    kind: str

    @property
    def position(self) -> lsp.Position:
        return lsp.Position(line=self.line - 1, character=self.col - 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """A hole and what came of it."""

    cursor: Cursor
    suggestion: Suggestion


def load_cursors(folder: Path = EXAMPLES) -> list[Cursor]:
    """The cursors that `examples/cursors.json` lists."""
    rows = json.loads((folder / "cursors.json").read_text(encoding="utf-8"))
    return [
        Cursor(file=row["file"], line=row["line"], col=row["col"], kind=row["kind"]) for row in rows
    ]


def marked(text: str, shown: Sequence[Shown], *, colour: bool) -> str:
    """The whole file with line numbers, and each suggestion marked where it would stand."""
    ghosts = {one.cursor.line: one for one in shown}
    out: list[str] = []
    for number, line in enumerate(text.removesuffix("\n").split("\n"), start=1):
        if number not in ghosts:
            out.append(f"{number:>4} | {line}")
            continue
        one = ghosts[number]
        before, after = line[: one.cursor.col - 1], line[one.cursor.col - 1 :]
        pieces = one.suggestion.text.split("\n")
        for at, piece in enumerate(pieces):
            left, right = before if at == 0 else "", after if at == len(pieces) - 1 else ""
            label = f"{number:>4}" if at == 0 else "    "
            out.append(f"{label} | {left}{mark(piece, colour=colour)}{right}")
    return "\n".join(line.rstrip() for line in out)


def mark(ghost: str, *, colour: bool) -> str:
    """Dim italics on a terminal, ⟦…⟧ elsewhere; an empty one stays visible as a place."""
    if not colour:
        return f"⟦{ghost}⟧"
    return f"\x1b[2;3m{ghost}\x1b[0m" if ghost else "\x1b[7m \x1b[0m"


def table(shown: Sequence[Shown]) -> str:
    """Tokens, denoising steps, base forwards and milliseconds per stage of every hole."""
    head = ["hole", "kind", "tokens", "steps", "forwards", *(f"{stage} ms" for stage in STAGES)]
    rows = [head]
    for one in shown:
        detail = one.suggestion.detail
        times: dict[str, Any] = detail.get("ms", {})
        counts = [str(detail.get(key, 0)) for key in ("tokens", "steps", "forwards")]
        place = f"{one.cursor.file}:{one.cursor.line}:{one.cursor.col}"
        stages = [f"{float(times.get(stage, 0.0)):.1f}" for stage in STAGES]
        rows.append([place, one.cursor.kind, *counts, *stages])
    widths = [max(len(row[column]) for row in rows) for column in range(len(head))]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if column < 2 else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in rows
    )


def status_teller() -> Callable[[str, str], None]:
    """Tells what the engine is doing while it starts, fetches and loads the model; each once."""
    told: set[tuple[str, str]] = set()

    def tell(state: str, message: str) -> None:
        if state in ("starting", "loading") and (state, message) not in told:
            told.add((state, message))
            say(message or f"the engine is {state}")

    return tell


async def complete_all(cursors: Sequence[Cursor], options: dict[str, object]) -> list[Shown]:
    """Asks for every hole in turn, prints each file when its holes are filled.

    Raises BenchmarkError.
    """
    shown: list[Shown] = []
    colour = sys.stdout.isatty() and "NO_COLOR" not in os.environ
    session = LspSession(
        options=options, environment={}, answer_s=LOADING_S, on_status=status_teller()
    )
    async with session:
        for cursor in cursors:
            path = EXAMPLES / cursor.file
            text = path.read_text(encoding="utf-8")
            session.open(path.as_uri(), LANGUAGE_IDS[path.suffix], text)
            suggestion = await session.complete(path.as_uri(), cursor.position)
            session.close(path.as_uri())
            if suggestion.error:
                raise BenchmarkError(suggestion.error)
            shown.append(Shown(cursor=cursor, suggestion=suggestion))
            say(title(cursor, suggestion))
            if sum(one.file == cursor.file for one in cursors) == sum(
                one.cursor.file == cursor.file for one in shown
            ):
                here = [one for one in shown if one.cursor.file == cursor.file]
                name = f"\x1b[1m{cursor.file}\x1b[0m" if colour else cursor.file
                sys.stdout.write(f"\n{name}\n{marked(text, here, colour=colour)}\n\n")
                sys.stdout.flush()
    return shown


def title(cursor: Cursor, suggestion: Suggestion) -> str:
    """One line on a hole: where it is, and why it stays empty if it does."""
    line = f"examples/{cursor.file}:{cursor.line}:{cursor.col} ({cursor.kind})"
    if not suggestion.text:
        line += f" - no suggestion: {suggestion.detail.get('reason') or 'the server said none'}"
    return line


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.demo", description=__doc__)
    parser.add_argument("--model", help="catalogue name (default: the server's own)")
    parser.add_argument("--weights", type=Path, help="a GGUF file or a folder in the hub's layout")
    parser.add_argument("--deadline-ms", type=float, default=5000.0, help="for each hole")
    options = parser.parse_args(argv)
    settings = server_options(options.model, options.weights, deadline_ms=options.deadline_ms)
    try:
        shown = asyncio.run(complete_all(load_cursors(), settings))
    except BenchmarkError as error:
        say(f"error: {error}")
        return 1
    except (Exception, KeyboardInterrupt) as error:
        return explain(error)
    sys.stdout.write(f"\n{table(shown)}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
