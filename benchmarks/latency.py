"""Milliseconds of completions over the real LSP path: typing along (warm), and at new places.

Warm: characters of real Python files are typed into the rest of the file, with a request after
every few. Fresh: each request is in a new document of about 700 characters that was never sent
before. Knows LSP only; the engine is one of the benchmark's own, without other users.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path

from lsprotocol import types as lsp

from benchmarks.engine_run import finish
from benchmarks.lsp_session import LOADING_S, LspSession, Suggestion, server_options
from benchmarks.own_engine import own_engine
from benchmarks.report import BenchmarkError, Progress, percentile, ratio, spread, write_figures
from benchmarks.tasks import Cursor, cursor_in, stdlib_files

STAGES = ("context", "queue", "encode", "denoise", "verify", "syntax")
FRESH_BEFORE, FRESH_AFTER = 520, 180  # characters: about 200 tokens of Python together
TYPED_AT_ONCE = 4
REQUESTS_PER_FILE = 10
#: Long enough that most lines are finished: what a whole answer takes is measured here.
DEADLINE_MS = 1500.0


def position_at(text: str) -> lsp.Position:
    """The position of the text's end, in code points."""
    return lsp.Position(line=text.count("\n"), character=len(text) - text.rfind("\n") - 1)


def excerpt(cursor: Cursor) -> Cursor:
    """The lines around a cursor only, about 700 characters."""
    before = cursor.prefix[-FRESH_BEFORE:]
    if len(cursor.prefix) > FRESH_BEFORE:
        before = before[before.find("\n") + 1 :]
    after = cursor.suffix[:FRESH_AFTER].rpartition("\n")[0]
    return Cursor(name=cursor.name, kind=cursor.kind, prefix=before, suffix=after)


def fresh_places(count: int, seed: int) -> list[Cursor]:
    """Cursors with a short context each, every one in another file or far from the last."""
    rng = random.Random(seed)
    files = stdlib_files()
    rng.shuffle(files)
    places: list[Cursor] = []
    seen: set[str] = set()
    for number in range(count * 20):
        file = files[number % len(files)]
        cursor = cursor_in(file.read_text(encoding="utf-8"), "mid_line", rng, file.name)
        if cursor is None or not len(cursor.prefix) > FRESH_BEFORE or len(cursor.suffix) < 400:
            continue
        short = excerpt(cursor)
        lines = {line for line in short.prefix.split("\n") if len(line) > 30}
        if len(lines & seen) > 2 or not len(short.prefix) >= 400:
            continue
        seen |= lines
        places.append(short)
        if len(places) == count:
            return places
    raise BenchmarkError(f"only {len(places)} of {count} fresh places found in Python's library")


def typing_scripts(count: int, seed: int) -> list[tuple[str, str, str]]:
    """(before, typed, after) of real files; `typed` is entered in steps of a few characters."""
    rng = random.Random(seed)
    files = [file for file in stdlib_files() if file.stat().st_size > 8_000]
    rng.shuffle(files)
    length = TYPED_AT_ONCE * (REQUESTS_PER_FILE + 1)
    scripts: list[tuple[str, str, str]] = []
    for file in files:
        if len(scripts) == count:
            break
        text = file.read_text(encoding="utf-8")
        cursor = cursor_in(text, "line_start", rng, file.name)
        if cursor is None or not 2_000 < len(cursor.prefix) < len(text) - 2_000:
            continue
        start = len(cursor.prefix)
        end = text.find("\n", start + length)
        scripts.append((text[:start], text[start:end], text[end:]))
    return scripts


async def warm_requests(session: LspSession, count: int, seed: int) -> list[Suggestion]:
    """Types along in several files; the first request in each is not counted: it is not warm."""
    found: list[Suggestion] = []
    with Progress(count, "warm requests") as progress:
        for number, (before, typed, after) in enumerate(
            typing_scripts(-(-count // REQUESTS_PER_FILE), seed)
        ):
            uri = Path(f"/benchmark/warm_{number}.py").as_uri()
            session.open(uri, "python", before + after)
            await session.complete(uri, position_at(before))
            for step in range(min(REQUESTS_PER_FILE, count - len(found))):
                piece = typed[step * TYPED_AT_ONCE : (step + 1) * TYPED_AT_ONCE]
                session.insert(uri, position_at(before), piece)
                before += piece
                found.append(await session.complete(uri, position_at(before)))
                progress.step()
            session.close(uri)
    return found


async def fresh_requests(session: LspSession, count: int, seed: int) -> list[Suggestion]:
    """One request in each of many new documents."""
    found: list[Suggestion] = []
    with Progress(count, "fresh requests") as progress:
        for number, place in enumerate(fresh_places(count, seed)):
            uri = Path(f"/benchmark/fresh_{number}.py").as_uri()
            session.open(uri, "python", place.prefix + place.suffix)
            found.append(await session.complete(uri, position_at(place.prefix)))
            session.close(uri)
            progress.step()
    return found


def figures(suggestions: Sequence[Suggestion], what: str) -> dict[str, object]:
    """Medians and 90th percentiles; raises BenchmarkError where they would mislead."""
    errors = [suggestion.error for suggestion in suggestions if suggestion.error]
    if errors:
        raise BenchmarkError(
            f"{len(errors)} of {len(suggestions)} {what} requests failed in the engine: {errors[0]}"
        )
    answered = [suggestion for suggestion in suggestions if suggestion.text]
    if 2 * len(answered) < len(suggestions):
        reasons = [s.detail.get("reason") for s in suggestions if not s.text]
        raise BenchmarkError(
            f"only {len(answered)} of {len(suggestions)} {what} requests had an answer "
            f"(most often: {statistics.mode(reasons)}); the times would mean nothing"
        )
    tokens = [float(s.detail["tokens"]) for s in suggestions]
    forwards = [float(s.detail["forwards"]) for s in suggestions]
    return {
        "n": len(suggestions),
        "answered": len(answered),
        "ms_total": spread([_ms(s, "total") for s in suggestions]),
        "ms_client": spread([s.wall_ms for s in suggestions]),
        "ms": {stage: spread([_ms(s, stage) for s in suggestions]) for stage in STAGES},
        "tokens_p50": percentile(tokens, 0.5),
        "forwards_p50": percentile(forwards, 0.5),
        "tokens_per_forward": ratio(sum(tokens), sum(forwards), 3),
        "deadlines": sum(s.detail.get("finish_reason") == "deadline" for s in suggestions),
    }


def _ms(suggestion: Suggestion, stage: str) -> float:
    return float(suggestion.detail.get("ms", {}).get(stage, 0.0))


async def measure(options: argparse.Namespace) -> dict[str, object]:
    """Loads with one uncounted request, then measures both kinds; raises BenchmarkError."""
    settings = server_options(
        options.model, options.weights, deadline_ms=DEADLINE_MS, decoding=options.mode
    )
    settings["multi_line"] = False
    with own_engine() as environment:
        session = LspSession(options=settings, environment=environment, answer_s=LOADING_S)
        async with session:
            uri = Path("/benchmark/first.py").as_uri()
            session.open(uri, "python", "import os\n\nfor name in os.listdir('.'):\n    print(")
            first = await session.complete(uri, lsp.Position(line=3, character=10))
            if first.error:
                raise BenchmarkError(first.error)
            session.close(uri)
            warm = await warm_requests(session, options.requests, options.seed)
            fresh = await fresh_requests(session, options.requests, options.seed)
    return {
        "benchmark": "latency",
        "model": first.detail.get("model"),
        "mode": options.mode,
        "warm": figures(warm, "warm"),
        "fresh": figures(fresh, "fresh"),
        "seed": options.seed,
    }


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.latency", description=__doc__)
    parser.add_argument("--requests", type=int, default=50, help="of each kind")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--mode", choices=("ar", "verified", "free"), default="verified")
    parser.add_argument("--model", help="catalogue name (default: the server's own)")
    parser.add_argument("--weights", type=Path, help="a GGUF file or a folder in the hub's layout")
    parser.add_argument("--json", action="store_true", help="one JSON line on stdout")
    options = parser.parse_args(argv)
    return finish(lambda: write_figures(asyncio.run(measure(options)), as_json=options.json))


if __name__ == "__main__":
    sys.exit(main())
