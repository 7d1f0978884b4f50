"""What may stand in the slots of one hole, for a masked-diffusion model.

Holds what is allowed: text only, no line break in a line, the spelling of both healed edges, bans
of a repair, the end, expand and delete tokens where the length strategy has them. Says when the
text has ended. Knows the hole and the vocabulary; knows no model and no policy.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from engine.hole import Hole
from engine.lengths import Length
from engine.model.family import Family
from engine.slot_canvas import SlotCanvas
from engine.tokenizer import Tokenizer

_KEPT_SPELLINGS = 256


class SlotVocabulary:
    """What is constant for a model: which tokens are text, and spelling candidates."""

    def __init__(self, tokenizer: Tokenizer, family: Family, rows: int) -> None:
        """`rows`: entries of the model's vocabulary (may exceed the tokenizer's)."""
        self.tokenizer, self.family, self.rows = tokenizer, family, rows
        spelled = tokenizer.token_bytes
        special = family.special_ids | set(tokenizer.special_ids.values())
        self.text = torch.zeros(rows, dtype=torch.bool)
        self.text[[i for i, word in enumerate(spelled[:rows]) if word and i not in special]] = True
        breaks = [i for i, word in enumerate(spelled[:rows]) if b"\n" in word or b"\r" in word]
        self.line = self.text.clone()
        self.line[breaks] = False
        blank = [i for i, word in enumerate(spelled[:rows]) if word and not word.strip()]
        self.blank = torch.zeros(rows, dtype=torch.bool)
        self.blank[blank] = True
        self._spelling: OrderedDict[tuple[str, bytes], Tensor] = OrderedDict()

    def starting(self, wanted: bytes) -> Tensor:
        """[V] bool: tokens that begin with `wanted` or are a proper prefix of it."""
        return self._cached(("starting", wanted), lambda: self.tokenizer.spelling(wanted))

    def ending(self, wanted: bytes, *, alone: bool = False) -> Tensor:
        """[V] bool: tokens that end with `wanted` or are a proper suffix of it; `alone`: and say
        nothing before it."""

        def find() -> list[int]:
            words = enumerate(self.tokenizer.token_bytes[: self.rows])
            return [
                i
                for i, w in words
                if w and (wanted.endswith(w) or (not alone and w.endswith(wanted)))
            ]

        return self._cached(("alone" if alone else "ending", wanted), find)

    def _cached(self, key: tuple[str, bytes], find: Callable[[], list[int]]) -> Tensor:
        found = self._spelling.get(key)
        if found is None:
            found = torch.zeros(self.rows, dtype=torch.bool)
            found[find()] = True
            found &= self.text
            self._spelling[key] = found
            if len(self._spelling) > _KEPT_SPELLINGS:
                self._spelling.popitem(last=False)
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Edges:
    """Where healing stands: `left` is still to be spelled from slot `left_at` on, `right` up to
    slot `right_at` (exclusive). Empty when done."""

    left: bytes
    left_at: int
    right: bytes
    right_at: int


class SlotRules:
    """The rules of one request."""

    def __init__(
        self, vocabulary: SlotVocabulary, hole: Hole, spell: bytes, length: Length
    ) -> None:
        self.vocabulary, self.hole, self.length = vocabulary, hole, length
        # a block-causal model writes from left to right: there a split word is a rule to stop by
        pinned = hole.word if vocabulary.family.attention == "bidirectional" else ""
        self.spell, self.word = spell, pinned.encode("utf-8")
        self._bytes = vocabulary.tokenizer.token_bytes
        self.ended = False

    def edges(self, canvas: SlotCanvas) -> Edges:
        """How much of both edges is still to be spelled."""
        ids, open_ = canvas.ids.tolist(), canvas.open.tolist()  # sync: once per step
        left, left_at = self._spelled_left(ids, open_)
        right, right_at = self._spelled_right(ids, open_)
        return Edges(left=left, left_at=left_at, right=right, right_at=right_at)

    def eligible(self, canvas: SlotCanvas, edges: Edges) -> Tensor:
        """[n] bool: the open slots that may commit now. An edge is spelled before anything else,
        slot by slot, since what a token may be depends on what was spelled so far."""
        if not edges.left and not edges.right:
            return canvas.open
        only = torch.zeros_like(canvas.open)
        only[edges.left_at if edges.left else edges.right_at - 1] = True
        return only & canvas.open

    def allowed(self, canvas: SlotCanvas, at: Tensor, edges: Edges) -> Tensor:
        """[k, V] bool: what may be written in each of the slots `at` [k]; never nothing."""
        words, slots = self.vocabulary, at.tolist()
        base = words.line if self.hole.one_line else words.text
        if edges.left or edges.right:
            if edges.left:
                spelled = words.starting(edges.left)
            else:  # a slot beyond the most was made for the word alone
                spelled = words.ending(edges.right, alone=len(canvas) > canvas.most)
            narrow = spelled & base
            base = narrow if bool(narrow.any()) else spelled
        out = base.repeat(len(slots), 1)
        if not edges.left and not edges.right:
            out[:, self._control(canvas)] = True
            if slots and self.hole.must_speak(self.text(canvas)):
                out[0, self._control(canvas)] = False
                if slots[0] == len(canvas) - 1:  # nothing could be said behind it
                    out[0] &= ~words.blank
        for row, slot in enumerate(slots):
            if banned := canvas.banned(slot):
                rest = out[row].clone()
                rest[sorted(banned)] = False
                # where one way of spelling is left, a ban on it cannot be kept
                out[row] = rest if bool(rest.any()) else out[row]
        return out

    def settle(self, canvas: SlotCanvas, edges: Edges) -> str:
        """Carry out what was written at the edges and by expand, delete and end tokens.

        Changes the canvas until no control token stands in it; returns what happened, in words.
        """
        notes = []
        for name, step in (("end", self._end), ("delete", self._delete), ("expand", self._expand)):
            if step(canvas):
                notes.append(name)
        if edges.left or edges.right:
            self._make_room(canvas)
        return ", ".join(notes)

    def grow(self, canvas: SlotCanvas) -> bool:
        """Add slots to a canvas that filled up without an end; whether there was room."""
        if not self.length.grow or self.ended or not canvas.room:
            return False
        canvas.insert(len(canvas), min(self.length.grow, canvas.room))
        return True

    def protected(self, canvas: SlotCanvas, edges: Edges) -> Tensor:
        """[n] bool: slots that spell a healed edge; no policy masks them again."""
        kept = torch.zeros_like(canvas.open)
        kept[: edges.left_at] = bool(self.spell)
        kept[edges.right_at :] = bool(self.word)
        return kept

    def over(self, canvas: SlotCanvas) -> bool:
        """Whether the text from the left has ended, whatever stands behind it."""
        return self.hole.end(self.text(canvas)) is not None

    def text(self, canvas: SlotCanvas) -> str:
        """The new text so far: what the slots before the first open one spell, less what stands
        left of the cursor already."""
        return self.spelled(canvas)[len(self.spell) :].decode("utf-8", "ignore")

    def spelled(self, canvas: SlotCanvas) -> bytes:
        """The bytes of the slots before the first open one."""
        return b"".join(self._bytes[i] for i in self.run(canvas))

    def run(self, canvas: SlotCanvas) -> Sequence[int]:
        """The tokens before the first open slot."""
        ids, open_ = canvas.ids.tolist(), canvas.open.tolist()
        ids_before: list[int] = ids[: open_.index(True)] if True in open_ else ids
        return ids_before

    def _control(self, canvas: SlotCanvas) -> list[int]:
        """Control tokens that may be written now."""
        family, length = self.vocabulary.family, self.length
        found = list(family.end_ids) if length.ends and not self.word else []
        if length.edits and family.delete_id is not None:
            found.append(family.delete_id)
        if length.edits and family.expand_id is not None and canvas.room:
            found.append(family.expand_id)
        return found

    def _end(self, canvas: SlotCanvas) -> bool:
        """Take out the first end token and everything behind it."""
        if not self.length.ends:
            return False
        at = torch.isin(canvas.ids, torch.tensor(self.vocabulary.family.end_ids)) & ~canvas.pinned
        if not bool(at.any()):
            return False
        canvas.drop(at.cumsum(0) > 0)
        self.ended = True
        return True

    def _delete(self, canvas: SlotCanvas) -> bool:
        """Take out delete tokens and, as they spread rightwards, the open slots behind the first
        (DreamOn, `pad_eos_to_right`)."""
        if not self.length.edits or self.vocabulary.family.delete_id is None:
            return False
        at = (canvas.ids == self.vocabulary.family.delete_id) & ~canvas.pinned
        if not bool(at.any()):
            return False
        canvas.drop(at | ((at.cumsum(0) > 0) & canvas.open))
        return True

    def _expand(self, canvas: SlotCanvas) -> bool:
        """Every expand token becomes two open slots, one where there is no more room."""
        if not self.length.edits or self.vocabulary.family.expand_id is None:
            return False
        at = (canvas.ids == self.vocabulary.family.expand_id) & ~canvas.pinned
        places = at.nonzero()[:, 0].tolist()
        canvas.blank(at)
        for place in reversed(places):
            if canvas.room:
                canvas.insert(place + 1)
        return bool(places)

    def _make_room(self, canvas: SlotCanvas) -> None:
        """Insert a slot where an edge is not spelled yet and the next slot is taken."""
        edges = self.edges(canvas)
        open_ = canvas.open.tolist()
        if edges.left:
            if not (edges.left_at < len(open_) and open_[edges.left_at]):
                canvas.insert(edges.left_at)
        elif edges.right and not (edges.right_at > 0 and open_[edges.right_at - 1]):
            canvas.insert(edges.right_at)

    def _spelled_left(self, ids: list[int], open_: list[bool]) -> tuple[bytes, int]:
        """(what is left to spell, number of slots that spelled the rest)."""
        spelled, count = b"", 0
        for token_id, is_open in zip(ids, open_, strict=True):
            if is_open or len(spelled) >= len(self.spell):
                break
            spelled += self._bytes[token_id]
            count += 1
        return self.spell[len(spelled) :], count

    def _spelled_right(self, ids: list[int], open_: list[bool]) -> tuple[bytes, int]:
        spelled, at = b"", len(ids)
        while len(spelled) < len(self.word) and at > 0 and not open_[at - 1]:
            longer = self._bytes[ids[at - 1]] + spelled
            if not longer.endswith(self.word) and not self.word.endswith(longer):
                break
            spelled, at = longer, at - 1
        return self.word[: max(0, len(self.word) - len(spelled))], at
