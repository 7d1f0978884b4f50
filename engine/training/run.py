"""What every training does: steps until the schedule ends, checkpoints and points of the curve on
the way; resumable at any kill.

What a step draws depends on the seed and its number alone, so that a training that was stopped goes
on as if it had not been.
"""

from __future__ import annotations

import json
import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.training.interrupts import Stop, Stopped

Log = Callable[[str], None]
#: Apart, so that no step of one seed draws what a step of the next one draws.
_SEED_STRIDE = 1_000_003


def step_seed(seed: int, step: int) -> int:
    """What a step draws with."""
    return seed * _SEED_STRIDE + step


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """`max_steps` long or, if that is 0, `seconds` of training time; both count across resumes. The
    learning rate rises for `warm_up` steps; the other two are seconds of training time."""

    seconds: float
    max_steps: int = 0
    warm_up: int = 30
    evaluate_every: float = 600.0
    save_every: float = 300.0
    seed: int = 1


class Training(ABC):
    """`elapsed` seconds and `steps`, across resumes; the folder that holds checkpoint and curve."""

    def __init__(self, schedule: Schedule, folder: Path) -> None:
        self.schedule, self.folder = schedule, folder
        self.elapsed, self.steps = 0.0, 0

    @abstractmethod
    def checkpoint(self) -> None:
        """Save, atomically, all that a step changes; the next training goes on from there."""

    @abstractmethod
    def _seen(self) -> tuple[str, float, str]:
        """What was learnt from: in words, in number, and the name of one of it, in the plural."""

    def _train(
        self,
        step: Callable[[], float],
        measure: Callable[[float | None], None],
        log: Log,
        stop: Stop,
    ) -> None:
        """Run `step`, which returns its loss and counts itself, until the schedule ends; tell
        `measure` the average loss now and then. When `stop` says so, or `measure` raises Stopped,
        saves a checkpoint and raises Stopped."""
        schedule = self.schedule
        saved = evaluated = self.elapsed
        average = None
        try:
            while self._done() < 1.0:
                if stop():
                    raise Stopped
                started = time.monotonic()
                value = step()
                self.elapsed += time.monotonic() - started
                average = value if average is None else 0.95 * average + 0.05 * value
                if self.steps % 20 == 0:
                    log(self._progress(average))
                if self.elapsed - saved >= schedule.save_every:
                    self.checkpoint()
                    saved = self.elapsed
                if self.elapsed - evaluated >= schedule.evaluate_every:
                    measure(average)
                    evaluated = self.elapsed
        except Stopped:
            self.checkpoint()
            raise
        self.checkpoint()
        measure(average)

    def _done(self) -> float:
        """The share of the schedule that lies behind, 1 at its end."""
        if self.schedule.max_steps:
            return min(self.steps / self.schedule.max_steps, 1.0)
        return min(self.elapsed / self.schedule.seconds, 1.0)

    def _rate(self) -> float:
        """What the learning rate is multiplied by now."""
        warm = min(1.0, (self.steps + 1) / self.schedule.warm_up)
        return warm * max(0.02, 0.5 * (1 + math.cos(math.pi * self._done())))

    def _progress(self, average: float) -> str:
        words, count, unit = self._seen()
        done = max(self._done(), 1e-9)
        return (
            f"step {self.steps}  loss {average:.3f}  {words}"
            f"  {count / max(self.elapsed, 1e-9):.0f} {unit}/s"
            f"  {self.elapsed * (1 - done) / done / 60:.0f} min left"
        )

    def _plot(self, point: dict[str, Any]) -> None:
        """Append a point to the curve."""
        when = {"seconds": round(self.elapsed), "step": self.steps}
        with (self.folder / "curve.jsonl").open("a", encoding="utf-8") as curve:
            curve.write(json.dumps(when | point) + "\n")

    @property
    def _path(self) -> Path:
        return self.folder / "checkpoint.safetensors"
