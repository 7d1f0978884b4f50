"""What `Engine.infill` asks of a family of models: one interface, chosen once when a model loads.

A `Runner` holds a model and its caches, a `Filling` one hole on its way. `canvas_runner` fills
holes with a causal base and a denoiser, `native_runner` with a model that denoises masks itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from engine.canvas import Committed
from engine.clock import Clock, HasText
from engine.denoise import Spent
from engine.hole import Hole
from engine.request import InfillRequest, Mode
from engine.tokenizer import Tokenizer
from engine.trace import Observer


class Filling(Protocol):
    """One hole: its canvas in its encoded context."""

    @property
    def mode(self) -> Mode:
        """How it is filled."""

    @property
    def text(self) -> str:
        """The new text so far, from the left."""

    @property
    def spent(self) -> Spent:
        """What it took so far."""

    @property
    def near_ties(self) -> int:
        """Choices whose top-2 logit margin lay below the model's epsilon."""

    @property
    def context(self) -> tuple[int, int]:
        """Tokens of the context, and how many of them were cached."""

    def warm(self) -> None:
        """Compute what makes the next request here quick, and fill nothing."""

    def run(self, stop: Callable[[HasText], str | None]) -> str:
        """Denoise until the hole has ended; returns why. `stop` is asked before every forward."""

    def remask(self, start: int, end: int) -> None:
        """Mask again what spells characters start to end of `text`, and ban the token there; what
        `run` then writes is another text."""

    def returned(self, text: str) -> Sequence[Committed]:
        """The tokens that spell a part of `text`, a beginning of the new text."""

    def forwards(self, tokens: Sequence[Committed]) -> int:
        """The forwards that it took to write these tokens."""


class Runner(Protocol):
    """One loaded model."""

    @property
    def tokenizer(self) -> Tokenizer:
        """The model's tokenizer."""

    def begin(
        self, hole: Hole, request: InfillRequest, clock: Clock, on_step: Observer | None
    ) -> Filling:
        """Plan and encode the context, as far as `clock` allows. Raises BadRequest for what this
        family cannot do."""

    def limit_memory(self, megabytes: int) -> None:
        """Bound what the cached contexts take between requests."""

    def reset(self) -> None:
        """Forget every cached context, and what was left unfinished."""
