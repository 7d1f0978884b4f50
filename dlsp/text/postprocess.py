"""From the engine's text to the text a user may see: pure str -> str steps, then the verdict.

Knows the text around the hole and the syntax verdict on the whole document, which falls here for
every engine, remote ones included. Knows nothing of LSP positions, requests or the engine.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, Literal

from dlsp.text.indent import drop_repeated, in_unit
from dlsp.text.lines import to_lf
from dlsp.text.overlap import (
    closed_by,
    closers_right_of,
    cut_closing_line,
    cut_end_mark,
    cut_following_lines,
    cut_rest_of_line,
    head_of,
    is_trivial,
    open_at_end,
    repeats_neighbour,
    tail_of,
)
from engine.request import Want
from engine.syntax import Verdict, check, complete_prefix

Shorten = Literal["token", "line"] | None

_COMMENT: Final = re.compile("#|//|--")
_LAST_WORD: Final = re.compile(r"(?<=[^\w\s])\s*\w+\Z|\s+\w+\Z")


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """What to show. `replace_after` code points right of the cursor give way to the text; `ms`: how
    long this took."""

    text: str
    replace_after: int
    verdict: Verdict
    dropped: str | None = None
    ms: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where the text would stand, on LF. `may_cover`: text right of the cursor may give way."""

    prefix: str
    suffix: str
    language: str | None
    may_cover: bool = True

    def verdict(self, text: str, replace_after: int = 0) -> Verdict:
        suffix = self.suffix[replace_after:]
        return check(prefix=self.prefix, text=text, suffix=suffix, language=self.language)


def finish(text: str, place: Place, *, want: Want, cut_short: bool = False) -> Finished:
    """Clean a suggestion and judge it; an empty `text` says in `dropped` why nothing is shown.

    `cut_short`: the engine would have written on.
    """
    text = only_wanted(to_lf(text), want)
    if cut_short:
        text = whole_words(text)
    if not text.strip():
        return _dropped("empty")
    text = drop_repeated(text, place.prefix)
    text = in_unit(text, place.prefix, place.suffix)
    text = cut_rest_of_line(text, place.suffix)
    text = cut_end_mark(text, place.suffix)
    text = cut_following_lines(text, place.prefix, place.suffix)
    text = trimmed(text, place.suffix)
    if not text.strip():
        return _dropped("repeats what follows")
    if repeats_neighbour(text, place.prefix, place.suffix):
        return _dropped("repeats a line beside it")
    text, replace_after = balanced(text, place)
    shorten: Shorten = "line" if want == "block" else "token" if cut_short else None
    return _judged(text, replace_after, place, shorten)


def only_wanted(text: str, want: Want) -> str:
    """A line ends at its newline."""
    return text.partition("\n")[0] if want == "line" else text


def whole_words(text: str) -> str:
    """Leave out what may be half a line, below other lines, or else half a word."""
    above, newline, _ = text.rpartition("\n")
    if newline and above.strip():
        return above
    return _LAST_WORD.sub("", text) or text


def trimmed(text: str, suffix: str) -> str:
    """Trim blank lines, and the end of the text where nothing follows on its line."""
    lines = [line if line.strip() else "" for line in text.split("\n")]
    whole = "\n".join(lines) if len(lines) > 1 else text
    return whole if tail_of(suffix).strip() else whole.rstrip()


def balanced(text: str, place: Place) -> tuple[str, int]:
    """Keep exactly one of each closer where the editor had set it and the text spells it too.

    The syntax of each way decides (in `f(g(|)` both closers are due); without a grammar, or where
    no way is whole, the brackets that the cursor's line leaves open are counted.
    """
    # Grammars for which a block ends with a word take one word more without complaint.
    closed_below = cut_closing_line(text, place.prefix, place.suffix)
    if closed_below != text and place.verdict(closed_below).status != "broken":
        return closed_below, 0
    ways = _ways(text, place)
    # As it is, a comment could swallow closers on the right that are not due: grammars allow it.
    line = head_of(place.prefix + text)
    covering_first = bool(_COMMENT.search(head_of(text))) and not open_at_end(line)
    for way in sorted(ways, key=lambda way: covering_first and way[1] == 0):
        if len(ways) > 1 and place.verdict(*way).status == "ok":
            return way
    if len(ways) > 1 and not _due(text, place):
        return ways[1]
    return ways[0]


def _ways(text: str, place: Place) -> list[tuple[str, int]]:
    """As it is; the text's own closers cut; those right of the cursor covered, if they may be."""
    ways = [(text, 0)]
    right, own = closers_right_of(place.suffix), closed_by(text, head_of(place.prefix))
    doubled = next((n for n in range(min(len(right), len(own)), 0, -1) if own[:n] == right[:n]), 0)
    if doubled and text.endswith(right[:doubled]) and len(text) > doubled:
        ways.append((text[:-doubled], 0))
    if doubled and place.may_cover:
        ways.append((text, doubled))
    if not doubled and place.may_cover and right and text.rstrip(";,:")[-1:] == right[0]:
        ways.append((text, 1))
    *above, last = text.split("\n")
    if above and is_trivial(last) and last.strip() == _next_line(place.suffix):
        ways.append(("\n".join(above).rstrip(), 0))
    return ways


def _next_line(suffix: str) -> str:
    return next((line.strip() for line in suffix.split("\n")[1:] if line.strip()), "")


def _due(text: str, place: Place) -> bool:
    """True if the cursor's line has left enough open for the text's closers and those right."""
    unclosed = open_at_end(head_of(place.prefix))
    return len(unclosed) >= len(closers_right_of(place.suffix)) + len(
        closed_by(text, head_of(place.prefix))
    )


def _judged(text: str, replace_after: int, place: Place, shorten: Shorten) -> Finished:
    """With its verdict; of a text that breaks the document, what does not, cut at such ends."""
    verdict = place.verdict(text, replace_after)
    if verdict.status == "broken" and shorten is not None:
        suffix = place.suffix[replace_after:]
        text = complete_prefix(place.prefix, text, suffix, place.language, at=shorten).rstrip()
        verdict = place.verdict(text, replace_after) if text else verdict
    if verdict.status == "broken" or not text:
        return _dropped("breaks the syntax", verdict)
    return Finished(text=text, replace_after=replace_after, verdict=verdict)


def _dropped(reason: str, verdict: Verdict | None = None) -> Finished:
    verdict = verdict or Verdict(status="unknown")
    return Finished(text="", replace_after=0, verdict=verdict, dropped=reason)
