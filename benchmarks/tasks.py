"""Holes to fill: HumanEval-Infilling tasks and cursors in real Python files.

Knows how a task stands in an editor and how its program is put together; knows nothing of models
and never runs anything.
"""

from __future__ import annotations

import io
import random
import sysconfig
import tokenize
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeVar

from benchmarks.report import BenchmarkError
from benchmarks.scoring import exact
from benchmarks.sets import read_rows
from engine.request import Want

Hole = Literal["editor", "raw"]
CursorKind = Literal["mid_line", "line_start", "mid_token"]
T = TypeVar("T")
CURSOR_KINDS: tuple[CursorKind, ...] = ("mid_line", "line_start", "mid_token")


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One HumanEval-Infilling task as it is sent: `prefix` | hole | `suffix`.

    With the `editor` hole, a task whose hole is whole lines keeps the last of their line ends in
    the suffix, as a cursor on an empty line has it; `canonical` lacks it then. With `raw`, the
    data set's own three parts.
    """

    task_id: str
    prefix: str
    suffix: str
    canonical: str
    test: str
    entry_point: str
    want: Want

    @property
    def origin(self) -> str:
        """The task of the data set that this is, or was cut from (see `cuts.recut`)."""
        return self.task_id.partition("@")[0]

    @property
    def group(self) -> str:
        """The function whose holes this and its like are."""
        return self.origin.rpartition("/")[0]

    @property
    def set_name(self) -> str:
        """The set it belongs to, as its name begins."""
        return self.task_id.partition("/")[0]

    def program(self, text: str) -> str:
        """The file with the hole filled, exactly as returned."""
        return self.prefix + text + self.suffix

    def checked(self, text: str) -> str:
        """The filled file, followed by its tests and the call that runs them."""
        return f"{self.program(text)}\n{self.test}\ncheck({self.entry_point})\n"

    def matches(self, text: str) -> bool:
        """Whether the text is the original one, blanks at its end aside."""
        return exact(text, self.canonical)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cursor:
    """A cursor in a real file: the text on both sides, and where it came from."""

    name: str
    kind: CursorKind
    prefix: str
    suffix: str


def load_tasks(path: Path, hole: Hole = "editor") -> list[Task]:
    """Reads a .jsonl.gz file of HumanEval-Infilling tasks; raises BenchmarkError."""
    try:
        return [_task(row, hole) for row in read_rows(path)]
    except FileNotFoundError:
        raise BenchmarkError(f"{path} does not exist; give the data set with --data") from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise BenchmarkError(f"{path} is not a HumanEval-Infilling file: {error}") from None


def _task(row: dict[str, str], hole: Hole) -> Task:
    suffix, canonical = row["suffix"], row["canonical_solution"]
    whole_lines = row["prompt"].endswith("\n") and canonical.endswith("\n")
    if hole == "editor" and whole_lines:
        suffix, canonical = "\n" + suffix, canonical[:-1]
    return Task(
        task_id=row["task_id"],
        prefix=row["prompt"],
        suffix=suffix,
        canonical=canonical,
        test=row["test"],
        entry_point=row["entry_point"],
        want="line" if row["task_id"].startswith("SingleLine") else "block",
    )


def choose(tasks: list[T], *, every: int, offset: int, limit: int | None) -> list[T]:
    """Every n-th from `offset` on, at most `limit`; raises BenchmarkError if none is left."""
    if every < 1 or offset < 0 or (limit is not None and limit < 1):
        raise BenchmarkError("--every and --limit must be at least 1, --offset at least 0")
    chosen = tasks[offset::every][:limit]
    if not chosen:
        raise BenchmarkError(f"no task is left of {len(tasks)} with --offset {offset}")
    return chosen


def stdlib_files(*, smallest: int = 3_000, largest: int = 80_000) -> list[Path]:
    """Python's own sources on this machine, by name; real files that everyone has."""
    root = Path(sysconfig.get_path("stdlib"))
    files = [
        file
        for pattern in ("*.py", "json/*.py", "http/*.py", "email/*.py", "asyncio/*.py")
        for file in root.glob(pattern)
        if smallest <= file.stat().st_size <= largest
    ]
    if not files:
        raise BenchmarkError(f"no Python sources under {root}; install Python with its library")
    return sorted(files)


def cursors(count: int, *, seed: int) -> list[Cursor]:
    """Random cursors in standard-library files, the kinds in turn; the same for the same seed."""
    rng = random.Random(seed)
    files = stdlib_files()
    found: list[Cursor] = []
    while len(found) < count:
        kind = CURSOR_KINDS[len(found) % len(CURSOR_KINDS)]
        file = rng.choice(files)
        cursor = cursor_in(file.read_text(encoding="utf-8"), kind, rng, file.name)
        if cursor is not None:
            found.append(cursor)
    return found


def cursor_in(text: str, kind: CursorKind, rng: random.Random, name: str) -> Cursor | None:
    """A cursor of that kind in the text; None when its tokens offer no such place.

    What stood right of the cursor up to the line's end is gone, as while typing; for `mid_token`
    it stays half of the time, so that the right edge splits a word too.
    """
    names = _name_tokens(text)
    if not names:
        return None
    row, start, end = rng.choice(names)
    lines = text.split("\n")
    line = lines[row]
    if kind == "line_start":
        column, rest = 0, ""
    elif kind == "mid_line":
        column, rest = end, ""
    else:
        column = rng.randrange(start + 1, end)
        rest = line[column:] if rng.random() < 0.5 else ""
    return Cursor(
        name=f"{name}:{row + 1}:{column}",
        kind=kind,
        prefix="\n".join([*lines[:row], line[:column]]),
        suffix="\n".join([rest, *lines[row + 1 :]]),
    )


def _name_tokens(text: str) -> list[tuple[int, int, int]]:
    """(row, start, end) of names of three letters or more, both 0-based, ends exclusive."""
    try:
        tokens = list(tokenize.generate_tokens(io.StringIO(text, newline="").readline))
    except (tokenize.TokenError, SyntaxError):
        return []
    return [
        (token.start[0] - 1, token.start[1], token.end[1])
        for token in tokens
        if token.type == tokenize.NAME and len(token.string) >= 3
    ]
