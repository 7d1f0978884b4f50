"""What stale keys and values cost: the cached pass beside the exact one, on the same canvases.

For tests and for the table of trade-offs. Knows contexts and logits; does not know why a context
is cached.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from engine.clock import Clock
from engine.context import Context
from engine.hole import Hole
from engine.native_runner import NativeRunner
from engine.request import InfillRequest
from engine.slot_canvas import SlotCanvas


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheError:
    """Over `slots` open slots of all steps: mean divergence of the cached distribution from the
    exact one (nats), share of slots whose best token is the same; and rows computed by each."""

    slots: int
    divergence: float
    agreement: float
    cached_rows: int
    exact_rows: int


class _Both:
    """A `slot_loop.Model` that goes by the cached context and looks at the exact one."""

    def __init__(self, cached: Context, exact: Context) -> None:
        self.cached, self.exact = cached, exact
        self.divergences: list[Tensor] = []
        self.same: list[Tensor] = []

    def hidden(self, canvas: SlotCanvas) -> Tensor:
        rows = self.cached.hidden(canvas)
        at = canvas.open[: len(rows)]
        ours = self.logits(rows[at]).log_softmax(-1)
        truth = self.logits(self.exact.hidden(canvas)[at]).log_softmax(-1)
        self.divergences.append((truth.exp() * (truth - ours)).sum(-1))
        self.same.append(truth.argmax(-1) == ours.argmax(-1))
        return rows

    def logits(self, hidden: Tensor) -> Tensor:
        return self.cached.logits(hidden)

    def reach(self, canvas: SlotCanvas) -> int:
        return self.cached.reach(canvas)


@torch.inference_mode()
def measure(runner: NativeRunner, requests: Iterable[InfillRequest]) -> CacheError:
    """Fill the holes one after the other, as keystrokes come, with the runner's own caching.

    The runner keeps what it computed, so that reuse from one request to the next is measured too.
    """
    divergences, same, cached_rows, exact_rows = [], [], 0, 0
    for request in requests:
        clock = Clock(None, lambda: False)
        filling = runner.begin(Hole.of(request), replace(request, exact=False), clock, None)
        cached = filling.sequence
        sides = (cached.before, cached.after)
        exact = Context(runner.base, runner.family, runner.base.new_stream(), sides, None)
        exact.encode(clock.cancelled)
        both = _Both(cached, exact)
        filling.loop.model = both
        filling.run(clock.stop)
        divergences += both.divergences
        same += both.same
        cached_rows, exact_rows = cached_rows + cached.passes.rows, exact_rows + exact.passes.rows
    every, agree = torch.cat(divergences), torch.cat(same)
    return CacheError(
        slots=len(every),
        divergence=float(every.mean()),
        agreement=float(agree.float().mean()),
        cached_rows=cached_rows,
        exact_rows=exact_rows,
    )
