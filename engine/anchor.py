"""Where the context of a request is cut and anchored, so that typing costs only its own tokens.

In a fill-in-the-middle prompt every suffix key depends on the whole prefix. So prefix and suffix
stay as they were at an anchor (the start of a line), and the text typed since stands behind the
middle marker as committed middle. The anchor moves when text before it or the suffix changes, or
when much has been typed since.

What a long file cannot show whole, it shows in part: its imports and the headers around the window
(`lead`), and before everything snippets of other files. Both belong to the anchor, and stay as they
are with it; other snippets move it while nobody waits. Text and token ids only.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from engine.healing import Healed, heal_left
from engine.hole import Hole
from engine.outline import comment_out, lead
from engine.request import Snippet
from engine.tokenizer import Tokenizer

PREFIX_TOKENS = 768
SUFFIX_TOKENS = 160
#: Of the prefix's tokens, those that a lead may take; and what snippets may take besides.
LEAD_TOKENS = 160
SNIPPET_TOKENS = 1024
_LEAST_TOKENS = PREFIX_TOKENS // 3
_TYPED_CHARACTERS = 320
_LINE_CHARACTERS = 240
_KEPT = 8


class Style(Protocol):
    """How a model is asked: `PromptStyle`, or a family of masked-diffusion models."""

    @property
    def trained(self) -> bool:
        """Whether the suffix stands in the prompt."""

    @property
    def file_ids(self) -> tuple[int, ...]:
        """The markers of a repository and of a file in it, for models that know both."""

    def order(self, prefix_ids: list[int], suffix_ids: list[int]) -> list[int]:
        """The prompt, up to where the hole begins."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Anchor:
    """A prompt as it was: `head` the whole text before the anchor, `start` the offset in it where
    the encoded window begins, `lead_ids` what stands for the text before; `suffix` the encoded
    suffix text."""

    head: str
    start: int
    lead_ids: tuple[int, ...]
    suffix: str
    snippets: tuple[Snippet, ...]
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

    def __init__(self, tokenizer: Tokenizer, style: Style) -> None:
        self._tokenizer, self._style = tokenizer, style
        self._recent: list[Anchor] = []

    def plan(self, hole: Hole) -> Plan:
        """The tokens of a request, on a kept anchor if one serves."""
        suffix = self._cut_suffix(hole.suffix)
        anchor = self._find(hole.prefix, suffix)
        if anchor is None or (hole.idle and anchor.snippets != hole.snippets):
            anchor = self._move(hole, suffix)
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
        start, lead_ids, ids = self._window(hole, prefix[:at])
        prompt = self._prompt(hole, [*lead_ids, *ids], self._tokenizer.encode(suffix))
        anchor = Anchor(
            head=prefix[:at],
            start=start,
            lead_ids=lead_ids,
            suffix=suffix,
            snippets=hole.snippets,
            prompt_ids=tuple(prompt),
        )
        self._recent = [*self._recent[-(_KEPT - 1) :], anchor]
        return anchor

    def _prompt(self, hole: Hole, prefix_ids: list[int], suffix_ids: list[int]) -> list[int]:
        """The prompt with the snippets before it: as the files of a repository where the model
        knows that form, else as comments at the top of the prefix."""
        encode, order, snippets = self._tokenizer.encode, self._style.order, hole.snippets
        if not snippets:
            return order(prefix_ids, suffix_ids)
        if not self._style.file_ids:
            shown = [encode(comment_out(f"{s.path}\n{s.text}", hole.language)) for s in snippets]
            return order([*_last(shown, SNIPPET_TOKENS), *prefix_ids], suffix_ids)
        repository, file = self._style.file_ids
        shown = [[file, *encode(f"{s.path}\n{s.text.rstrip()}\n")] for s in snippets]
        folder, _, name = (hole.path or "").replace("\\", "/").rpartition("/")
        return [
            *(repository, *encode(f"{folder.rpartition('/')[2] or 'project'}\n")),
            *_last(shown, SNIPPET_TOKENS),
            *(file, *encode(f"{name or 'file'}\n")),
            *order(prefix_ids, suffix_ids),
        ]

    def _lead(self, hole: Hole, start: int) -> tuple[int, ...]:
        """Imports and enclosing headers for a window that begins at `start`, as far as they fit."""
        if start == 0:
            return ()
        text = lead(hole.prefix + hole.word + hole.suffix, start, hole.language)
        if not text:
            return ()
        lines = [self._tokenizer.encode(line) for line in text.splitlines(keepends=True)]
        gap = self._tokenizer.encode(comment_out("...", hole.language))
        return tuple(_last([*lines, gap], LEAD_TOKENS))

    def _window(self, hole: Hole, head: str) -> tuple[int, tuple[int, ...], list[int]]:
        """(start, lead, ids) of the last part of `head` that fits; the start of an earlier window
        is kept while it fits, so that its encoding is too."""
        for anchor in reversed(self._recent):
            start = anchor.start
            same = anchor.head[:4096] == head[: len(anchor.head)][:4096]
            if same and start <= len(head) and len(head) - start < PREFIX_TOKENS * 8:
                ids = self._tokenizer.encode(head[start:])
                # a cursor further up the file would see too little from a late start
                few = start > 0 and len(ids) < _LEAST_TOKENS
                if len(anchor.lead_ids) + len(ids) <= PREFIX_TOKENS and not few:
                    return start, anchor.lead_ids, ids
        start = max(0, len(head) - PREFIX_TOKENS * 8)
        while True:
            ids = self._tokenizer.encode(head[start:])
            lead_ids = self._lead(hole, start) if len(ids) <= PREFIX_TOKENS else ()
            if len(lead_ids) + len(ids) <= PREFIX_TOKENS:
                return start, lead_ids, ids
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


def _last(parts: list[list[int]], limit: int) -> list[int]:
    """The ids of the last parts that fit together."""
    kept: list[list[int]] = []
    for part in reversed(parts):
        limit -= len(part)
        if limit < 0:
            break
        kept.append(part)
    return [token for part in reversed(kept) for token in part]


def heal_offset(tokenizer: Tokenizer, text: str) -> int:
    """The offset of the last safe boundary in `text`."""
    return len(heal_left(tokenizer, text).kept)
