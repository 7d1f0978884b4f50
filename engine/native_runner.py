"""The native families: a model that denoises masks itself, bidirectional or block by block.

Plans the context, sets up a canvas of the right length, and fills the hole with `SlotLoop`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch

from engine import lengths
from engine.anchor import Anchors
from engine.cache import StreamPool
from engine.canvas import Committed
from engine.clock import Clock, HasText
from engine.context import Context
from engine.denoise import Spent
from engine.habits import Habits
from engine.hole import Hole
from engine.lengths import Bias, Length
from engine.model.family import Family
from engine.model.transformer import Transformer
from engine.request import InfillRequest, Mode
from engine.slot_canvas import SlotCanvas
from engine.slot_loop import Denoising, SlotLoop
from engine.slot_rules import SlotRules, SlotVocabulary
from engine.tokenizer import Tokenizer
from engine.trace import Observer, SlotView, Snapshot

#: A bias that lets nothing but the leftmost open slot commit.
_LEFTMOST = 1e3


@dataclass(frozen=True, slots=True, kw_only=True)
class _Prompt:
    """A family's order of the sides, as `Anchors` asks for it."""

    family: Family

    @property
    def trained(self) -> bool:
        """Whether the suffix stands before the hole."""
        return self.family.order != "around" and bool(self.family.marker_ids)

    @property
    def file_ids(self) -> tuple[int, ...]:
        """None: snippets of other files stand as comments before the prefix."""
        return ()

    def order(self, prefix_ids: list[int], suffix_ids: list[int]) -> list[int]:
        """What stands before the hole."""
        return self.family.sides(prefix_ids, suffix_ids)[0]


class NativeRunner:
    """A masked-diffusion model and what it has computed."""

    def __init__(
        self, base: Transformer, tokenizer: Tokenizer, family: Family, habits: Habits | None = None
    ) -> None:
        self.base, self.tokenizer, self.family = base, tokenizer, family
        self.habits = habits or Habits()
        self.vocabulary = SlotVocabulary(tokenizer, family, base.config.vocab)
        self.anchors = Anchors(tokenizer, _Prompt(family=family))
        self.streams = StreamPool(base.new_stream)

    def begin(
        self, hole: Hole, request: InfillRequest, clock: Clock, on_step: Observer | None
    ) -> NativeFilling:
        """Plan a hole; compute what no slot can change."""
        plan = self.anchors.plan(hole)
        context = Context(
            self.base,
            self.family,
            self.streams.take(plan.ids),
            (plan.ids, self.family.sides([], plan.after_ids)[1]),
            None if request.exact else self.habits.caching,
        )
        with clock.stage("encode"):
            context.encode(clock.cancelled)
        length = self._length(hole, request, len(plan.ids))
        rules = SlotRules(self.vocabulary, hole, plan.spell, length)
        on_slots = _Trace(rules, on_step) if on_step else None
        loop = SlotLoop(context, rules, self._how(request), on_slots)
        return NativeFilling(context, loop, request, self.habits.bias)

    def limit_memory(self, megabytes: int) -> None:
        """Bound what the cached contexts take between requests."""
        self.streams.limit_bytes = megabytes * 1_000_000

    def reset(self) -> None:
        """Forget every cached context."""
        self.anchors.clear()
        self.streams.clear()

    def _length(self, hole: Hole, request: InfillRequest, before: int) -> Length:
        family = self.family
        in_blocks = family.attention == "block_causal"
        name = request.length or self.habits.length
        if name is None:
            name = "grow" if in_blocks else "probe" if family.expand_id is None else "edit"
        if hole.word and not in_blocks and name in ("fixed", "grow"):
            name = "probe"  # the canvas ends with the word: there is no place for an end token
        length = lengths.strategy(name, request.slots, request.max_tokens)
        if in_blocks and length.grow:  # whole blocks, from wherever the prompt ends
            block = family.block
            slots = min(block - before % block, request.max_tokens)
            length = replace(length, slots=slots, grow=block)
        return length

    def _how(self, request: InfillRequest) -> Denoising:
        in_order = request.mode == "ar"
        return Denoising(
            policy="one_per_step" if in_order else request.policy or self.habits.policy,
            strength=request.strength,
            left_bias=_LEFTMOST if in_order else request.left_bias,
            remask=request.remask,
            temperature=request.temperature,
            seed=request.seed or 0,
        )


class NativeFilling:
    """One hole of a native family: `sequence` is its context, `loop` fills it."""

    def __init__(
        self, context: Context, loop: SlotLoop, request: InfillRequest, bias: Bias
    ) -> None:
        self.sequence, self.loop, self._rules = context, loop, loop.rules
        self._bias, self._most = bias, request.max_tokens
        self.mode: Mode = "ar" if request.mode == "ar" else "free"
        self.spent = Spent()
        self.near_ties = 0
        self._canvas: SlotCanvas | None = None

    @property
    def context(self) -> tuple[int, int]:
        """Tokens around the canvas, and how many of them were computed before."""
        sequence = self.sequence
        return len(sequence.before) + len(sequence.after), sequence.cached

    @property
    def text(self) -> str:
        """The new text before the first open slot."""
        return self._rules.text(self._canvas) if self._canvas is not None else ""

    def warm(self) -> None:
        """Compute prefix and suffix around a blank canvas."""
        self.sequence.hidden(self._blank(self._rules.length.slots))

    def run(self, stop: Callable[[HasText], str | None]) -> str:
        """Find the length, then denoise until the hole has ended; returns why."""
        started = time.perf_counter()
        if self._canvas is None:
            self._canvas = self._measured(stop)
        reason = self.loop.run(self._canvas, lambda: stop(self))
        self.spent.steps, self.spent.forwards = self.loop.steps, self.sequence.passes.forwards
        self.spent.denoise_ms += (time.perf_counter() - started) * 1e3
        return reason

    def remask(self, start: int, end: int) -> None:
        """Open the slots that spell characters start to end again, and ban the first one's token.

        Where one of them spells the text before the cursor too, all behind it are opened as well:
        the edge is spelled from the left.
        """
        canvas, rules = self._canvas, self._rules
        assert canvas is not None
        first, last = (len(rules.spell) + len(self.text[:n].encode()) for n in (start, end))
        edges = rules.edges(canvas)
        spans = [
            n for n, (a, b) in enumerate(self._spans()) if b > first and a < max(last, first + 1)
        ]
        spans = spans or [len(canvas) - 1]
        chosen = torch.zeros_like(canvas.open)
        chosen[spans] = True
        if spans[0] < edges.left_at:
            chosen[spans[0] :] = True
        canvas.ban(spans[0], int(canvas.ids[spans[0]]))
        canvas.blank(chosen)

    def returned(self, text: str) -> list[Committed]:
        """The tokens that spell a part of `text`."""
        canvas = self._canvas
        assert canvas is not None
        first = len(self._rules.spell)
        last = first + len(text.encode("utf-8"))
        return [
            Committed(
                token_id=int(canvas.ids[n]),
                source="denoiser",
                forward=int(canvas.turn[n]),
                probability=float(canvas.probability[n]),
            )
            for n, (a, b) in enumerate(self._spans())
            if b > first and a < last
        ]

    def forwards(self, tokens: Sequence[Committed]) -> int:
        """All passes of the request, those that measured the length among them."""
        return self.sequence.passes.forwards

    def _spans(self) -> list[tuple[int, int]]:
        """(first byte, end byte) that each slot before the first open one spells."""
        assert self._canvas is not None
        table, found, at = self._rules.vocabulary.tokenizer.token_bytes, [], 0
        for token_id in self._rules.run(self._canvas):
            found.append((at, at + len(table[token_id])))
            at = found[-1][1]
        return found

    def _blank(self, slots: int) -> SlotCanvas:
        mask_id = self._rules.vocabulary.family.mask_id
        assert mask_id is not None
        return SlotCanvas(slots, mask_id, self._most)

    def _measured(self, stop: Callable[[HasText], str | None]) -> SlotCanvas:
        """A blank canvas of the strategy's length, or of that of which the model is surest."""

        def confidence(slots: int) -> float:
            # a request that is over measures no more
            return 0.0 if stop(self) else self.loop.first_confidence(self._blank(slots))

        length = self._rules.length
        slots = (
            lengths.probe(length.probe, confidence, self._bias) if length.probe else length.slots
        )
        return self._blank(slots)


class _Trace:
    """Tells an observer what each step did to the canvas."""

    def __init__(self, rules: SlotRules, on_step: Observer) -> None:
        self._rules, self._on_step = rules, on_step

    def __call__(self, canvas: SlotCanvas, turn: int, note: str) -> None:
        """`canvas` is as it came out of the step."""
        views = tuple(self._view(canvas, slot, turn) for slot in range(len(canvas)))
        self._on_step(Snapshot(step=turn, slots=views, note=note))

    def _view(self, canvas: SlotCanvas, slot: int, turn: int) -> SlotView:
        now = int(canvas.turn[slot]) == turn
        if canvas.open[slot]:
            again = now and int(canvas.again[slot]) > 0
            return SlotView(text="", state="remasked" if again else "open")
        text = self._rules.vocabulary.tokenizer.decode([int(canvas.ids[slot])])
        sure = float(canvas.probability[slot])
        return SlotView(text=text, state="committed" if now else "held", probability=sure)
