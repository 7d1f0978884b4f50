"""The denoising loop of masked-diffusion models: a canvas from blank to text.

forward -> one token per open slot -> policy -> commit -> expand, delete, end -> mask again; until
closed, ended, or told to stop. Deterministic for a seed. Knows neither text nor keys: a `Model`
scores slots, `SlotRules` says what may stand in them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from engine import policy, sampling
from engine.policy import Slots
from engine.request import RemaskName
from engine.sampling import Sampled
from engine.slot_canvas import SlotCanvas
from engine.slot_rules import Edges, SlotRules

#: How often a slot may be masked again: what makes re-masking come to an end.
MOST_AGAIN = 2
#: Masking again: rule and strength by name.
REMASKS: dict[RemaskName, tuple[policy.Remask, float]] = {
    "remdm": (policy.remask_remdm, 0.5),
    "score": (policy.remask_by_score, 0.1),
}

Stop = Callable[[], str | None]
#: The canvas behind a commit, its turn, and what else happened, in words.
OnStep = Callable[[SlotCanvas, int, str], None]


class Model(Protocol):
    """What the loop asks of a model and its context."""

    def hidden(self, canvas: SlotCanvas) -> Tensor:
        """[reach, hidden] float32: the rows that score the slots in reach. One forward."""

    def logits(self, hidden: Tensor) -> Tensor:
        """hidden [k, hidden] -> logits [k, vocab] float32."""

    def reach(self, canvas: SlotCanvas) -> int:
        """How many leading slots may be filled now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Denoising:
    """How a canvas is denoised: a policy of `policy.POLICIES` and its strength (None: its own), the
    bias to the left, a rule of `REMASKS` or none, temperature and seed."""

    policy: str = "one_per_step"
    strength: float | None = None
    left_bias: float = 0.0
    remask: RemaskName = "none"
    temperature: float = 0.0
    seed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """What one forward says of a canvas: a token for each of the slots `at` [k] int64 that may
    commit, and the model's present score of the tokens in `held` [m] int64."""

    edges: Edges
    at: Tensor
    sampled: Sampled
    held: Tensor
    score: Tensor


class SlotLoop:
    """Runs one hole. `steps` counts rounds, `turn` commits."""

    def __init__(
        self,
        model: Model,
        rules: SlotRules,
        how: Denoising,
        on_step: OnStep | None = None,
    ) -> None:
        """`on_step` is told of every commit."""
        self.model, self.rules, self.how = model, rules, how
        self.steps = self.turn = 0
        self._on_step = on_step
        rule = policy.POLICIES[how.policy]
        self._select = rule.select
        self._strength = rule.strength if how.strength is None else how.strength

    @torch.inference_mode()
    def run(self, canvas: SlotCanvas, stop: Stop) -> str:
        """Commit until the canvas is done; returns why. `stop` is asked before every round.

        A canvas may hold tokens already (a repair); it is changed in place.
        """
        speculate = self.how.policy == "speculative"
        pending: Prediction | None = None
        while True:
            reason = self._done(canvas) or stop()
            if reason is not None:
                return reason
            self.steps += 1
            if speculate:
                pending = self._speculate(canvas, pending)
            else:
                self._step(canvas, self.predict(canvas, self.turn))

    def predict(self, canvas: SlotCanvas, turn: int) -> Prediction:
        """One forward over a canvas; nothing is changed. `turn` picks the noise."""
        edges = self.rules.edges(canvas)
        hidden = self.model.hidden(canvas)
        near = torch.arange(len(canvas)) < len(hidden)
        at = (self.rules.eligible(canvas, edges) & near).nonzero()[:, 0]
        held = self._remaskable(canvas, edges, near) if self.how.remask == "score" else at[:0]
        # the head is most of a small model: only the rows that are asked for
        logits = self.model.logits(hidden[torch.cat((at, held))])
        noise = None
        if self.how.temperature > 0:
            noise = sampling.gumbel(at.tolist(), logits.shape[-1], self.how.seed, turn)
        own = logits[len(at) :].log_softmax(-1).gather(-1, canvas.ids[held][:, None])[:, 0].exp()
        return Prediction(
            edges=edges,
            at=at,
            sampled=sampling.sample(
                logits[: len(at)],
                self.rules.allowed(canvas, at, edges),
                self.how.temperature,
                noise,
            ),
            held=held,
            score=own,
        )

    def first_confidence(self, canvas: SlotCanvas) -> float:
        """Mean probability of the best tokens of the open slots of a blank canvas: one forward."""
        self.steps += 1
        hidden = self.model.hidden(canvas)
        logits = self.model.logits(hidden[canvas.open[: len(hidden)]])
        unwritable = ~self.rules.vocabulary.text
        return float(logits.masked_fill(unwritable, float("-inf")).softmax(-1).amax(-1).mean())

    def _step(self, canvas: SlotCanvas, predicted: Prediction) -> None:
        """Select, commit, settle, mask again."""
        commit = self._select(self._slots(predicted), self._strength)
        self._commit(canvas, predicted, commit)

    def _commit(self, canvas: SlotCanvas, predicted: Prediction, commit: Tensor) -> None:
        """Write the tokens of a mask [k] over `predicted.at` and carry out what they say."""
        at, sampled = predicted.at[commit], predicted.sampled
        canvas.commit(at, sampled.token[commit], sampled.probability[commit], self.turn)
        if self.how.remask != "none" and not canvas.closed:
            canvas.mask(self._remask(canvas, predicted), self.turn)
        note = self.rules.settle(canvas, predicted.edges)
        if self._on_step:
            self._on_step(canvas, self.turn, note)
        self.turn += 1

    def _speculate(self, canvas: SlotCanvas, pending: Prediction | None) -> Prediction | None:
        """One round of self-speculation: what one per step would write, several at a time.

        The first forward's tokens are drafts, in the order of its confidence; the canvases with one
        draft more each are scored, and the drafts that the model chooses there itself stand.
        Returns the prediction for the canvas as it then is, if it is known (SSD, arXiv 2510.04147).
        """
        predicted = pending or self.predict(canvas, self.turn)
        chain = self._chain(predicted)
        first = torch.zeros(len(predicted.at), dtype=torch.bool)
        first[chain[0]] = True
        if len(chain) == 1:
            self._commit(canvas, predicted, first)
            return None
        drafted, states = canvas.copy(), []
        for count, row in enumerate(chain, start=1):
            place = predicted.at[row : row + 1]
            token = predicted.sampled.token[row : row + 1]
            drafted.commit(place, token, torch.zeros(1), 0)
            if drafted.closed:
                break
            states.append(self.predict(drafted, self.turn + count))
        self._commit(canvas, predicted, first)
        return self._accept(canvas, predicted, chain, states)

    def _accept(
        self,
        canvas: SlotCanvas,
        predicted: Prediction,
        chain: list[int],
        states: list[Prediction],
    ) -> Prediction | None:
        """Commit the drafts behind the first that the model agrees with, state by state."""
        drafts = torch.stack((predicted.at, predicted.sampled.token), dim=-1)[chain]
        for number, state in enumerate(states, start=1):
            if self._done(canvas):
                return None
            if number == len(chain):
                return state
            best = int(policy.draft_order(self._slots(state))[0])
            choice = torch.stack((state.at[best], state.sampled.token[best]))
            if not policy.agreed(drafts[number][None], choice[None]):
                return state
            commit = torch.zeros(len(state.at), dtype=torch.bool)
            commit[best] = True
            self._commit(canvas, state, commit)
        return None

    def _chain(self, predicted: Prediction) -> list[int]:
        """Rows of a prediction that are drafted together, the certain first; one alone where what
        is written changes the canvas's length or an edge is being spelled."""
        order: list[int] = policy.draft_order(self._slots(predicted)).tolist()
        text = self.rules.vocabulary.text
        chain: list[int] = []
        for row in order[: max(1, int(self._strength))]:
            plain = bool(text[predicted.sampled.token[row]])
            if not plain or predicted.edges.left or predicted.edges.right:
                break
            chain.append(row)
        return chain or order[:1]

    def _slots(self, predicted: Prediction) -> Slots:
        sampled = predicted.sampled
        slots = Slots(
            open=torch.ones(len(predicted.at), dtype=torch.bool),
            probability=sampled.probability,
            entropy=sampled.entropy,
            margin=sampled.margin,
        )
        return policy.lean_left(slots, self.how.left_bias)

    def _remask(self, canvas: SlotCanvas, predicted: Prediction) -> Tensor:
        """[n] bool: committed slots to mask again, those of this turn not among them."""
        rule, strength = REMASKS[self.how.remask]
        near = torch.arange(len(canvas)) < self.model.reach(canvas)
        able, score = torch.zeros_like(canvas.open), canvas.probability
        if self.how.remask == "score":
            able[predicted.held] = True
            score = score.clone()
            score[predicted.held] = predicted.score
        else:
            able[self._remaskable(canvas, predicted.edges, near)] = True
            able &= canvas.turn != self.turn
        return rule(score, able, sampling.uniform(len(canvas), self.how.seed, self.turn), strength)

    def _remaskable(self, canvas: SlotCanvas, edges: Edges, near: Tensor) -> Tensor:
        """[m] int64: slots whose token may be taken back."""
        kept = canvas.open | canvas.pinned | self.rules.protected(canvas, edges)
        return (~kept & near & (canvas.again < MOST_AGAIN)).nonzero()[:, 0]

    def _done(self, canvas: SlotCanvas) -> str | None:
        if self.rules.over(canvas):
            return "stop"
        if not canvas.closed:
            return None
        if self.rules.grow(canvas):
            return None
        unended = self.rules.length.grow and not self.rules.ended
        return "length" if unended else "stop"
