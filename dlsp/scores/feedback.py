"""What becomes of suggestions: shown, accepted in whole or part, typed by hand, kept.

LSP has no message for most of this. A client may run a command after a whole acceptance; all else
is read off the document's changes: how much of the suggestion stands at its place, and whether it
came a key at a time. Knows documents and rows, not the file they go to (scorecard.py) or how a
suggestion came about. Nothing here outlives the document; rows hold no text.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final
from urllib.parse import unquote

from lsprotocol import types as lsp

from dlsp.scores.scorecard import Row
from dlsp.text.document import Document
from dlsp.text.lines import to_lf
from dlsp.text.region import Region, share_kept

#: When accepted text is looked at again, in seconds: for the columns `kept_30` and `kept_300`.
FIRST_CHECK_S, LAST_CHECK_S = 30, 300
#: Characters behind the cursor by which a suggestion's end is told from the text that follows.
_TAIL: Final = 80
_LONGEST_LINE: Final = 10_000
_LONGEST_REGION: Final = 20_000
_CLOSERS: Final = frozenset(")]}\"'`>")
#: Pairs that an editor makes of one key.
_PAIRS: Final = frozenset({"()", "[]", "{}", '""', "''", "``", "<>"})
#: Suggestions that are off the screen and may still be told of by a command.
_RECENT: Final = 64

Later = Callable[[float, Callable[[], None]], object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What is known of a suggestion when it is made. `at`: seconds since 1970."""

    at: float
    language: str
    model: str
    latency_ms: float
    confidence: float


@dataclass(slots=True, kw_only=True, eq=False)
class _Suggestion:
    """One suggestion: its line holds `head` before it, and `tail` follows.

    `covered` characters of the tail give way when it is accepted; the first `taken` of `text`
    stand in the document. `region` are its lines there.
    """

    document: Document
    row: Row
    text: str
    head: str
    tail: str
    covered: int
    region: Region
    taken: int = 0

    def standing(self) -> int | None:
        """How many of its characters stand in the document now; None once the user left it."""
        limit = len(self.head) + 2 * (len(self.text) + _TAIL) + 8
        now = _from_line(self.document, self.region.first, limit)
        if not now.startswith(self.head):
            return None
        now = now[len(self.head) :]
        counts = range(len(self.text), -1, -1)
        return next((n for n in counts if self._stands(n, now)), None)

    def _stands(self, count: int, now: str) -> bool:
        return now.startswith(self.text[:count]) and self._is_tail(now[count:])

    def _is_tail(self, rest: str) -> bool:
        """Whether what follows once followed the cursor, or does since a key or an acceptance."""
        for own in range(3):  # closers that the editor set behind what was typed
            if _CLOSERS.issuperset(rest[:own]) and self._continues(rest[own:], self.tail):
                return True
        return self._continues(rest, self.tail[self.covered :])

    def _continues(self, rest: str, tail: str) -> bool:
        at_the_end = len(self.tail) < _TAIL
        return rest == tail if at_the_end else rest.startswith(tail)

    def place_of(self, count: int) -> tuple[int, str]:
        """The line on which its first `count` characters end, and that line's text before that."""
        before = self.head + self.text[:count]
        return self.region.first + self.text[:count].count("\n"), before.rpartition("\n")[2]


class Feedback:
    """Follows the suggestions of one session; every method is called from its event loop."""

    def __init__(self, put: Callable[[Row], None], later: Later) -> None:
        """`put` takes each row whenever it has changed; `later` calls back after seconds."""
        self._put = put
        self._later = later
        self._live: dict[str, _Suggestion] = {}
        self._recent: dict[str, _Suggestion] = {}
        self._watched: list[_Suggestion] = []

    def show(self, document: Document, text: str, where: lsp.Range, facts: Facts) -> str:
        """A suggestion goes out; its id, which is the old one while it says the same."""
        fresh = _suggestion(document, text, where, facts)
        old = self._live.get(_key(document.uri))
        if old is not None:
            if _is_rest(fresh, old):
                return old.row.id
            self._leave(old)
        self._live[_key(document.uri)] = fresh
        self._put(fresh.row)
        return fresh.row.id

    def withhold(self, text: str, facts: Facts) -> None:
        """A suggestion was made, and not shown."""
        self._put(_row(text, facts, shown=False))

    def changed(self, uri: str, changes: Sequence[lsp.TextDocumentContentChangeEvent]) -> None:
        """The document has just taken over these changes."""
        live = self._live.get(_key(uri))
        for change in changes:
            for watched in self._watched:
                if _key(watched.document.uri) == _key(uri):
                    watched.region = watched.region.after(change)
            if live is not None:
                live.region = live.region.after(change)
        if live is not None:
            self._look_at(live)

    def accepted(self, suggestion_id: str) -> None:
        """The client says that a suggestion was accepted to its end."""
        live = next((one for one in self._live.values() if one.row.id == suggestion_id), None)
        found = live or self._recent.get(suggestion_id)
        if found is None or found.row.accepted:
            return
        if found.taken == len(found.text):
            # What was left of it, a character, looked typed by hand.
            found.row = replace(found.row, typed_characters=found.row.typed_characters - 1)
            found.taken -= 1
        self._take(found, len(found.text), by_key=True)
        if live is not None:
            self._leave(live)
        else:
            self._watch(found)

    def closed(self, uri: str) -> None:
        """The document is gone, and with it all that was known of it."""
        key = _key(uri)
        self._live.pop(key, None)
        self._watched = [one for one in self._watched if _key(one.document.uri) != key]
        self._recent = {
            id: one for id, one in self._recent.items() if _key(one.document.uri) != key
        }

    def _look_at(self, live: _Suggestion) -> None:
        standing = live.standing()
        if standing is None:
            self._leave(live)
            return
        if standing > live.taken:
            piece = live.text[live.taken : standing]
            self._take(live, standing, by_key=len(piece.strip()) > 1 and piece not in _PAIRS)
        elif standing < live.taken:
            typed = max(live.row.typed_characters - (live.taken - standing), 0)
            live.row = replace(live.row, typed_characters=typed)
            live.taken = standing
        if live.taken == len(live.text):
            self._leave(live)

    def _take(self, one: _Suggestion, until: int, *, by_key: bool) -> None:
        """More of it stands in the document: by one key, or typed by hand."""
        count, row = until - one.taken, one.row
        one.taken = until
        if not by_key:
            one.row = replace(row, typed_characters=row.typed_characters + count)
            return
        one.row = replace(
            row,
            accepted=until == len(one.text),
            accepted_characters=row.accepted_characters + count,
            acceptances=row.acceptances + 1,
        )
        self._put(one.row)

    def _leave(self, live: _Suggestion) -> None:
        """It is off the screen; what was accepted of it is looked at again later."""
        del self._live[_key(live.document.uri)]
        self._put(live.row)
        self._recent[live.row.id] = live
        while len(self._recent) > _RECENT:
            del self._recent[next(iter(self._recent))]
        if live.row.accepted_characters:
            self._watch(live)

    def _watch(self, accepted: _Suggestion) -> None:
        if accepted in self._watched:
            return
        first = accepted.region.first
        last = first + accepted.text[: accepted.taken].count("\n")
        accepted.region = Region(first=first, last=last)
        self._watched.append(accepted)
        self._later(FIRST_CHECK_S, lambda: self._check(accepted, last=False))
        self._later(LAST_CHECK_S, lambda: self._check(accepted, last=True))

    def _check(self, accepted: _Suggestion, *, last: bool) -> None:
        if accepted not in self._watched:
            return  # its document was closed
        region = accepted.region
        below = _from_line(accepted.document, region.first, _LONGEST_REGION)
        now = "\n".join(below.split("\n")[: region.last - region.first + 1])
        kept = round(share_kept(accepted.text[: accepted.taken], now), 3)
        if last:
            self._watched.remove(accepted)
            accepted.row = replace(accepted.row, kept_300=kept)
        else:
            accepted.row = replace(accepted.row, kept_30=kept)
        self._put(accepted.row)


def _suggestion(document: Document, text: str, where: lsp.Range, facts: Facts) -> _Suggestion:
    text = to_lf(text)
    head, end = (_head(document, position) for position in (where.start, where.end))
    line = where.start.line
    fresh = _Suggestion(
        document=document,
        row=_row(text, facts, shown=True),
        text=text,
        head=head,
        tail=to_lf(document.cut(where.start, limit=2 * _TAIL)[1])[:_TAIL],
        covered=max(len(end) - len(head), 0),
        region=Region(first=line, last=line),
    )
    fresh.taken = fresh.standing() or 0
    return fresh


def _row(text: str, facts: Facts, *, shown: bool) -> Row:
    return Row(
        id=secrets.token_hex(8),
        at=facts.at,
        language=facts.language,
        model=facts.model,
        latency_ms=round(facts.latency_ms, 1),
        characters=len(text),
        lines=text.count("\n") + 1,
        confidence=round(facts.confidence, 4),
        shown=shown,
    )


def _is_rest(fresh: _Suggestion, old: _Suggestion) -> bool:
    """Whether `fresh` would complete the document to what `old` does."""
    place = (fresh.region.first, fresh.head)
    return any(
        place == old.place_of(count) and fresh.text == old.text[count:] for count in (0, old.taken)
    )


def _key(uri: str) -> str:
    return unquote(uri)


def _head(document: Document, position: lsp.Position) -> str:
    return to_lf(document.cut(position, limit=_LONGEST_LINE)[0]).rpartition("\n")[2]


def _from_line(document: Document, line: int, limit: int) -> str:
    return to_lf(document.cut(lsp.Position(line=line, character=0), limit=limit)[1])
