"""Guesses for the slots of a canvas: an earlier suggestion, look-up in the file, or the denoiser.

How many slots are worth verifying is chosen by expected tokens per millisecond, from measured
acceptance and measured cost; zero is allowed. In `verified` mode the choice cannot change the text.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from engine.cache import Stream
from engine.canvas import MASKED, Draft
from engine.fused_denoiser import FusedDenoiser
from engine.kernels.reference_step import Rule
from engine.lookup import MAX_RUN, SIZES, Lookup, Remembered
from engine.model.denoiser import Context, Denoiser
from engine.model.transformer import Embedding
from engine.policy import Slots, confidence_threshold, one_per_step

_MEMORY = 0.05  # weight of the newest observation in a running mean
_MOST_ROWS = 32  # forwards of more rows are not of the loop
_PLACE_CHARACTERS = 200  # so much text before the cursor makes a place unmistakable
_MOST_RECALLED = 15
_RETRY = 12  # an unprofitable denoiser is tried again every so many drafts


class Costs:
    """Expected milliseconds of a base forward by rows, and of a denoising step.

    A forward reads every weight once and multiplies each by every row: a straight line over rows,
    fitted to what was measured here, newer forwards weighing more. It starts from a guess.
    """

    def __init__(self, one_row_ms: float = 40.0, step_ms: float = 5.0) -> None:
        self.step_ms = step_ms
        self._seen = [0.0] * 5  # weights, and weighted rows, rows^2, ms, rows * ms
        self._line = (one_row_ms, 0.0)
        for _ in range(round(1 / _MEMORY)):
            for rows in (1, 8):
                self._fit(rows, one_row_ms * (1 + 0.07 * (rows - 1)))

    def forward(self, rows: int) -> float:
        """Expected milliseconds of a base forward over `rows` rows."""
        start, slope = self._line
        return start + slope * min(rows, _MOST_ROWS)

    def saw_forward(self, rows: int, ms: float) -> None:
        """Learn from one measured forward; outliers of a busy machine are clipped."""
        self._fit(rows, min(ms, 2 * self.forward(rows)))

    def _fit(self, rows: int, ms: float) -> None:
        """Weighted least squares over what was seen; more rows are never cheaper."""
        new = (1.0, rows, rows * rows, ms, rows * ms)
        self._seen = [(1 - _MEMORY) * old + x for old, x in zip(self._seen, new, strict=True)]
        weight, x, xx, y, xy = self._seen
        spread = weight * xx - x * x
        if spread > 1e-3 * weight * weight:  # rows of one count only leave the slope as it is
            self._line = (0.0, max((weight * xy - x * y) / spread, 0.0))
        slope = self._line[1]
        self._line = (max((y - slope * x) / weight, 0.0), slope)

    def saw_step(self, ms: float) -> None:
        """Learn from one measured denoising step."""
        self.step_ms += _MEMORY * (min(ms, 3 * self.step_ms) - self.step_ms)


class Acceptance:
    """How often drafts come true: per match length of a look-up or of a remembered text, and gained
    per denoiser draft."""

    def __init__(self, calibration: tuple[float, ...]) -> None:
        self.lookup = {4: 0.8, 3: 0.65, 2: 0.45}
        self.memory = {MAX_RUN: 0.95, 3: 0.8, 2: 0.6, 1: 0.35}
        self.gained = sum(_products(calibration)) if calibration else 0.0

    def saw_lookup(self, match: int, first_accepted: bool) -> None:
        """Learn whether the first token of a look-up guess was right."""
        self.lookup[match] += _MEMORY * (first_accepted - self.lookup[match])

    def saw_memory(self, match: int, first_accepted: bool) -> None:
        """Learn whether the first token of a remembered text was right."""
        self.memory[match] += _MEMORY * (first_accepted - self.memory[match])

    def saw_denoiser(self, accepted: int) -> None:
        """Learn how many tokens a denoiser draft gained."""
        self.gained += _MEMORY * (accepted - self.gained)


class Unfinished:
    """The text of the last request that was cut off: while the user types, most are."""

    def __init__(self) -> None:
        self._before, self._text = "", ""

    def keep(self, prefix: str, text: str) -> None:
        """Remember what was committed behind `prefix`."""
        self._before, self._text = prefix[-_PLACE_CHARACTERS:], text

    def behind(self, prefix: str) -> str:
        """What is left of it at a cursor behind `prefix`; "" elsewhere, or if the typed departs."""
        near = prefix[-_PLACE_CHARACTERS - len(self._text) :]
        for typed in range(len(self._text)):
            here = self._before + self._text[:typed]
            if near.endswith(here[-_PLACE_CHARACTERS:]):
                return self._text[typed:]
        return ""

    def clear(self) -> None:
        """Forget it."""
        self.keep("", "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Experience:
    """What earlier requests have taught: it outlives a request, a `Drafter` does not."""

    acceptance: Acceptance
    costs: Costs
    unfinished: Unfinished = field(default_factory=Unfinished)


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """Drafts for the slots behind the base's next token.

    `match`: length of the look-up's match, `recalled`: of the remembered text's; 0 for none.
    `graph`: whether the steps ran in a CUDA graph.
    """

    drafts: tuple[Draft, ...]
    match: int = 0
    recalled: int = 0
    steps: int = 0
    graph: bool = False


class Drafter:
    """Fills canvases for one request over one stream."""

    def __init__(
        self,
        denoiser: Denoiser | None,
        embedding: Embedding,
        stream: Stream,
        after: Stream | None,
        experience: Experience,
    ) -> None:
        self.denoiser, self.embedding = denoiser, embedding
        self.stream, self.after = stream, after
        self.acceptance, self.costs = experience.acceptance, experience.costs
        self.unfinished = experience.unfinished
        self._skipped = 0

    def recall(self, remembered: Remembered, room: int) -> Proposal:
        """What a remembered text says next, as far as it pays."""
        match, found = remembered.guess(min(room, _MOST_RECALLED))
        sure = self.acceptance.memory.get(match, 0.0)
        drafts = self._paying([Draft(token_id=i, source="memory", confidence=sure) for i in found])
        return Proposal(drafts=drafts, recalled=match if drafts else 0)

    def propose(self, lookup: Lookup, token_id: int, room: int) -> Proposal:
        """For `verified`: as many drafts behind `token_id` as pay, at most `room`."""
        match, found = lookup.guess(min(room, 7))
        sure = self.acceptance.lookup.get(match, 0.0)
        drafts = [Draft(token_id=i, source="lookup", confidence=sure) for i in found]
        if match >= SIZES[1] or not self._worth_denoising(drafts):
            return Proposal(drafts=self._paying(drafts), match=match if drafts else 0)
        denoised = self.denoise([token_id], room, steps=1, threshold=1.0)
        slots, graph = denoised.drafts, denoised.graph
        if slots and slots[0].confidence < sure:
            return Proposal(drafts=self._paying(drafts), match=match, steps=1, graph=graph)
        return Proposal(drafts=self._paying(slots), steps=1, graph=graph)

    def denoise(self, known: list[int], room: int, steps: int, threshold: float) -> Proposal:
        """Fill a canvas in up to `steps` denoising steps; the last one closes what is open.

        `known`: the base's next token, then visible slots or MASKED. Slots above `threshold`
        commit early and are seen by the next step.
        """
        if self.denoiser is None or room < 1:
            return Proposal(drafts=())
        rows = min(self.denoiser.max_rows, room + 1)
        tokens = torch.tensor((known + [MASKED] * rows)[:rows])
        if isinstance(self.denoiser, FusedDenoiser):
            name = "one_per_step" if threshold >= 1.0 else "confidence"
            rule = Rule(name=name, strength=threshold)
            filled = self.denoiser.fill(tokens, self._context(), steps, rule)
            drafts = _drafts(filled.tokens, filled.sure)
            return Proposal(drafts=drafts, steps=filled.taken, graph=filled.fallback is None)
        confidence, taken = torch.ones(rows), 0
        for step in range(steps):
            open_ = tokens == MASKED
            if not bool(open_.any()):
                break
            best, sure = self._step(tokens, open_)
            taken += 1
            slots = Slots.of_confidence(sure, open_)
            select = one_per_step if threshold >= 1.0 else confidence_threshold
            commit = open_ if step == steps - 1 else select(slots, threshold)
            tokens = torch.where(commit, best, tokens)
            confidence = torch.where(commit, sure, confidence)
        return Proposal(drafts=_drafts(tokens, confidence), steps=taken)

    def _step(self, tokens: Tensor, open_: Tensor) -> tuple[Tensor, Tensor]:
        """One denoising step: (best token [R], its probability [R]) of the open slots."""
        assert self.denoiser is not None
        embedded = self.embedding(tokens.clamp_min(0))[None]
        hidden = self.denoiser.hidden(embedded, open_[None], self._context())
        at = open_.nonzero()[:, 0]
        probability, index = self.denoiser.logits(hidden[at]).softmax(dim=-1).max(dim=-1)
        best, sure = tokens.clone(), torch.zeros(len(tokens))
        best[at], sure[at] = self.denoiser.shortlist[index], probability
        return best, sure

    def _context(self) -> Context:
        assert self.denoiser is not None
        stream, after = self.stream, self.after
        top, length = slice(-len(self.denoiser.layers), None), len(stream)
        seen = len(after) if after is not None else 0
        return Context(
            keys=stream.keys[top, :, :length],
            values=stream.values[top, :, :length],
            lengths=torch.tensor([length]),
            features=stream.features[length - 1, :2][None],
            after_keys=after.keys[top, :, :seen] if after is not None and seen else None,
            after_values=after.values[top, :, :seen] if after is not None and seen else None,
        )

    def _worth_denoising(self, drafts: list[Draft]) -> bool:
        if self.denoiser is None:
            return False
        gain_ms = self.acceptance.gained * self.costs.forward(1)
        if gain_ms > self.costs.step_ms + 2 * (self.costs.forward(2) - self.costs.forward(1)):
            return True
        self._skipped += 1
        return self._skipped % _RETRY == 0

    def _paying(self, drafts: Sequence[Draft]) -> tuple[Draft, ...]:
        """The number of drafts with the most expected tokens per millisecond."""
        best, best_rate, expected, reach = 0, 1.0 / self.costs.forward(1), 1.0, 1.0
        for count, draft in enumerate(drafts, start=1):
            reach *= draft.confidence
            expected += reach
            rate = expected / self.costs.forward(1 + count)
            if rate > best_rate:
                best, best_rate = count, rate
        return tuple(drafts[:best])


def _drafts(tokens: Tensor, confidence: Tensor) -> tuple[Draft, ...]:
    """The slots behind a canvas's first token."""
    pairs = zip(tokens[1:].tolist(), confidence[1:].tolist(), strict=True)
    return tuple(Draft(token_id=i, source="denoiser", confidence=c) for i, c in pairs)


def _products(shares: tuple[float, ...]) -> list[float]:
    out, product = [], 1.0
    for share in shares:
        product *= share
        out.append(product)
    return out
