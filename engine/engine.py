"""The engine: load a model, then fill holes. `Engine.infill` is the path of one request.

encode the context -> canvas -> denoise until the hole ends -> decode -> syntax, with repair.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import torch

from engine import catalog, converted, store, syntax
from engine.anchor import Anchors, Plan
from engine.cache import Stream, StreamPool
from engine.canvas import Canvas
from engine.choice import Chooser, Vocabulary
from engine.clock import Clock
from engine.denoise import Loop
from engine.drafting import Acceptance, Costs, Drafter, Experience
from engine.hole import Hole
from engine.kernels import cpu
from engine.model import denoiser_file
from engine.model.denoiser import Denoiser
from engine.model.transformer import Transformer
from engine.prompt import style_of
from engine.request import BadRequest, InfillRequest, InfillResult, Sources, StageTimes
from engine.tokenizer import Tokenizer

Cancelled = Callable[[], bool]
Progress = Callable[[str, int, int], None]
Status = Literal["ok", "broken", "unknown"]

ENCODE_CHUNK = 32
REPAIR_ROUNDS = 2


def never() -> bool:
    """A request that nobody cancels."""
    return False


@dataclass(slots=True, kw_only=True)
class _Run:
    """What one request has come to so far."""

    hole: Hole
    canvas: Canvas
    reason: str
    text: str = ""
    status: Status = "unknown"
    repaired: bool = False


class Engine:
    """One loaded model. Calls must come one at a time."""

    def __init__(
        self,
        name: str,
        base: Transformer,
        tokenizer: Tokenizer,
        denoiser: Denoiser | None,
        calibration: tuple[float, ...] = (),
    ) -> None:
        self.name, self.base, self.tokenizer, self.denoiser = name, base, tokenizer, denoiser
        self.style = style_of(tokenizer)
        self.vocabulary = Vocabulary(tokenizer, self.style, base.config.vocab)
        self.anchors = Anchors(tokenizer, self.style)
        self.streams = StreamPool(base.new_stream)
        self.suffix_streams = StreamPool(base.new_stream)
        self.experience = Experience(acceptance=Acceptance(calibration), costs=Costs())

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
            base, spelling = store.open_float(files.path, depths)
        else:
            folder = converted.converted_folder(files.sha256)
            store.convert(files.path, folder, progress)
            base, spelling = store.open_int8(folder, depths, tokenizer)
        if trained is None or config is None:
            return cls(files.name, base, spelling, None)
        denoiser = denoiser_file.load(trained, base)
        return cls(files.name, base, spelling, denoiser, config.calibration)

    @torch.inference_mode()
    def infill(
        self,
        request: InfillRequest,
        cancelled: Cancelled = never,
        on_text: Callable[[str], None] | None = None,
    ) -> InfillResult:
        """Fill the hole of `request`. Blocks; `cancelled` is polled between steps.

        `on_text` receives the text that is returned, once it is final. Raises EngineError.
        """
        if request.mode == "free" and self.denoiser is None:
            raise BadRequest(f"{self.name} has no denoiser; use mode verified or ar")
        clock = Clock(request.deadline_ms, cancelled)
        hole = Hole.of(request)
        plan = self.anchors.plan(hole)
        canvas = Canvas(self.tokenizer, plan.spell)
        with clock.stage("encode"):
            stream, after, cached = self._encode(plan, clock)
        if clock.cancelled():
            return self._cancelled(request, clock)
        chooser = Chooser(self.vocabulary, hole, request.temperature, request.seed or 0)
        drafter = Drafter(self.denoiser, self.base.embedding, stream, after, self.experience)
        loop = Loop(self.base, stream, chooser, drafter, request)
        run = _Run(hole=hole, canvas=canvas, reason=loop.run(canvas, clock.stop))
        self._judge(run, loop, request, clock)
        result = self._result(run, loop, request, clock)
        if on_text and result.text:
            on_text(result.text)
        return _with_context(result, len(plan.ids), cached)

    @torch.inference_mode()
    def warm(self, prefix: str, suffix: str, cancelled: Cancelled = never) -> None:
        """Encode the context of a cursor, so that the next request there is quick."""
        plan = self.anchors.plan(Hole.of(InfillRequest(prefix=prefix, suffix=suffix)))
        self._encode(plan, Clock(None, cancelled))

    def reset(self) -> None:
        """Forget every cached context."""
        for part in (self.anchors, self.streams, self.suffix_streams):
            part.clear()

    def _encode(self, plan: Plan, clock: Clock) -> tuple[Stream, Stream | None, int]:
        """The streams of prompt and suffix, and how many tokens were cached already."""
        stream = self.streams.take(plan.ids)
        cached = len(stream)
        self._extend(stream, plan.ids, clock)
        if not plan.after_ids:
            return stream, None, cached
        after = self.suffix_streams.take(plan.after_ids)
        self._extend(after, plan.after_ids, clock)
        return stream, after, cached

    def _extend(self, stream: Stream, ids: list[int], clock: Clock) -> None:
        while len(stream) < len(ids) and not clock.cancelled():
            at = len(stream)
            self.base.encode(ids[at : at + ENCODE_CHUNK], stream)

    def _judge(self, run: _Run, loop: Loop, request: InfillRequest, clock: Clock) -> None:
        """Set the text and its verdict; re-mask what breaks the syntax, within the deadline."""
        for round_ in range(REPAIR_ROUNDS + 1):
            run.text = run.hole.finish(_until(run.canvas.text, run.hole))
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
            position = run.canvas.position_at(verdict.spans[0][0])
            run.canvas.ban(position, run.canvas.ids[position])
            run.canvas.cut(position)
            run.reason, run.repaired = loop.run(run.canvas, clock.stop), True
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
            )
        if run.text:
            run.status = "ok"
        else:
            run.reason = "syntax"

    def _result(self, run: _Run, loop: Loop, request: InfillRequest, clock: Clock) -> InfillResult:
        text = "" if run.reason == "cancelled" else run.text
        tokens = run.canvas.returned(text) if text else []
        count = {name: sum(t.source == name for t in tokens) for name in ("base", "lookup")}
        logs = [math.log(max(t.probability, 1e-9)) for t in tokens]
        reason = run.reason if text or run.reason not in ("stop", "length") else "empty"
        spent = loop.spent
        return InfillResult(
            text=text,
            finish_reason=reason,  # type: ignore[arg-type]
            model=self.name,
            mode=request.mode,
            tokens=len(tokens),
            forwards=len({t.forward for t in tokens}),
            steps=spent.steps,
            near_ties=loop.chooser.near_ties,
            sources=Sources(
                base=count["base"],
                lookup=count["lookup"],
                denoiser=len(tokens) - count["base"] - count["lookup"],
            ),
            syntax=run.status,
            repaired=run.repaired and bool(text),
            confidence=math.exp(sum(logs) / len(logs)) if logs else 0.0,
            ms=StageTimes(
                encode=clock.ms("encode"),
                denoise=spent.denoise_ms,
                verify=spent.verify_ms,
                syntax=clock.ms("syntax"),
                total=clock.elapsed_ms(),
            ),
        )

    def _cancelled(self, request: InfillRequest, clock: Clock) -> InfillResult:
        times = StageTimes(encode=clock.ms("encode"), total=clock.elapsed_ms())
        return InfillResult(
            text="", finish_reason="cancelled", model=self.name, mode=request.mode, ms=times
        )


def _until(text: str, hole: Hole) -> str:
    end = hole.end(text)
    return text if end is None else text[:end]


def _with_context(result: InfillResult, prompt: int, cached: int) -> InfillResult:
    return replace(result, prompt_tokens=prompt, cached_tokens=cached)
