"""The hole as tokens: what is committed from the left, and the slots behind it.

A slot is masked or holds a draft. Knows nothing of models; pure bookkeeping.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from engine.tokenizer import Tokenizer

Source = Literal["base", "lookup", "denoiser", "memory"]
MASKED = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """A guess for one slot, and how sure its source is (0 to 1)."""

    token_id: int
    source: Source
    confidence: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Committed:
    """One committed token, where it came from, and the base forward whose rows confirmed it."""

    token_id: int
    source: Source
    forward: int
    probability: float


class Canvas:
    """Committed tokens of one hole.

    The first `len(spell)` bytes repeat text that stands left of the cursor (healing); what follows
    is new. Banned tokens are kept per position.
    """

    def __init__(self, tokenizer: Tokenizer, spell: bytes) -> None:
        self.spell = spell
        self.committed: list[Committed] = []
        self.spelled = b""
        self._tokenizer = tokenizer
        self._banned: dict[int, set[int]] = {}

    def __len__(self) -> int:
        return len(self.committed)

    @property
    def ids(self) -> list[int]:
        """Committed token ids, in order."""
        return [c.token_id for c in self.committed]

    @property
    def unspelled(self) -> bytes:
        """What is left to spell of the text before the cursor."""
        return self.spell[len(self.spelled) :]

    @property
    def fresh(self) -> int:
        """How many tokens say something new: not those wholly spent on text left of the cursor."""
        at = spent = 0
        for token in self.committed:
            at += len(self._tokenizer.token_bytes[token.token_id])
            if at > len(self.spell):
                break
            spent += 1
        return len(self) - spent

    @property
    def text(self) -> str:
        """The new text so far; a character cut at the end is left out."""
        return self.spelled[len(self.spell) :].decode("utf-8", "ignore")

    def text_with(self, token_id: int) -> str:
        """The new text if this token came next; U+FFFD for a character that it cuts."""
        spelled = self.spelled + self._tokenizer.token_bytes[token_id]
        return spelled[len(self.spell) :].decode("utf-8", "replace")

    def commit(self, token: Committed) -> None:
        """Append one token."""
        self.committed.append(token)
        self.spelled += self._tokenizer.token_bytes[token.token_id]

    def cut(self, length: int) -> None:
        """Mask again everything from position `length` on."""
        del self.committed[length:]
        for position in [p for p in self._banned if p > length]:
            del self._banned[position]
        self.spelled = self._tokenizer.spell(self.ids)

    def ban(self, position: int, token_id: int) -> None:
        """Never again commit this token at this position."""
        self._banned.setdefault(position, set()).add(token_id)

    def banned(self) -> set[int]:
        """Tokens banned at the next position."""
        return self._banned.get(len(self), set())

    def position_at(self, offset: int) -> int:
        """The position of the token that spells the character at `offset` of `text`."""
        target = len(self.spell) + len(self.text[:offset].encode("utf-8"))
        at = 0
        for position, token in enumerate(self.committed):
            at += len(self._tokenizer.token_bytes[token.token_id])
            if at > target:
                return position
        return max(0, len(self) - 1)

    def returned(self, text: str) -> list[Committed]:
        """The tokens that spell a part of `text`, a prefix of the new text."""
        first, last = len(self.spell), len(self.spell) + len(text.encode("utf-8"))
        found, at = [], 0
        for token in self.committed:
            end = at + len(self._tokenizer.token_bytes[token.token_id])
            if end > first and at < last:
                found.append(token)
            at = end
        return found
