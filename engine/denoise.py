"""The denoising loop: one canvas from its context to its end.

`verified`: slots are drafted, the base scores them in one causal forward, the longest run that
agrees with its own choice is committed plus its next token, the rest is masked again. `free`: the
canvas is denoised to the end, the base's likelihood finds the tokens to mask again. `ar`: no slots.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from torch import Tensor

from engine.cache import Stream
from engine.canvas import Canvas, Committed, Draft, Source
from engine.choice import Chooser, Chosen
from engine.drafting import Drafter, Proposal
from engine.lookup import Lookup, Remembered
from engine.model.transformer import Transformer
from engine.request import InfillRequest

Stop = Callable[[Canvas], str | None]
#: `free`: drafts that the base finds less likely than this are masked again.
REMASK_BELOW = 0.1


@dataclass(slots=True, kw_only=True)
class Spent:
    """Counters of one request: base forwards, denoising steps, canvases that were filled in a CUDA
    graph, milliseconds."""

    forwards: int = 0
    steps: int = 0
    graphs: int = 0
    denoise_ms: float = 0.0
    verify_ms: float = 0.0


class Loop:
    """Runs one hole. The stream holds the context; committed tokens join it as they are encoded."""

    def __init__(
        self,
        base: Transformer,
        stream: Stream,
        chooser: Chooser,
        drafter: Drafter,
        request: InfillRequest,
    ) -> None:
        self.base, self.stream, self.chooser, self.drafter = base, stream, chooser, drafter
        self.mode, self.max_tokens = request.mode, request.max_tokens
        self.steps, self.threshold = request.steps, request.threshold
        self.guess = request.guess
        self.context = len(stream)
        self.spent = Spent()
        self.on_verified: Callable[[Canvas, Sequence[Draft], int], None] | None = None
        self._reindex()

    def run(self, canvas: Canvas, stop: Stop) -> str:
        """Commit until the hole ends; returns why. `stop` is asked before every forward.

        The canvas may hold committed tokens already (a repair): it goes on behind them.
        """
        started, denoised = time.perf_counter(), self.spent.denoise_ms
        self._encode_committed(canvas)
        remembered = self._remembered(canvas)
        chosen = self._choose(self.stream.last_hidden(), canvas)
        while True:
            reason = self._commit(canvas, chosen, "base") or stop(canvas)
            if reason is not None:
                break
            proposal = self._propose(canvas, chosen.token_id, remembered)
            reason, chosen = self._verify(canvas, proposal)
            if reason is not None:
                break
        total = (time.perf_counter() - started) * 1e3
        self.spent.verify_ms += total - (self.spent.denoise_ms - denoised)
        if reason in ("cancelled", "deadline"):
            self.drafter.unfinished.keep(self.chooser.hole.prefix, canvas.text)
        return reason

    def _remembered(self, canvas: Canvas) -> Remembered:
        """What may come here by the request's guess, or by the last request that was cut off."""
        guess = self.guess or self.drafter.unfinished.behind(self.chooser.hole.prefix)
        spell = canvas.spell.decode("utf-8", "ignore")
        return Remembered(self.chooser.vocabulary.tokenizer.encode(spell + guess) if guess else ())

    def _propose(self, canvas: Canvas, token_id: int, remembered: Remembered) -> Proposal:
        if self.mode == "ar" or canvas.unspelled:
            return Proposal(drafts=())
        started = time.perf_counter()
        room = self.max_tokens - canvas.fresh
        self._index(canvas)
        remembered.follow(canvas.ids)
        proposal = self.drafter.recall(remembered, room)
        if not proposal.drafts and self.mode == "verified":
            proposal = self.drafter.propose(self.lookup, token_id, room)
        elif not proposal.drafts:
            proposal = self.drafter.denoise([token_id], room, self.steps, self.threshold)
        elapsed = (time.perf_counter() - started) * 1e3
        if proposal.steps:
            self.drafter.costs.saw_step(elapsed / proposal.steps)
        self.spent.denoise_ms += elapsed
        self.spent.steps += proposal.steps
        self.spent.graphs += proposal.graph
        return proposal

    def _verify(self, canvas: Canvas, proposal: Proposal) -> tuple[str | None, Chosen]:
        """One base forward over the last token and the drafts; commits the run that stands."""
        drafts = proposal.drafts
        started = time.perf_counter()
        row_ids = [canvas.ids[-1], *(d.token_id for d in drafts)]
        hidden = self.base.encode(row_ids, self.stream)
        logits = self.base.logits(hidden)
        self.drafter.costs.saw_forward(len(row_ids), (time.perf_counter() - started) * 1e3)
        self.spent.forwards += 1
        accepted, reason = 0, None
        chosen = self.chooser.choose(logits[0], canvas)
        for row, draft in enumerate(drafts, start=1):
            if not self._stands(draft, chosen, canvas, logits[row - 1]):
                break
            kept = chosen if chosen.token_id == draft.token_id else _as_chosen(draft)
            accepted += 1
            reason = self._commit(canvas, kept, draft.source)
            if reason is not None:
                break
            chosen = self.chooser.choose(logits[row], canvas)
        self._learn(proposal, accepted)
        if self.on_verified:
            self.on_verified(canvas, drafts, accepted)
        self.stream.truncate(len(self.stream) - (len(drafts) - accepted))
        return reason, chosen

    def _stands(self, draft: Draft, chosen: Chosen, canvas: Canvas, logits: Tensor) -> bool:
        if draft.token_id == chosen.token_id:
            return True
        if self.mode != "free":
            return False
        return self.chooser.probability(logits, canvas, draft.token_id) >= REMASK_BELOW

    def _commit(self, canvas: Canvas, chosen: Chosen, source: Source) -> str | None:
        """Commit one token; returns why the hole has ended, or None."""
        canvas.commit(
            Committed(
                token_id=chosen.token_id,
                source=source,
                forward=self.spent.forwards,
                probability=chosen.probability,
            )
        )
        if self.chooser.is_end(chosen.token_id):
            return "stop"
        if self.chooser.hole.end(canvas.text) is not None:
            return "stop"
        return "length" if canvas.fresh >= self.max_tokens else None

    def _choose(self, hidden: Tensor, canvas: Canvas) -> Chosen:
        return self.chooser.choose(self.base.logits(hidden)[0], canvas)

    def _encode_committed(self, canvas: Canvas) -> None:
        """Bring the stream to context + committed tokens: cut what a repair took back."""
        want = self.context + len(canvas)
        if len(self.stream) > want:
            self.stream.truncate(want)
        if self._indexed > len(canvas):
            self._reindex()
        missing = canvas.ids[len(self.stream) - self.context :]
        for token_id in missing:  # one by one, as they were first encoded
            self.base.encode([token_id], self.stream)
            self.spent.forwards += 1

    def _reindex(self) -> None:
        """Start the look-up again from the context: an index can only grow."""
        markers = frozenset(self.chooser.vocabulary.tokenizer.special_ids.values())
        self.lookup = Lookup(self.stream.ids[: self.context], markers)
        self._indexed = 0

    def _index(self, canvas: Canvas) -> None:
        for token_id in canvas.ids[self._indexed :]:
            self.lookup.append(token_id)
        self._indexed = len(canvas)

    def _learn(self, proposal: Proposal, accepted: int) -> None:
        if proposal.recalled:
            self.drafter.acceptance.saw_memory(proposal.recalled, accepted > 0)
        elif proposal.match and proposal.drafts:
            self.drafter.acceptance.saw_lookup(proposal.match, accepted > 0)
        elif proposal.steps and self.mode == "verified":
            self.drafter.acceptance.saw_denoiser(accepted)


def _as_chosen(draft: Draft) -> Chosen:
    return Chosen(token_id=draft.token_id, probability=draft.confidence, near_tie=False)
