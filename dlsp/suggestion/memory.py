"""Recent suggestions of each document: what is left of one while the user types what it says.

A suggestion stands for the document that accepting it makes. Whoever types it, accepts a word or a
line of it, or takes a letter back, is still on the way to that document, so it is still the right
suggestion, without asking anyone. When the text around has changed, it is not found any more.
Knows text on both sides of a cursor; does not know positions, requests or the engine's protocol.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from dlsp.client.wire import BackendReply
from dlsp.text.overlap import CLOSERS

#: Code points on each side of a suggestion that must be as they were. `recall` wants twice as many.
NEAR: Final = 2000
_PER_DOCUMENT: Final = 16
_DOCUMENTS: Final = 64
#: So much may an editor have put to the right of what was typed: closers, and the line they are on.
_MOST_INSERTED: Final = 40
#: So much of a departing text is looked at to find its place in the suggestion again.
_MOST_DEPARTED: Final = 200
_PIECE: Final = 24


@dataclass(frozen=True, slots=True, kw_only=True)
class Suggestion:
    """`text` between `before` and `after`, all on LF; `covers` code points of `after` give way.

    An empty text says that there is nothing to suggest here. `reply` is what the engine said.
    """

    before: str
    text: str
    after: str
    covers: int = 0
    syntax: str = "unknown"
    reply: BackendReply | None = None

    @property
    def rest(self) -> str:
        """What stands behind the text once it is accepted."""
        return self.after[self.covers :]


@dataclass(frozen=True, slots=True, kw_only=True)
class Recalled:
    """What is left of a suggestion at a cursor; `typed` code points of it stand there already."""

    text: str
    covers: int
    typed: int
    suggestion: Suggestion


class Memory:
    """The latest suggestions of the latest documents, by URI."""

    def __init__(self) -> None:
        self._documents: OrderedDict[str, deque[Suggestion]] = OrderedDict()

    def keep(self, uri: str, suggestion: Suggestion) -> None:
        """Remember a suggestion; of its surroundings only what is near."""
        found = self._documents.setdefault(uri, deque(maxlen=_PER_DOCUMENT))
        self._documents.move_to_end(uri)
        found.append(near(suggestion))
        while len(self._documents) > _DOCUMENTS:
            self._documents.popitem(last=False)

    def recall(self, uri: str, before: str, after: str) -> Recalled | None:
        """The newest suggestion that a cursor between two texts (on LF) is on the way through."""
        for suggestion in self._newest_first(uri):
            typed = _typed(suggestion, before)
            if typed is None:
                continue
            inserted = _inserted(suggestion, after)
            if inserted is None:
                continue
            left = _left(suggestion, typed, inserted)
            if left is not None:
                return left
        return None

    def guess(self, uri: str, before: str, after: str) -> str:
        """What is left of a suggestion from which the user has departed; "" if there is none."""
        for suggestion in self._newest_first(uri):
            departed = _since(suggestion, before) if suggestion.text else None
            if departed is not None and _inserted(suggestion, after) is not None:
                return _aligned(suggestion.text, departed)
        return ""

    def forget(self, uri: str) -> None:
        """A document was closed."""
        self._documents.pop(uri, None)

    def _newest_first(self, uri: str) -> Iterator[Suggestion]:
        return reversed(self._documents.get(uri, ()))


def near(suggestion: Suggestion) -> Suggestion:
    """The same suggestion with no more of its surroundings than is compared."""
    return Suggestion(
        before=suggestion.before[-NEAR:],
        text=suggestion.text,
        after=suggestion.after[: NEAR + suggestion.covers],
        covers=suggestion.covers,
        syntax=suggestion.syntax,
        reply=suggestion.reply,
    )


def continues(place: Suggestion, before: str, after: str) -> bool:
    """Whether a cursor is at a place or behind it on its line, with nothing else changed around."""
    typed = _since(place, before)
    return typed is not None and "\n" not in typed and _inserted(place, after) is not None


def _typed(suggestion: Suggestion, before: str) -> int | None:
    """How much of the suggestion ends `before`, behind what stood there; None: it does not."""
    text = suggestion.text
    for count in range(min(len(text), len(before)) + 1):
        if count and before[-1] != text[count - 1]:
            continue
        if before.endswith(text[:count]) and _ends_with(
            before[: len(before) - count], suggestion.before
        ):
            return count
    return None


def _since(suggestion: Suggestion, before: str) -> str | None:
    """What stands behind the suggestion's place now; None where that place is gone."""
    for count in range(min(_MOST_DEPARTED, len(before)) + 1):
        if _ends_with(before[: len(before) - count], suggestion.before):
            return before[len(before) - count :]
    return None


def _ends_with(text: str, known: str) -> bool:
    """Whether a text ends with all that is known; little is known only at a document's start."""
    return text.endswith(known) and (len(known) >= NEAR or len(text) == len(known))


def _inserted(suggestion: Suggestion, after: str) -> str | None:
    """What stands between the cursor and what follows the suggestion: closers that the editor set,
    and blanks; None when what follows has changed."""
    rest = suggestion.rest[:NEAR]
    for count in range(min(_MOST_INSERTED, len(after)) + 1):
        behind = after[count:]
        if behind == rest or (len(rest) >= NEAR and behind.startswith(rest)):
            inserted = after[:count]
            return inserted if not inserted.strip(CLOSERS + " \t\n") else None
    return None


def _left(suggestion: Suggestion, typed: int, inserted: str) -> Recalled | None:
    """The rest of the suggestion over what the editor inserted; None if it does not spell that."""
    text, covers = suggestion.text[typed:], len(inserted)
    if not text and (typed or covers):
        return None
    if "\n" in inserted:
        # A range stays on its line: what stands on the next ones is left out of the text.
        if not text.endswith(inserted):
            return None
        text, covers = text[: -len(inserted)], 0
        if not text.strip():
            return None
    elif inserted != suggestion.after[: suggestion.covers] and not _spells(text, inserted.strip()):
        return None
    return Recalled(text=text, covers=covers, typed=typed, suggestion=suggestion)


def _spells(text: str, closers: str) -> bool:
    """Whether these closers stand in the text in the same order."""
    characters = iter(text)
    return all(closer in characters for closer in closers)


def _aligned(text: str, typed: str) -> str:
    """What may follow the typed text, which is not (only) a beginning of the suggestion's.

    The end of what departs is sought in the suggestion again: behind it the rest may still hold.
    """
    pairs = enumerate(zip(text, typed, strict=False))
    common = next((at for at, (a, b) in pairs if a != b), min(len(text), len(typed)))
    for size in range(min(len(typed) - common, _PIECE), 0, -1):
        piece = typed[-size:]
        if size == 1 and piece.isalnum():
            break  # one letter is found anywhere
        at = text.find(piece, common)
        if at >= 0:
            return text[at + size :]
    return text[common:]
