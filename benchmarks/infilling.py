"""HumanEval-Infilling on the engine: pass@1, exact match, tokens per forward, milliseconds.

Fills each hole in-process without a deadline, puts the program together with the text as returned
and runs its tests, beside the model where there is a core for it. Knows the engine's request and
result only, nothing of tokens.
"""

from __future__ import annotations

import argparse
import sys
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from benchmarks.cuts import describe, length_class, length_classes, recut
from benchmarks.engine_run import Infiller, add_model_arguments, finish, load_engine
from benchmarks.figures import Row, brief, cost, number, share, split
from benchmarks.filling import Filling, Series, add_filling_arguments, fill, filling_of, turns
from benchmarks.report import BenchmarkError, Progress, Rows, say, write_figures
from benchmarks.sandbox import run_program
from benchmarks.scoring import parses
from benchmarks.sets import SETS, locate
from benchmarks.tasks import Task, choose, load_tasks
from engine.request import InfillRequest

#: The data set's own solutions that must pass before any figure is believed.
CHECKED_SOLUTIONS = 5
MAX_TOKENS = 64
CURSORS = ("line_start", "mid_line", "mid_token")
SHARES = (("pass@1", "passed"), ("em", "em"), ("parse_rate", "parses"))


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


def request_of(task: Task, filling: Filling) -> InfillRequest:
    """What an editor would ask with its cursor in the task's hole."""
    return filling.request(task.prefix, task.suffix, task.want, "python")


def score(task: Task, filled: Row) -> Row:
    """The filled hole with its verdicts; runs the program."""
    text = str(filled["text"])
    run = run_program(task.checked(text))
    return {
        "task": task.origin,
        "group": task.group,
        "set": task.set_name,
        "passed": run.outcome == "passed",
        "outcome": run.outcome,
        "detail": run.detail,
        "em": task.matches(text),
        "parses": parses(task.program(text), "python"),
        **filled,
    }


def measure(
    engine: Infiller, tasks: Sequence[Task], series: Sequence[Series], jobs: int = 1
) -> None:
    """Fills every hole not done yet; each row is kept as soon as it is known, and in order.

    Up to `jobs` programs are tested while the model goes on; with 0 the model waits for each.
    """
    left = list(turns(tasks, series, lambda task: task.task_id))
    if (done := len(tasks) * len(series) - len(left)) > 0:
        say(f"{done} of {len(tasks) * len(series)} tasks are done already")
    tested: deque[tuple[Task, Rows, Future[Row]]] = deque()
    passed = 0

    def keep() -> None:
        nonlocal passed
        task, rows, future = tested.popleft()
        row = future.result()
        rows.add(task.task_id, row)
        passed += bool(row["passed"])
        progress.step(f"pass {passed / (progress.done + 1):.0%}")

    with Progress(len(left), "tasks") as progress, ThreadPoolExecutor(max(1, jobs)) as pool:
        try:
            for task, one in left:
                place = describe(engine.tokenizer, task.prefix, task.canonical, task.suffix)
                filled = fill(engine, request_of(task, one.filling)) | place
                tested.append((task, one.rows, pool.submit(score, task, filled)))
                while tested and (len(tested) > jobs or tested[0][2].done()):
                    keep()
        finally:  # what is filled already is kept, also when the user stops here
            while tested:
                keep()


def summary(rows: Sequence[Row]) -> dict[str, object]:
    """The figures over all rows, then split by hole length, cursor and, if several, by set."""

    def line(some: Sequence[Row]) -> dict[str, object]:
        return brief(some, SHARES)

    def length(row: Row) -> str:
        return length_class(int(number(row["hole_tokens"])))

    figures: dict[str, object] = {
        **{name: share(rows, column) for name, column in SHARES},
        "n": len(rows),
        **cost(rows),
        "by_length": split(rows, length, line, length_classes()),
        "by_cursor": split(rows, lambda row: str(row["cursor"]), line, CURSORS),
    }
    by_set = split(rows, lambda row: str(row["set"]), line)
    return figures | ({"by_set": by_set} if len(by_set) > 1 else {})


def add_task_arguments(parser: argparse.ArgumentParser) -> None:
    """Which tasks: --data, --set, --every, --offset, --limit, --hole."""
    parser.add_argument(
        "--data", type=Path, help="the data's folder, or one .jsonl.gz of it (default: the hub)"
    )
    parser.add_argument(
        "--set",
        nargs="+",
        choices=tuple(SETS),
        default=["single-line"],
        dest="sets",
        help="which sets of a folder or the hub (default: single-line)",
    )
    parser.add_argument("--every", type=int, default=1, help="take every n-th task of each set")
    parser.add_argument("--offset", type=int, default=0)
    parser.add_argument("--limit", type=int, help="at most so many tasks of each set")
    parser.add_argument(
        "--hole",
        choices=("editor", "raw"),
        default="editor",
        help="editor: a whole-line hole keeps its line end in the suffix; raw: as in the data",
    )


def tasks_of(options: argparse.Namespace) -> tuple[list[Path], list[Task]]:
    """The files and tasks that the command line asks for, originals checked.

    Raises BenchmarkError.
    """
    files = locate(options.data, options.sets)
    tasks: list[Task] = []
    for file in files:
        chosen = choose(
            load_tasks(file, options.hole),
            every=options.every,
            offset=options.offset,
            limit=options.limit,
        )
        check_solutions(chosen)
        tasks += chosen
    return files, tasks


def parse_arguments(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.infilling", description=__doc__)
    add_task_arguments(parser)
    add_filling_arguments(parser, max_tokens=MAX_TOKENS)
    parser.add_argument("--recut", type=int, metavar="N", help="N tasks, cursors inside tokens")
    parser.add_argument("--uncut", action="store_true", help="the tasks of --recut as they were")
    parser.add_argument("--seed", type=int, default=0, help="of the cuts")
    parser.add_argument(
        "--jobs",
        type=int,
        default=1,
        help="programs tested beside the model (0: none, which leaves milliseconds undisturbed)",
    )
    parser.add_argument("--out", type=Path, help="stop and go on: rows per task (JSON lines)")
    parser.add_argument("--json", action="store_true", help="one JSON line on stdout")
    add_model_arguments(parser)
    options = parser.parse_args(argv)
    if options.uncut and options.recut is None:
        parser.error("--uncut needs --recut N")
    return options


def run(options: argparse.Namespace) -> None:
    """Loads, checks, measures, reports; raises EngineError, BenchmarkError, KeyboardInterrupt."""
    filling = filling_of(options)
    files, tasks = tasks_of(options)
    data = " ".join(file.name for file in files)
    weights = options.weights.name if options.weights else "catalogue"
    cut = f"uncut {options.recut}" if options.uncut else f"recut {options.recut}"
    cuts = (cut, options.seed) if options.recut is not None else ()
    settings = (data, options.model, weights, filling, options.hole, *cuts)
    rows = Rows(options.out, " ".join(map(str, settings)))
    name = options.model
    if options.recut is not None or any(task.task_id not in rows.done for task in tasks):
        engine = load_engine(options.model, options.weights, options.threads)
        name = engine.name
        if options.recut is not None:
            pairs = recut(engine.tokenizer, tasks, options.recut, options.seed)
            tasks = [whole if options.uncut else cut for whole, cut in pairs]
        measure(engine, tasks, [Series(filling=filling, rows=rows)], options.jobs)
    figures = summary(rows.of(task.task_id for task in tasks))
    write_figures({**figures, **labels(options, filling, name, data)}, as_json=options.json)


def labels(
    options: argparse.Namespace, filling: Filling, model: str, data: str
) -> dict[str, object]:
    """What was measured, for whoever reads the JSON line later."""
    return {
        "benchmark": "infilling",
        "model": model,
        "data": data,
        "every": options.every,
        "offset": options.offset,
        "hole": options.hole,
        **filling.labels(),
        "recut": options.recut,
        "uncut": options.uncut,
        "seed": options.seed,
    }


def main(argv: list[str] | None = None) -> int:
    return finish(lambda: run(parse_arguments(argv)))


if __name__ == "__main__":
    sys.exit(main())
