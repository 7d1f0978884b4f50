"""The sequence around a canvas, and which of its rows are computed at a step.

A masked-diffusion model reads prefix, canvas and suffix as one sequence. What must be computed anew
when a slot changes is every row that sees it: all of them in a bidirectional model, those from the
canvas's current block on in a block-causal one. Caching (DualCache of Fast-dLLM, arXiv 2505.22618)
leaves the keys and values of prefix and suffix as they were and computes the canvas alone; they
grow stale, and are computed anew every so many steps, or when the canvas has drifted. Knows ids and
rows; knows nothing of text, policies, or what stands in a slot.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from engine.cache import Stream
from engine.habits import Caching
from engine.model.family import Family
from engine.model.transformer import Transformer
from engine.slot_canvas import SlotCanvas

_CHUNK = 32


@dataclass(slots=True)
class Passes:
    """Counters: passes of the model, and the rows they computed."""

    forwards: int = 0
    rows: int = 0


class Context:
    """The rows of one hole's sequence. The stream may hold rows of an earlier request: with a
    cache the prefix's are taken as they are, exactly they are used only where they are exact."""

    def __init__(
        self,
        base: Transformer,
        family: Family,
        stream: Stream,
        sides: tuple[list[int], list[int]],
        caching: Caching | None,
    ) -> None:
        """`sides`: the ids before and behind the canvas. `caching` None never uses stale rows."""
        self.base, self.family, self.stream = base, family, stream
        self.before, self.after = sides
        self.caching = caching if family.attention == "bidirectional" else None
        self.passes = Passes()
        self._slots = -1  # of the last pass; -1: there was none
        self._then = torch.empty(0, base.config.hidden)  # the canvas's rows at the last refresh
        self._drifted = 0.0
        self.cached = self._reusable()

    def _reusable(self) -> int:
        """How many tokens before the canvas need no computing; cuts the stream to them."""
        if self.family.attention == "bidirectional":
            due = self.caching is None or self._due(self.caching)
            return 0 if due else len(self.stream)
        # a block is exact where all its ids are those that it was last computed with
        self.stream.truncate(len(self.stream) // self.family.block * self.family.block)
        return len(self.stream)

    def encode(self, cancelled: Callable[[], bool]) -> None:
        """Compute what no slot can change, in chunks: a block-causal prefix up to its last whole
        block. A bidirectional sequence has no such part."""
        if self.family.attention != "block_causal":
            return
        block = self.family.block
        whole = len(self.before) // block * block
        while len(self.stream) < whole and not cancelled():
            start = len(self.stream)
            self._compute(
                self.before, start, min(start + max(block, _CHUNK // block * block), whole)
            )

    def hidden(self, canvas: SlotCanvas) -> Tensor:
        """[reach, hidden] float32: for each slot in reach the hidden row that scores it."""
        ids = [*self.before, *canvas.ids.tolist(), *self.after]  # sync: once per step
        start, stop = self._span(ids, canvas)
        self.stream.truncate(len(ids))
        self._compute(ids, start, stop)
        if self.family.attention == "block_causal":
            self.stream.truncate(stop)  # later blocks saw what may have changed
        at = torch.arange(self.reach(canvas)) + len(self.before) - int(self.family.shifted)
        rows = self.stream.features[at.clamp_min(0), -1]
        self._remember(rows, len(canvas), whole=start == 0)
        return rows

    def logits(self, hidden: Tensor) -> Tensor:
        """hidden [k, hidden] -> logits [k, vocab] float32."""
        return self.base.logits(hidden)

    def reach(self, canvas: SlotCanvas) -> int:
        """How many leading slots may be filled now: all, or those up to the end of the first block
        that has an open one."""
        if self.family.attention != "block_causal" or canvas.closed:
            return len(canvas)
        first = len(self.before) + int(canvas.open.long().argmax())
        end = (first // self.family.block + 1) * self.family.block
        return min(len(canvas), end - len(self.before))

    def _span(self, ids: list[int], canvas: SlotCanvas) -> tuple[int, int]:
        """The rows to compute: from the first that sees a change to the last that is needed."""
        if self.family.attention == "block_causal":
            block, stop = self.family.block, len(self.before) + self.reach(canvas)
            changed = min(self.stream.common_prefix(ids), max(0, stop - 1))
            return changed // block * block, stop
        if self.caching is None or self._due(self.caching):
            return 0, len(ids)
        first = min(len(self.stream), max(0, len(self.before) - int(self.family.shifted)))
        # what stands behind a canvas that grew or shrank has moved
        moved = self._slots != len(canvas)
        return first, len(ids) if moved else len(self.before) + len(canvas)

    def _due(self, caching: Caching) -> bool:
        return self.stream.stale >= caching.refresh or self._drifted > caching.drift

    def _compute(self, ids: list[int], start: int, stop: int) -> None:
        visible = self.family.visible(start, stop - start, len(ids))
        self.base.forward(ids[start:stop], self.stream, start=start, visible=visible)
        self.passes.forwards += 1
        self.passes.rows += stop - start

    def _remember(self, rows: Tensor, slots: int, *, whole: bool) -> None:
        if whole or len(self._then) != len(rows):
            self._then = rows.clone()
        self._drifted = 0.0 if whole else drift(self._then, rows)
        self.stream.stale = 0 if whole else self.stream.stale + 1
        self._slots = slots


def drift(before: Tensor, now: Tensor) -> float:
    """Mean cosine distance of rows [n, hidden]: 0 for the same, 1 for unrelated ones."""
    if not len(now):
        return 0.0
    return float(1 - F.cosine_similarity(before, now, dim=-1).mean())  # sync: once per step
