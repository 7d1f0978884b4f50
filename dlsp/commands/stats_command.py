"""`dlsp stats`: the scorecard on the terminal, as JSON, or erased.

Knows arguments, columns and bars; the figures come from `summary`, the rows from `scorecard`,
imported when they are asked for: every command waits for this module.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TextIO

from engine.request import BadRequest

_BARS = "▁▂▃▄▅▆▇█"
_FEWEST_COLUMNS = 40
_HEADINGS = ("language", "shown", "taken", "kept 30s", "kept 300s", "keys saved", "p50", "p90 ms")


def add_parser(commands: Any) -> None:
    """Register the command and its arguments."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "stats",
        help="print how useful suggestions were, or erase that record",
        description="Print what the scorecard says: how many suggestions were shown, taken and "
        "kept, and how long they took. It lies on this machine only and holds no code.",
    )
    parser.add_argument(
        "--days", type=_days, default=30, metavar="N",
        help="how far to look back (default: 30)",
    )  # fmt: skip
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    parser.add_argument("--erase", action="store_true", help="erase the record, and replay files")
    parser.add_argument("--yes", action="store_true", help="with --erase: do not ask")
    parser.set_defaults(run=run)


def _days(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= 10_000:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of days from 1")
    return int(text)


def run(arguments: argparse.Namespace) -> int:
    """Print or erase; the exit code."""
    from dlsp.scores.scorecard import default_path, read_rows
    from dlsp.scores.summary import summarise

    if arguments.erase:
        return _erase(confirmed=arguments.yes)
    found = summarise(read_rows(default_path(), days=arguments.days), days=arguments.days)
    if arguments.json:
        sys.stdout.write(json.dumps(found, ensure_ascii=False, indent=2) + "\n")
    else:
        sys.stdout.writelines(f"{line}\n" for line in page(found, bars=_shows_bars(sys.stdout)))
    return 0


def _shows_bars(stream: TextIO) -> bool:
    """Whether it is a terminal, and one whose encoding has the characters."""
    try:
        _BARS.encode(stream.encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return stream.isatty()


def _erase(*, confirmed: bool) -> int:
    from dlsp.diagnosis.recording import replay_folder
    from dlsp.diagnosis.replay import files_in
    from dlsp.scores.scorecard import default_path, erase

    path = default_path()
    if not confirmed:
        if not sys.stdin.isatty():
            raise BadRequest("--erase asks first, and there is no terminal: add --yes")
        sys.stderr.write(f"erase every figure and replay file in {path.parent}? [y/N] ")
        sys.stderr.flush()
        if sys.stdin.readline().strip().lower() not in ("y", "yes"):
            sys.stderr.write("nothing was erased\n")
            return 1
    replays = files_in(replay_folder())
    for file in replays:
        file.unlink(missing_ok=True)
    sys.stderr.write(f"erased: {erase(path)} suggestions, {len(replays)} replay files\n")
    return 0


def page(found: Mapping[str, Any], *, bars: bool) -> Iterator[str]:
    """The figures of `summarise` for a person; `bars`: with a plot of the days."""
    if not found["shown"] and not found["withheld"]:
        yield f"no suggestions in the last {found['days']} days"
        return
    yield (
        f"the last {found['days']} days: {found['shown']} suggestions shown, "
        f"{found['accepted']} accepted, {found['partial']} in part, "
        f"{found['typedThrough']} typed along; {found['withheld']} withheld"
    )
    if bars:
        yield from plot(found["byDay"], columns=shutil.get_terminal_size().columns)
    yield ""
    rows = [*found["byLanguage"].items(), ("all", found)]
    yield from _table([_HEADINGS, *(_cells(name, figures) for name, figures in rows)])


def plot(days: Sequence[Mapping[str, Any]], *, columns: int) -> Iterator[str]:
    """Shown and taken, a bar a day, the newest days that fit; both on one scale."""
    title = 8
    days = days[-max(columns, _FEWEST_COLUMNS) + title :]
    highest = max((day["shown"] for day in days), default=0)
    if not highest:
        return
    yield ""
    for name, key in (("shown", "shown"), ("taken", "accepted")):
        yield f"{name:<{title}}" + "".join(_bar(day[key], highest) for day in days)
    yield f"{'':<{title}}{days[0]['day']} to {days[-1]['day']}, at most {highest} a day"


def _bar(value: int, highest: int) -> str:
    if not value:
        return " "
    return _BARS[(value * len(_BARS) - 1) // highest]


def _cells(name: str, figures: Mapping[str, Any]) -> tuple[str, ...]:
    return (
        name,
        str(figures["shown"]),
        _percent(figures["acceptance"]),
        _percent(figures["kept30"]["share"]),
        _percent(figures["kept300"]["share"]),
        str(figures["keystrokesSaved"]),
        _ms(figures["msP50"]),
        _ms(figures["msP90"]),
    )


def _table(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for first, *others in rows:
        cells = [f"{cell:>{width}}" for cell, width in zip(others, widths[1:], strict=True)]
        yield "  ".join([f"{first:<{widths[0]}}", *cells])


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{share:.0%}"


def _ms(value: float | None) -> str:
    return "-" if value is None else f"{value:.0f}"
