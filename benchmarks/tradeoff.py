"""What accuracy costs: every mode, number of steps and threshold on the same holes, as a curve.

The settings take turns hole by hole, so all of them see the same minutes of the machine and share
the encoded context. Rows go to one file per setting: `benchmarks.compare` takes any two of them.
Knows the two benchmarks it runs, nothing of how they measure.
"""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import cast, get_args

from benchmarks import infilling, realcode
from benchmarks.engine_run import Infiller, add_model_arguments, finish, load_engine
from benchmarks.figures import Row
from benchmarks.filling import Filling, Series
from benchmarks.plot import draw
from benchmarks.report import BenchmarkError, Rows, write_figures
from engine.request import BadRequest, Mode

STEPS, THRESHOLDS = (2, 4), (0.3, 0.6, 0.9)
#: `free` with one step closes the canvas at once: no threshold matters there.
GRID = ("ar", "verified", "free:1", *(f"free:{s}:{t}" for s in STEPS for t in THRESHOLDS))


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """A point of the curve; `label` is MODE[:STEPS[:THRESHOLD]], as it was asked for."""

    label: str
    mode: Mode
    steps: int
    threshold: float

    @classmethod
    def parse(cls, label: str) -> Setting:
        """Raises BenchmarkError for anything else than MODE[:STEPS[:THRESHOLD]]."""
        mode, *rest = label.split(":")
        try:
            if mode not in get_args(Mode) or len(rest) > 2:
                raise ValueError
            steps = int(rest[0]) if rest else 4
            threshold = float(rest[1]) if len(rest) > 1 else 0.6
            setting = cls(label=label, mode=cast(Mode, mode), steps=steps, threshold=threshold)
            setting.filling(max_tokens=1).request("", "", "line", "python")
        except (ValueError, BadRequest):
            raise BenchmarkError(
                f"{label!r} is no setting: write MODE[:STEPS[:THRESHOLD]], as in free:2:0.6"
            ) from None
        return setting

    def filling(self, max_tokens: int) -> Filling:
        """How this setting fills a hole."""
        return Filling(
            mode=self.mode, steps=self.steps, threshold=self.threshold, max_tokens=max_tokens
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One benchmark on its holes: their keys, and how they are measured and summed up.

    `accuracy`: the figure that the curve shows.
    """

    name: str
    accuracy: str
    keys: list[str]
    max_tokens: int
    measure: Callable[[Infiller, Sequence[Series]], None]
    summary: Callable[[Sequence[Row]], dict[str, object]]

    def series(self, settings: Sequence[Setting], out: Path, model: str) -> list[Series]:
        """The rows of each setting so far; raises BenchmarkError when they are of another run."""
        found = []
        for setting in settings:
            filling = setting.filling(self.max_tokens)
            path = out / f"{self.name}-{setting.label.replace(':', '-')}.jsonl"
            rows = Rows(path, f"tradeoff {self.name} {model} {filling}")
            found.append(Series(filling=filling, rows=rows))
        return found

    def points(self, settings: Sequence[Setting], series: Sequence[Series]) -> dict[str, object]:
        """The curve: for each setting its figures over all holes."""
        points = []
        for setting, one in zip(settings, series, strict=True):
            figures = self.summary(one.rows.of(self.keys))
            whole = {key: value for key, value in figures.items() if not key.startswith("by_")}
            points.append({**asdict(setting), **whole})
        return {"accuracy": self.accuracy, "n": len(self.keys), "points": points}


def parts_of(options: argparse.Namespace) -> list[Part]:
    """The benchmarks that the command line asks for; raises BenchmarkError."""
    parts: list[Part] = []
    if options.infilling is not None:
        parser = argparse.ArgumentParser(prog="--infilling", add_help=False)
        infilling.add_task_arguments(parser)
        _, tasks = infilling.tasks_of(parser.parse_args(shlex.split(options.infilling)))
        parts.append(
            Part(
                name="infilling",
                accuracy="pass@1",
                keys=[task.task_id for task in tasks],
                max_tokens=infilling.MAX_TOKENS,
                measure=lambda engine, series: infilling.measure(engine, tasks, series),
                summary=infilling.summary,
            )
        )
    if options.realcode is not None:
        parser = argparse.ArgumentParser(prog="--realcode", add_help=False)
        realcode.add_hole_arguments(parser)
        asked = parser.parse_args(shlex.split(options.realcode))
        asked.model = options.model
        holes = realcode.holes_of(asked)
        parts.append(
            Part(
                name="realcode",
                accuracy="em",
                keys=[hole.hole_id for hole in holes],
                max_tokens=realcode.MAX_TOKENS,
                measure=lambda engine, series: realcode.measure(engine, holes, series),
                summary=realcode.summary,
            )
        )
    return parts


def measured(options: argparse.Namespace) -> dict[str, object]:
    """Runs what is not done yet; the curves of all parts. Raises EngineError, BenchmarkError."""
    settings = [Setting.parse(label) for label in options.settings]
    parts = parts_of(options)
    weights = options.weights.name if options.weights else "catalogue"
    series = [part.series(settings, options.out, f"{options.model} {weights}") for part in parts]
    engine: Infiller | None = None
    for part, some in zip(parts, series, strict=True):
        if any(key not in one.rows.done for one in some for key in part.keys):
            engine = engine or load_engine(options.model, options.weights, options.threads)
            part.measure(engine, some)
    return {
        "benchmark": "tradeoff",
        "model": engine.name if engine else options.model,
        **{
            part.name: part.points(settings, some) for part, some in zip(parts, series, strict=True)
        },
    }


def read(path: Path) -> dict[str, object]:
    """Figures that an earlier run wrote with --json; raises BenchmarkError."""
    try:
        figures = json.loads(path.read_text(encoding="utf-8"))
        if figures["benchmark"] != "tradeoff":
            raise ValueError("not of this benchmark")
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise BenchmarkError(f"{path} holds no figures of this benchmark: {error!r}") from None
    return cast(dict[str, object], figures)


def show(figures: dict[str, object], *, as_json: bool) -> None:
    """The JSON line, or a line for each point."""
    if as_json:
        write_figures(figures, as_json=True)
        return
    keys = ("tokens_per_forward", "forwards_per_completion", "decode_ms_p50", "ms_p50", "empty")
    for name, part in figures.items():
        if isinstance(part, dict):
            wanted = (part["accuracy"], *keys)
            table = {
                point["label"]: {key: point[key] for key in wanted} for point in part["points"]
            }
            write_figures({f"{name}, n = {part['n']}": table}, as_json=False)


def parse_arguments(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.tradeoff", description=__doc__)
    parser.add_argument(
        "--infilling",
        metavar="ARGUMENTS",
        help="on HumanEval-Infilling, tasks as for benchmarks.infilling: --infilling='--every 4'",
    )
    parser.add_argument(
        "--realcode",
        metavar="ARGUMENTS",
        help="on real files, holes as for benchmarks.realcode: --realcode='--every 10'",
    )
    parser.add_argument(
        "--settings",
        nargs="+",
        metavar="MODE[:STEPS[:THRESHOLD]]",
        default=list(GRID),
        help=f"the points of the curve (default: {' '.join(GRID)})",
    )
    parser.add_argument("--out", type=Path, help="folder of the rows of each setting: stop, go on")
    parser.add_argument("--svg", type=Path, help="draw the curves into this file")
    parser.add_argument("--figures", type=Path, help="measure nothing: the JSON line of a past run")
    parser.add_argument("--json", action="store_true", help="one JSON line on stdout")
    add_model_arguments(parser)
    options = parser.parse_args(argv)
    if options.figures is None:
        if options.infilling is None and options.realcode is None:
            parser.error("give --infilling, --realcode or both (or --figures FILE)")
        if options.out is None:
            parser.error("give a folder with --out: the rows of each setting are kept there")
    return options


def run(options: argparse.Namespace) -> None:
    """Measures or reads, draws, reports; raises EngineError, BenchmarkError, KeyboardInterrupt."""
    figures = read(options.figures) if options.figures else measured(options)
    if options.svg:
        options.svg.parent.mkdir(parents=True, exist_ok=True)
        options.svg.write_text(draw(figures), encoding="utf-8")
    show(figures, as_json=options.json)


def main(argv: list[str] | None = None) -> int:
    return finish(lambda: run(parse_arguments(argv)))


if __name__ == "__main__":
    sys.exit(main())
