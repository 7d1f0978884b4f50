"""What the last change of a document was, as far as LSP lets one see: typing, deleting, undoing.

The protocol sends ranges and texts, and says neither "undo" nor "an input method composes"; both
are read off the changes themselves. Knows changes only, not documents or clients.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Final, Literal

#: `other`: a paste, a formatter, an accepted suggestion, a change of the whole text.
EditKind = Literal["typed", "deleted", "undone", "composed", "other"]

_KEPT: Final = 50
#: Longer texts are not compared: no one composes them, and undoing them deletes or pastes.
_LONGEST: Final = 2000


@dataclass(frozen=True, slots=True, kw_only=True)
class Edit:
    """`inserted` took the place of `removed` at (line, column in code points)."""

    line: int
    column: int
    removed: str
    inserted: str

    def undoes(self, other: Edit) -> bool:
        """Whether this change takes that one back."""
        return (self.line, self.column, self.removed, self.inserted) == (
            other.line,
            other.column,
            other.inserted,
            other.removed,
        )


class Edits:
    """The latest changes of one document; `kind` is the last one's."""

    def __init__(self) -> None:
        self.kind: EditKind = "other"
        self._recent: deque[Edit] = deque(maxlen=_KEPT)

    def add(self, edit: Edit) -> None:
        """Take over one change."""
        self.kind = _kind(edit, self._recent)
        if len(edit.removed) + len(edit.inserted) <= _LONGEST:
            self._recent.append(edit)
        else:
            self._recent.clear()

    @property
    def lines(self) -> tuple[int, ...]:
        """Where the changes were, the latest last; each line once."""
        return tuple(reversed(dict.fromkeys(edit.line for edit in reversed(self._recent))))

    def replaced(self) -> None:
        """The whole text was set anew."""
        self.kind = "other"
        self._recent.clear()


def _kind(edit: Edit, recent: deque[Edit]) -> EditKind:
    undoes = any(edit.undoes(earlier) for earlier in recent)
    if not edit.inserted:
        # A letter that goes is taken back by hand more often than by an undo.
        return "undone" if undoes and len(edit.removed) > 1 else "deleted"
    if not edit.removed and len(edit.inserted) == 1:
        return "typed"
    if undoes:
        return "undone"
    if recent and _composes(edit, recent[-1]):
        return "composed"
    return "other"


def _composes(edit: Edit, last: Edit) -> bool:
    """Whether a change spells anew what the last one had inserted, as an input method does.

    So does accepting a word from a list after its first letter, but that adds more than a letter.
    """
    if (edit.line, edit.column, edit.removed) != (last.line, last.column, last.inserted):
        return False
    foreign = not (edit.removed + edit.inserted).isascii()
    return bool(edit.removed) and (foreign or len(edit.inserted) - len(edit.removed) <= 1)
