"""`choose(logits, canvas)`: the base's next token, for every mode.

Holds what is allowed: healing, forbidden tokens, the end of the hole, bans of a repair. `ar` and
`verified` call the same function, so they choose the same tokens.
"""

from __future__ import annotations

import operator
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
#: So many of the likeliest tokens are looked at for one that begins the text as it must.
_CANDIDATES = 512
_COLDEST = 1e-4  # below this, dividing by the temperature overflows
_SEED_MASK = 2**63 - 1


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
        # A table as bytes, since torch reads a list of Python values one by one.
        blank = bytes(map(operator.not_, spelled)).ljust(rows, b"\1")
        breaks = [i for i, word in enumerate(spelled) if b"\n" in word and not word.strip()]
        self.writable = torch.zeros(rows)
        self.writable[torch.frombuffer(bytearray(blank), dtype=torch.bool)] = _BLOCKED
        self.speaking = self.writable.index_fill(
            0, torch.tensor(breaks, dtype=torch.long), _BLOCKED
        )
        self.ending = self.writable.clone()
        self.ending[list(style.end_ids)] = 0.0
        self._spelling: OrderedDict[tuple[bytes, bool], Tensor] = OrderedDict()

    def spelling(self, wanted: bytes, speak: bool) -> Tensor:
        """Ids of tokens that may come next when `wanted` must be spelled (cached).

        `speak`: behind `wanted` they must not break the line with nothing said on it.
        """
        found = self._spelling.get((wanted, speak))
        if found is None:
            ids = self.tokenizer.spelling(wanted)
            if speak:
                table, at = self.tokenizer.token_bytes, len(wanted)
                ids = [i for i in ids if not _breaks(table[i][at:])]
            found = torch.tensor(ids, dtype=torch.long)
            self._spelling[wanted, speak] = found
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
            ids = vocabulary.spelling(wanted, speak)
            out = torch.full_like(logits, _BLOCKED)
            out[ids] = logits[ids]
        else:
            out = logits + (vocabulary.speaking if speak else vocabulary.ending)
        out = self._beginning(out, canvas)
        if not canvas.banned():
            return out
        rest = out.index_fill(0, torch.tensor(sorted(canvas.banned())), _BLOCKED)
        # where one way of spelling is left, a ban on it cannot be kept
        return rest if bool((rest > _BLOCKED).any()) else out

    def _beginning(self, logits: Tensor, canvas: Canvas) -> Tensor:
        """Only tokens that begin the new text as the hole says, if there are any."""
        start = self.hole.start
        if start is None or start.settled(canvas.text):
            return logits
        top, ids = logits.topk(min(_CANDIDATES, len(logits)))
        fits = [n for n in ids[top > _BLOCKED].tolist() if start.allows(canvas.text_with(n))]
        if not fits:
            return logits
        out = torch.full_like(logits, _BLOCKED)
        out[fits] = logits[fits]
        return out

    def choose(self, logits: Tensor, canvas: Canvas) -> Chosen:
        """logits [V] of the base after the committed tokens -> its next token.

        Sampling draws from a generator seeded by (seed, position), so that every mode draws alike.
        """
        allowed = self.allowed(logits, canvas)
        if self.temperature > 0:
            scaled = (allowed - allowed.max()) / max(self.temperature, _COLDEST)
            probability = scaled.softmax(dim=-1)
            seed = (self.seed * 65_537 + len(canvas)) & _SEED_MASK
            generator = torch.Generator().manual_seed(seed)
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


def _breaks(spelled: bytes) -> bool:
    """Whether a token ends a line and says nothing."""
    return b"\n" in spelled and not spelled.strip()
