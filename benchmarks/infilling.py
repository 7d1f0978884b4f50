"""HumanEval-Infilling on the engine: pass@1, exact match, tokens per forward, milliseconds.

Fills each hole in-process without a deadline, puts the program together with the text as returned
and runs its tests. Knows the engine's request and result only, nothing of tokens.
"""

from __future__ import annotations

import argparse
import ast
import sys
import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.engine_run import Infiller, add_model_arguments, explain, load_engine
from benchmarks.report import (
    BenchmarkError,
    Progress,
    Rows,
    ratio,
    say,
    spread,
    write_figures,
)
from benchmarks.sandbox import run_program
from benchmarks.tasks import Task, choose, load_tasks
from engine.request import InfillRequest, Mode

#: The data set's own solutions that must pass before any figure is believed.
CHECKED_SOLUTIONS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Filling:
    """How each hole is to be filled."""

    mode: Mode
    max_tokens: int = 64
    syntax: bool = True
    steps: int = 4
    threshold: float = 0.6


def check_solutions(tasks: Sequence[Task]) -> None:
    """Raises BenchmarkError when a sample of the original solutions fails on this machine."""
    step = max(1, len(tasks) // CHECKED_SOLUTIONS)
    for task in tasks[::step][:CHECKED_SOLUTIONS]:
        run = run_program(task.checked(task.canonical))
        if run.outcome != "passed":
            raise BenchmarkError(
                f"the original solution of {task.task_id} does not pass here "
                f"({run.outcome}: {run.detail}); no figure would mean anything"
            )


def measure_task(engine: Infiller, task: Task, filling: Filling) -> dict[str, object]:
    """Fills one hole and scores it."""
    request = InfillRequest(
        prefix=task.prefix,
        suffix=task.suffix,
        max_tokens=filling.max_tokens,
        language="python",
        want=task.want,
        mode=filling.mode,
        syntax=filling.syntax,
        steps=filling.steps,
        threshold=filling.threshold,
    )
    started = time.perf_counter()
    result = engine.infill(request)
    spent_ms = (time.perf_counter() - started) * 1000
    run = run_program(task.checked(result.text))
    sources = result.sources
    return {
        "passed": run.outcome == "passed",
        "outcome": run.outcome,
        "detail": run.detail,
        "em": task.matches(result.text),
        "parses": parses(task.program(result.text)),
        "text": result.text,
        "finish_reason": result.finish_reason,
        "tokens": result.tokens,
        "forwards": result.forwards,
        "steps": result.steps,
        "near_ties": result.near_ties,
        "repaired": result.repaired,
        "from": {"base": sources.base, "lookup": sources.lookup, "denoiser": sources.denoiser},
        "ms": round(spent_ms, 2),
    }


def parses(program: str) -> bool:
    """Whether Python can parse it; its warnings about odd escapes are not ours to show."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            ast.parse(program)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return False
    return True


def measure(engine: Infiller, tasks: Sequence[Task], filling: Filling, rows: Rows) -> None:
    """Fills every hole not done yet; each row is kept as soon as it is known."""
    left = [task for task in tasks if task.task_id not in rows.done]
    if len(left) < len(tasks):
        say(f"{len(tasks) - len(left)} of {len(tasks)} tasks are done already")
    passed = 0
    with Progress(len(left), "tasks") as progress:
        for number, task in enumerate(left, 1):
            row = measure_task(engine, task, filling)
            rows.add(task.task_id, row)
            passed += bool(row["passed"])
            progress.step(f"pass {passed / number:.0%}")


def summary(rows: Sequence[dict[str, object]]) -> dict[str, object]:
    """The figures over all rows."""
    count = len(rows)
    tokens, forwards = total(rows, "tokens"), total(rows, "forwards")
    times = spread([number(row["ms"]) for row in rows])
    origins = [row["from"] for row in rows]
    return {
        "pass@1": ratio(total(rows, "passed"), count),
        "em": ratio(total(rows, "em"), count),
        "n": count,
        "forwards": int(forwards),
        "tokens": int(tokens),
        "tokens_per_forward": ratio(tokens, forwards, 3),
        "ms_p50": times["p50"],
        "ms_p90": times["p90"],
        "from": {
            name: int(sum(number(origin[name]) for origin in origins if isinstance(origin, dict)))
            for name in ("base", "lookup", "denoiser")
        },
        "near_ties": int(total(rows, "near_ties")),
        "parse_rate": ratio(total(rows, "parses"), count),
        "repaired": int(total(rows, "repaired")),
        "empty": sum(1 for row in rows if not row["text"]),
    }


def total(rows: Sequence[dict[str, object]], key: str) -> float:
    """The sum of one column."""
    return sum(number(row[key]) for row in rows)


def number(value: object) -> float:
    """A figure out of a row, which may have come back from a file."""
    if not isinstance(value, int | float):
        raise BenchmarkError(f"a row holds {value!r} where a number belongs; delete the --out file")
    return float(value)


def parse_arguments(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.infilling", description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="a HumanEval-…Infilling.jsonl.gz")
    parser.add_argument("--every", type=int, default=1, help="take every n-th task")
    parser.add_argument("--offset", type=int, default=0)
    parser.add_argument("--limit", type=int)
    parser.add_argument("--mode", choices=("ar", "verified", "free"), default="verified")
    parser.add_argument("--max-tokens", type=int, default=64)
    parser.add_argument("--steps", type=int, default=4, help="free: denoising steps per canvas")
    parser.add_argument("--threshold", type=float, default=0.6, help="free: commit from here on")
    parser.add_argument("--no-syntax", action="store_true", help="no syntax repair")
    parser.add_argument(
        "--hole",
        choices=("editor", "raw"),
        default="editor",
        help="editor: a whole-line hole keeps its line end in the suffix; raw: as in the data",
    )
    parser.add_argument("--out", type=Path, help="stop and go on: rows per task (JSON lines)")
    parser.add_argument("--json", action="store_true", help="one JSON line on stdout")
    add_model_arguments(parser)
    return parser.parse_args(argv)


def run(options: argparse.Namespace) -> None:
    """Loads, checks, measures, reports; raises EngineError, BenchmarkError, KeyboardInterrupt."""
    tasks = choose(
        load_tasks(options.data, options.hole),
        every=options.every,
        offset=options.offset,
        limit=options.limit,
    )
    check_solutions(tasks)
    filling = Filling(
        mode=options.mode,
        max_tokens=options.max_tokens,
        syntax=not options.no_syntax,
        steps=options.steps,
        threshold=options.threshold,
    )
    weights = options.weights.name if options.weights else "catalogue"
    settings = (options.data.name, options.model, weights, filling, options.hole)
    rows = Rows(options.out, " ".join(map(str, settings)))
    name = options.model
    if any(task.task_id not in rows.done for task in tasks):
        engine = load_engine(options.model, options.weights, options.threads)
        name = engine.name
        measure(engine, tasks, filling, rows)
    figures = summary(rows.of(task.task_id for task in tasks))
    labels = {
        "benchmark": "infilling",
        "model": name,
        "mode": filling.mode,
        "data": options.data.name,
        "every": options.every,
        "offset": options.offset,
        "hole": options.hole,
        "syntax": filling.syntax,
        "max_tokens": filling.max_tokens,
    }
    write_figures({**figures, **labels}, as_json=options.json)


def main(argv: list[str] | None = None) -> int:
    try:
        run(parse_arguments(argv))
    except (Exception, KeyboardInterrupt) as error:
        return explain(error)
    return 0


if __name__ == "__main__":
    sys.exit(main())
