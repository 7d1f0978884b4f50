"""Seconds from no engine process at all to the first completion, the weights already converted.

Each start runs `python -m dlsp complete` on a shipped example, with a runtime folder of its own.
A first start, not counted, makes sure that the weights are there and converted.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from typing import Any

from benchmarks.demo import EXAMPLES, Cursor, load_cursors
from benchmarks.engine_run import finish
from benchmarks.own_engine import own_engine
from benchmarks.report import BenchmarkError, Progress, percentile, write_figures

#: The first start may fetch and convert the weights.
LIMIT_S = 3600.0


def command(cursor: Cursor, options: argparse.Namespace) -> list[str]:
    place = [str(EXAMPLES / cursor.file), "--at", f"{cursor.line}:{cursor.col}"]
    model = ["--model", options.model] if options.model else []
    return [sys.executable, "-m", "dlsp", "complete", *place, "--json", *model]


def start_once(cursor: Cursor, options: argparse.Namespace) -> tuple[float, dict[str, Any]]:
    """Seconds to the first completion, and that completion; raises BenchmarkError."""
    with own_engine() as environment:
        started = time.perf_counter()
        try:
            run = subprocess.run(
                command(cursor, options),
                env={**os.environ, **environment},
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=LIMIT_S,
            )
        except subprocess.TimeoutExpired:
            raise BenchmarkError(f"no completion within {LIMIT_S:.0f} s") from None
        seconds = time.perf_counter() - started
    if run.returncode != 0:
        last = run.stderr.strip().splitlines() or [f"exit code {run.returncode}"]
        raise BenchmarkError(f"`dlsp complete` failed: {last[-1]}")
    found: dict[str, Any] = json.loads(run.stdout)
    if not found.get("text"):
        raise BenchmarkError(f"the first completion of {cursor.file} was empty")
    return seconds, found


def measure(options: argparse.Namespace) -> dict[str, object]:
    """One start to prepare, then the counted ones."""
    cursor = load_cursors()[0]
    prepare_s, _ = start_once(cursor, options)
    seconds: list[float] = []
    found: dict[str, Any] = {}
    with Progress(options.starts, "cold starts") as progress:
        for _ in range(options.starts):
            spent, found = start_once(cursor, options)
            seconds.append(spent)
            progress.step(f"{spent:.2f} s")
    return {
        "benchmark": "cold_start",
        "model": found["model"],
        "n": len(seconds),
        "seconds_p50": round(percentile(seconds, 0.5), 2),
        "seconds_max": round(max(seconds), 2),
        "prepare_seconds": round(prepare_s, 2),
        "ms": found["ms"],
    }


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.cold_start", description=__doc__)
    parser.add_argument("--starts", type=int, default=5)
    parser.add_argument("--model", help="catalogue name (default: the command's own)")
    parser.add_argument("--json", action="store_true", help="one JSON line on stdout")
    options = parser.parse_args(argv)

    def work() -> None:
        if options.starts < 1:
            raise BenchmarkError("--starts must be at least 1")
        write_figures(measure(options), as_json=options.json)

    return finish(work)


if __name__ == "__main__":
    sys.exit(main())
