"""The engine: load a model, then fill holes. `Engine.infill` is the path of one request.

encode the context -> canvas -> denoise until the hole ends -> decode -> syntax, with repair.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch

from engine import catalog, converted, store, syntax
from engine.canvas_runner import CanvasRunner
from engine.clock import Clock
from engine.hole import Hole
from engine.kernels import cpu, dispatch
from engine.model import denoiser_file
from engine.native_runner import NativeRunner
from engine.placement import place
from engine.request import InfillRequest, InfillResult, Sources, StageTimes
from engine.runner import Filling, Runner
from engine.tokenizer import Tokenizer
from engine.trace import Observer

Cancelled = Callable[[], bool]
Progress = Callable[[str, int, int], None]
Status = Literal["ok", "broken", "unknown"]

REPAIR_ROUNDS = 2


def never() -> bool:
    """A request that nobody cancels."""
    return False


@dataclass(slots=True, kw_only=True)
class _Run:
    """What one request has come to so far."""

    hole: Hole
    filling: Filling
    reason: str
    text: str = ""
    status: Status = "unknown"
    repaired: bool = False


class Engine:
    """One loaded model. Calls must come one at a time."""

    def __init__(self, name: str, runner: Runner, kernels: str = "cpu") -> None:
        """`runner` fills holes the way the model's family does, on the kernels of that name."""
        self.name, self.runner, self.kernels = name, runner, kernels

    @property
    def tokenizer(self) -> Tokenizer:
        """The model's tokenizer."""
        return self.runner.tokenizer

    @classmethod
    def load(
        cls,
        model: str,
        *,
        weights: Path | None = None,
        threads: int | None = None,
        precision: str = "int8",
        progress: Progress | None = None,
        tokenizer: Future[Tokenizer] | None = None,
    ) -> Engine:
        """Resolve (downloading if needed), convert once, open. Blocks; raises EngineError.

        `precision`: int8, or float32 (the reference for tests; slow). `tokenizer`: the model's,
        where `converted.read_ahead` has begun to read it.
        """
        cpu.set_threads(threads)
        torch.set_num_threads(1)  # what is left to torch is small; two pools of threads would fight
        files = catalog.resolve(model, weights, progress)
        trained = denoiser_file.shipped(files.name)
        config = denoiser_file.load_config(trained) if trained else None
        depths = config.depths if config else ()
        if precision == "float32":
            base, spelling = store.open_float(files.path, depths, files.traits)
        else:
            folder = converted.converted_folder(files.sha256)
            store.convert(files.path, folder, progress, files.traits)
            base, spelling = store.open_int8(folder, depths, tokenizer)
        denoiser = denoiser_file.load(trained, base) if trained else None
        kernels = dispatch.choose()
        base, denoiser = place(base, denoiser, kernels)
        if base.config.family.diffuses:
            family = base.config.family
            runner: Runner = NativeRunner(base, spelling, family, files.habits)
        else:
            calibration = config.calibration if config else ()
            runner = CanvasRunner(base, spelling, denoiser, calibration)
        return cls(files.name, runner, kernels.name)

    @torch.inference_mode()
    def infill(
        self,
        request: InfillRequest,
        cancelled: Cancelled = never,
        on_text: Callable[[str], None] | None = None,
        on_step: Observer | None = None,
    ) -> InfillResult:
        """Fill the hole of `request`. Blocks; `cancelled` is polled between steps.

        `on_text` receives the text that is returned, once it is final; `on_step` the canvas after
        each step. Raises EngineError.
        """
        clock = Clock(request.deadline_ms, cancelled, patience_ms=request.patience_ms)
        hole = Hole.of(request)
        if request.syntax:
            with clock.stage("syntax"):
                hole = hole.started()
        filling = self.runner.begin(hole, request, clock, on_step)
        run = _Run(hole=hole, filling=filling, reason="cancelled")
        if not clock.cancelled():
            run.reason = filling.run(clock.stop)
            self._judge(run, request, clock)
        result = self._result(run, clock)
        if on_text and result.text:
            on_text(result.text)
        return result

    @torch.inference_mode()
    def warm(self, request: InfillRequest, cancelled: Cancelled = never) -> InfillResult:
        """Encode the context of a request, so that the next one there is quick; fills nothing."""
        clock = Clock(None, cancelled)
        hole = Hole.of(request)
        filling = self.runner.begin(hole, request, clock, None)
        if not clock.cancelled():
            filling.warm()
        reason = "cancelled" if clock.cancelled() else "empty"
        return self._result(_Run(hole=hole, filling=filling, reason=reason), clock)

    def limit_memory(self, megabytes: int) -> None:
        """Bound what the cached contexts take between requests."""
        self.runner.limit_memory(megabytes)

    def reset(self) -> None:
        """Forget every cached context."""
        self.runner.reset()

    def _judge(self, run: _Run, request: InfillRequest, clock: Clock) -> None:
        """Set the text and its verdict; re-mask what breaks the syntax, within the deadline."""
        for round_ in range(REPAIR_ROUNDS + 1):
            run.text = run.hole.finish(_until(run.filling.text, run.hole))
            if not request.syntax or not run.text or run.reason == "cancelled":
                return
            with clock.stage("syntax"):
                verdict = syntax.check(
                    prefix=run.hole.prefix,
                    text=run.text,
                    suffix=run.hole.word + run.hole.suffix,
                    language=request.language,
                )
            run.status = verdict.status
            again = round_ < REPAIR_ROUNDS and run.reason == "stop" and clock.time_left()
            if verdict.status != "broken" or not again or not verdict.spans:
                break
            run.filling.remask(*verdict.spans[0])
            run.reason, run.repaired = run.filling.run(clock.stop), True
        if run.status == "broken":
            self._shorten(run, request, clock)

    def _shorten(self, run: _Run, request: InfillRequest, clock: Clock) -> None:
        """What is left of a broken text: its longest valid prefix where the text was cut short or
        is a block, else nothing."""
        cut_short = run.reason in ("deadline", "length")
        if not cut_short and request.want == "line":
            run.text, run.reason = "", "syntax"
            return
        with clock.stage("syntax"):
            run.text = syntax.complete_prefix(
                run.hole.prefix,
                run.text,
                run.hole.word + run.hole.suffix,
                request.language,
                at="line" if request.want == "block" else "token",
                judged=True,
            )
        if run.text:
            run.status = "ok"
        else:
            run.reason = "syntax"

    def _result(self, run: _Run, clock: Clock) -> InfillResult:
        filling, spent = run.filling, run.filling.spent
        text = "" if run.reason == "cancelled" else run.text
        tokens = filling.returned(text) if text else []
        count = Counter(token.source for token in tokens)
        logs = [math.log(max(t.probability, 1e-9)) for t in tokens]
        reason = run.reason if text or run.reason not in ("stop", "length") else "empty"
        prompt_tokens, cached_tokens = filling.context
        return InfillResult(
            text=text,
            finish_reason=reason,  # type: ignore[arg-type]
            model=self.name,
            mode=filling.mode,
            tokens=len(tokens),
            forwards=filling.forwards(tokens),
            steps=spent.steps,
            prompt_tokens=prompt_tokens,
            cached_tokens=cached_tokens,
            near_ties=filling.near_ties,
            sources=Sources(
                base=count["base"],
                lookup=count["lookup"],
                denoiser=count["denoiser"],
                memory=count["memory"],
            ),
            syntax=run.status,
            repaired=run.repaired and bool(text),
            confidence=math.exp(sum(logs) / len(logs)) if logs else 0.0,
            kernels=self.kernels,
            graphs=spent.graphs,
            ms=StageTimes(
                encode=clock.ms("encode"),
                denoise=spent.denoise_ms,
                verify=spent.verify_ms,
                syntax=clock.ms("syntax"),
                total=clock.elapsed_ms(),
            ),
        )


def _until(text: str, hole: Hole) -> str:
    end = hole.end(text)
    return text if end is None else text[:end]
