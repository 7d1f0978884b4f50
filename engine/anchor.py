"""Where the context of a request is cut and anchored, so that typing costs only its own tokens.

In a fill-in-the-middle prompt every suffix key depends on the whole prefix. So prefix and suffix
stay as they were at an anchor (the start of a line), and the text typed since stands behind the
middle marker as committed middle. The anchor moves when text before it or the suffix changes, or
when much has been typed since. Text and token ids only.
"""

from __future__ import annotations

from dataclasses import dataclass

from engine.healing import Healed, heal_left
from engine.hole import Hole
from engine.prompt import PromptStyle
from engine.tokenizer import Tokenizer

PREFIX_TOKENS = 768
SUFFIX_TOKENS = 160
_LEAST_TOKENS = PREFIX_TOKENS // 3
_TYPED_CHARACTERS = 320
_LINE_CHARACTERS = 240
_KEPT = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Anchor:
    """A prompt as it was: `head` the whole text before the anchor, `start` the offset in it where
    the encoded window begins; `suffix` the encoded suffix text."""

    head: str
    start: int
    suffix: str
    prompt_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What to encode: `ids` (prompt and healed typed text), `after_ids` (a suffix stream, or
    none), and `spell`, what the canvas must spell first."""

    ids: list[int]
    after_ids: list[int]
    spell: bytes


class Anchors:
    """The recent anchors of all documents, the latest last."""

    def __init__(self, tokenizer: Tokenizer, style: PromptStyle) -> None:
        self._tokenizer, self._style = tokenizer, style
        self._recent: list[Anchor] = []

    def plan(self, hole: Hole) -> Plan:
        """The tokens of a request, on a kept anchor if one serves."""
        suffix = self._cut_suffix(hole.suffix)
        anchor = self._find(hole.prefix, suffix) or self._move(hole, suffix)
        typed = hole.prefix[len(anchor.head) :]
        healed = heal_left(self._tokenizer, typed) if hole.heal else Healed(kept=typed, spell=b"")
        after = [] if self._style.trained else self._tokenizer.encode(suffix)
        ids = [*anchor.prompt_ids, *self._tokenizer.encode(healed.kept)]
        if not ids:  # no start token, nothing before the cursor: a base must see something
            ids = self._tokenizer.encode("\n")
        return Plan(ids=ids, after_ids=after, spell=healed.spell)

    def clear(self) -> None:
        """Forget all anchors."""
        self._recent.clear()

    def _find(self, prefix: str, suffix: str) -> Anchor | None:
        for anchor in reversed(self._recent):
            typed = len(prefix) - len(anchor.head)
            fits = anchor.suffix == suffix or not self._style.trained
            if fits and 0 <= typed <= _TYPED_CHARACTERS and prefix.startswith(anchor.head):
                self._recent.remove(anchor)
                self._recent.append(anchor)
                return anchor
        return None

    def _move(self, hole: Hole, suffix: str) -> Anchor:
        """A new anchor at the start of the cursor's line (or near the cursor on a long one)."""
        prefix = hole.prefix
        at = prefix.rfind("\n") + 1
        if len(prefix) - at > _LINE_CHARACTERS:
            near = len(prefix) - _LINE_CHARACTERS
            at = near + heal_offset(self._tokenizer, prefix[near : len(prefix) - 40])
        head = prefix[:at]
        start, ids = self._window(head)
        prompt = self._style.order(ids, self._tokenizer.encode(suffix))
        anchor = Anchor(head=head, start=start, suffix=suffix, prompt_ids=tuple(prompt))
        self._recent = [*self._recent[-(_KEPT - 1) :], anchor]
        return anchor

    def _window(self, head: str) -> tuple[int, list[int]]:
        """(start, ids) of the last part of `head` that fits; the start of an earlier window is
        kept while it fits, so that its encoding is too."""
        for anchor in reversed(self._recent):
            start = anchor.start
            same = anchor.head[:4096] == head[: len(anchor.head)][:4096]
            if same and start <= len(head) and len(head) - start < PREFIX_TOKENS * 8:
                ids = self._tokenizer.encode(head[start:])
                # a cursor further up the file would see too little from a late start
                if len(ids) <= PREFIX_TOKENS and (start == 0 or len(ids) >= _LEAST_TOKENS):
                    return start, ids
        start = max(0, len(head) - PREFIX_TOKENS * 8)
        while True:
            ids = self._tokenizer.encode(head[start:])
            if len(ids) <= PREFIX_TOKENS:
                return start, ids
            # room to grow: cut to two thirds of the budget, at a line start
            goal = start + int((len(head) - start) * (1 - PREFIX_TOKENS * 2 / 3 / len(ids)))
            line = head.find("\n", goal) + 1
            start = line if 0 < line <= (goal + len(head)) // 2 else goal + 1

    def _cut_suffix(self, suffix: str) -> str:
        """The start of the suffix that fits, cut at a line end where there is one."""
        ids = self._tokenizer.encode(suffix[: SUFFIX_TOKENS * 8])
        if len(ids) <= SUFFIX_TOKENS:
            return suffix[: SUFFIX_TOKENS * 8]
        text = self._tokenizer.decode(ids[:SUFFIX_TOKENS])
        line = text.rfind("\n") + 1
        return text[:line] if line > len(text) // 2 else text


def heal_offset(tokenizer: Tokenizer, text: str) -> int:
    """The offset of the last safe boundary in `text`."""
    return len(heal_left(tokenizer, text).kept)
