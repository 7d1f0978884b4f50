"""`choose(logits, canvas)`: the base's next token, for every mode.

Holds what is allowed: healing, forbidden tokens, the end of the hole, bans of a repair. `ar` and
`verified` call the same function, so they choose the same tokens.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

import torch
from torch import Tensor

from engine.canvas import Canvas
from engine.hole import Hole
from engine.prompt import PromptStyle
from engine.tokenizer import Tokenizer

#: Top-2 logit margins below this are counted: there a different kernel may choose differently.
NEAR_TIE = 1e-3
_BLOCKED = float("-inf")


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """A token, the probability the base gives it among the allowed, and the margin to the next."""

    token_id: int
    probability: float
    near_tie: bool


class Vocabulary:
    """What is constant for a model: which tokens may be written, and spelling candidates."""

    def __init__(self, tokenizer: Tokenizer, style: PromptStyle, rows: int) -> None:
        """`rows`: entries of the base's vocabulary (may exceed the tokenizer's)."""
        self.tokenizer, self.style = tokenizer, style
        spelled = tokenizer.token_bytes
        spells = torch.tensor([bool(b) for b in spelled] + [False] * (rows - len(spelled)))
        breaks = torch.tensor(
            [b"\n" in b and not b.strip() for b in spelled] + [False] * (rows - len(spelled))
        )
        self.writable = torch.zeros(rows).masked_fill_(~spells, _BLOCKED)
        self.speaking = self.writable.masked_fill(breaks, _BLOCKED)
        self.ending = self.writable.clone()
        self.ending[list(style.end_ids)] = 0.0
        self._spelling: OrderedDict[bytes, Tensor] = OrderedDict()

    def spelling(self, wanted: bytes) -> Tensor:
        """Ids of tokens that may come next when `wanted` must be spelled (cached)."""
        found = self._spelling.get(wanted)
        if found is None:
            found = torch.tensor(self.tokenizer.spelling(wanted))
            self._spelling[wanted] = found
            if len(self._spelling) > 256:
                self._spelling.popitem(last=False)
        return found


class Chooser:
    """The rules of one request over one vocabulary. Counts near-ties."""

    def __init__(self, vocabulary: Vocabulary, hole: Hole, temperature: float, seed: int) -> None:
        self.vocabulary, self.hole, self.temperature = vocabulary, hole, temperature
        self.seed = seed
        self.near_ties = 0

    def is_end(self, token_id: int) -> bool:
        """Whether the token ends the middle."""
        return token_id in self.vocabulary.style.end_ids

    def allowed(self, logits: Tensor, canvas: Canvas) -> Tensor:
        """logits [V] with what may not come next at minus infinity."""
        vocabulary = self.vocabulary
        speak = self.hole.must_speak(canvas.text)
        if wanted := canvas.unspelled:
            ids = vocabulary.spelling(wanted)
            kept = torch.full_like(logits, _BLOCKED)
            kept[ids] = logits[ids]
            out = kept + (vocabulary.speaking if speak else vocabulary.writable)
        else:
            out = logits + (vocabulary.speaking if speak else vocabulary.ending)
        for token_id in canvas.banned():
            out[token_id] = _BLOCKED
        return out

    def choose(self, logits: Tensor, canvas: Canvas) -> Chosen:
        """logits [V] of the base after the committed tokens -> its next token.

        Sampling draws from a generator seeded by (seed, position), so that every mode draws alike.
        """
        allowed = self.allowed(logits, canvas)
        if self.temperature > 0:
            probability = (allowed / self.temperature).softmax(dim=-1)
            generator = torch.Generator().manual_seed(self.seed * 65_537 + len(canvas))
            token_id = int(torch.multinomial(probability, 1, generator=generator))
            return Chosen(
                token_id=token_id, probability=float(probability[token_id]), near_tie=False
            )
        top, ids = allowed.topk(2)
        probability = torch.exp(top[0] - allowed.logsumexp(dim=-1))
        margin, first, share = torch.stack((top[0] - top[1], ids[0].float(), probability)).tolist()
        near_tie = margin < NEAR_TIE
        self.near_ties += near_tie
        return Chosen(token_id=int(first), probability=share, near_tie=near_tie)

    def probability(self, logits: Tensor, canvas: Canvas, token_id: int) -> float:
        """The probability the base gives `token_id` next, among what is allowed."""
        allowed = self.allowed(logits, canvas)
        return float(torch.exp(allowed[token_id] - allowed.logsumexp(dim=-1)))
