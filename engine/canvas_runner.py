"""The canvas family: a causal base that never sees the canvas, and a denoiser that does.

Plans the context on its anchor, encodes it, and fills the hole with `denoise.Loop`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from engine.anchor import Anchors, Plan
from engine.cache import Stream, StreamPool
from engine.canvas import Canvas, Committed, Draft
from engine.choice import Chooser, Vocabulary
from engine.clock import Clock, HasText
from engine.denoise import Loop, Spent
from engine.drafting import Acceptance, Costs, Drafter, Experience
from engine.hole import Hole
from engine.model.denoiser import Denoiser
from engine.model.transformer import Transformer
from engine.prompt import style_of
from engine.request import BadRequest, InfillRequest, Mode
from engine.tokenizer import Tokenizer
from engine.trace import Observer, SlotView, Snapshot, State

ENCODE_CHUNK = 32


class CanvasRunner:
    """A base with its denoiser (or without one), and what it has encoded."""

    def __init__(
        self,
        base: Transformer,
        tokenizer: Tokenizer,
        denoiser: Denoiser | None,
        calibration: tuple[float, ...] = (),
    ) -> None:
        self.base, self.tokenizer, self.denoiser = base, tokenizer, denoiser
        self.style = style_of(tokenizer)
        self.vocabulary = Vocabulary(tokenizer, self.style, base.config.vocab)
        self.anchors = Anchors(tokenizer, self.style)
        self.streams = StreamPool(base.new_stream)
        self.suffix_streams = StreamPool(base.new_stream)
        self.experience = Experience(acceptance=Acceptance(calibration), costs=Costs())

    def begin(
        self, hole: Hole, request: InfillRequest, clock: Clock, on_step: Observer | None
    ) -> CanvasFilling:
        """Encode the context of a hole."""
        if request.mode == "free" and self.denoiser is None:
            raise BadRequest("this model has no denoiser; use mode verified or ar")
        plan = self.anchors.plan(hole)
        with clock.stage("encode"):
            stream, after, cached = self._encode(plan, clock)
        chooser = Chooser(self.vocabulary, hole, request.temperature, request.seed or 0)
        drafter = Drafter(self.denoiser, self.base.embedding, stream, after, self.experience)
        canvas = Canvas(self.tokenizer, plan.spell)
        trace = _Trace(self.tokenizer, on_step) if on_step else None
        loop = Loop(self.base, stream, chooser, drafter, request)
        loop.on_verified = trace
        return CanvasFilling(loop, canvas, (len(plan.ids), cached))

    def limit_memory(self, megabytes: int) -> None:
        """Bound what the cached contexts take between requests."""
        # Only a base without training to fill in the middle has streams for the suffix, too.
        share = megabytes * 1_000_000 // (1 if self.style.trained else 2)
        self.streams.limit_bytes = self.suffix_streams.limit_bytes = share

    def reset(self) -> None:
        """Forget every cached context, and what was left unfinished."""
        for part in (self.anchors, self.streams, self.suffix_streams):
            part.clear()
        self.experience.unfinished.clear()

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


class CanvasFilling:
    """One hole of the canvas family."""

    def __init__(self, loop: Loop, canvas: Canvas, context: tuple[int, int]) -> None:
        """`context`: tokens of the prompt, and how many of them were cached."""
        self._loop, self._canvas, self.context = loop, canvas, context

    @property
    def mode(self) -> Mode:
        """As requested."""
        return self._loop.mode

    @property
    def text(self) -> str:
        """The new text so far."""
        return self._canvas.text

    @property
    def spent(self) -> Spent:
        """What it took so far."""
        return self._loop.spent

    @property
    def near_ties(self) -> int:
        """Choices that another kernel may make differently."""
        return self._loop.chooser.near_ties

    def warm(self) -> None:
        """The context is encoded: nothing is left to do."""

    def run(self, stop: Callable[[HasText], str | None]) -> str:
        """Commit from the left until the hole has ended; returns why."""
        reason = self._loop.run(self._canvas, stop)
        if self._loop.on_verified:  # the last token ends the hole: no forward comes behind it
            self._loop.on_verified(self._canvas, (), 0)
        return reason

    def remask(self, start: int, end: int) -> None:
        """Mask again everything from the token at character `start` on, and ban it there."""
        position = self._canvas.position_at(start)
        self._canvas.ban(position, self._canvas.ids[position])
        self._canvas.cut(position)

    def returned(self, text: str) -> list[Committed]:
        """The tokens that spell a part of `text`."""
        return self._canvas.returned(text)

    def forwards(self, tokens: Sequence[Committed]) -> int:
        """The base forwards whose rows confirmed these tokens."""
        return len({token.forward for token in tokens})


class _Trace:
    """Tells an observer what each verification did to the canvas."""

    def __init__(self, tokenizer: Tokenizer, on_step: Observer) -> None:
        self._tokenizer, self._on_step = tokenizer, on_step
        self._step = self._shown = 0

    def __call__(self, canvas: Canvas, drafts: Sequence[Draft], accepted: int) -> None:
        """`canvas` holds what was accepted; the drafts behind those were rejected."""
        views = [
            self._view(token.token_id, "held" if place < self._shown else "committed", token)
            for place, token in enumerate(canvas.committed)
        ]
        views += [self._view(draft.token_id, "rejected", draft) for draft in drafts[accepted:]]
        note = f"{len(drafts)} drafts, {accepted} stand" if drafts else ""
        self._on_step(Snapshot(step=self._step, slots=tuple(views), note=note))
        self._step, self._shown = self._step + 1, len(canvas)

    def _view(self, token_id: int, state: State, given: Committed | Draft) -> SlotView:
        sure = given.confidence if isinstance(given, Draft) else given.probability
        text = self._tokenizer.decode([token_id])
        return SlotView(text=text, state=state, probability=sure)
