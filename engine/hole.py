"""The hole of one request: how its edges are healed and where it ends. Text only.

A line ends at its newline; a block ends before a line that is indented less than its first; text
that begins to repeat the suffix has ended. The end-of-middle token is the model's own say.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from engine.healing import closed_word_start, split_word
from engine.indentation import Start, required
from engine.readings import open_brackets
from engine.request import InfillRequest, Snippet

_REPEAT_MIN = 3
_CLOSERS = (")", "]", "}")


#: No more text than this on either side is looked at: far more than any token budget.
SIDE_CHARACTERS = 200_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Hole:
    """`word`: right part of a split word, taken into the hole; `suffix`: the text behind it.

    `left`, `right`: what stands on the cursor's line before and after; `blank`: whether that is
    nothing but white space, so that an empty answer would be no answer; `heal`: whether the left
    edge is healed (`word` is what the right one gave); `start`: how the text must begin, if that is
    known; `snippets`: what is shown besides; `idle`: whether nobody waits.
    """

    prefix: str
    suffix: str
    word: str
    left: str
    right: str
    want: str
    stop: tuple[str, ...]
    heal: bool = True
    start: Start | None = None
    language: str | None = None
    path: str | None = None
    snippets: tuple[Snippet, ...] = ()
    idle: bool = False

    @classmethod
    def of(cls, request: InfillRequest) -> Hole:
        """Look at the text around the cursor."""
        prefix = unix(request.prefix[-SIDE_CHARACTERS:])
        suffix = unix(request.suffix[:SIDE_CHARACTERS])
        word = split_word(prefix, suffix) if request.healing else ""
        suffix = suffix[len(word) :]
        return cls(
            prefix=prefix,
            suffix=suffix,
            word=word,
            left=prefix[prefix.rfind("\n") + 1 :],
            right=suffix.partition("\n")[0],
            want=request.want,
            stop=tuple(unix(s) for s in request.stop if s),
            heal=request.healing,
            language=request.language,
            path=request.path,
            snippets=request.snippets,
            idle=request.idle,
        )

    def started(self) -> Hole:
        """This hole with the `start` that the syntax of its neighbours leaves it."""
        return replace(self, start=required(self.prefix, self.word + self.suffix, self.language))

    @property
    def blank(self) -> bool:
        """Whether the cursor stands on a line of white space."""
        return not self.left.strip() and not self.right.strip() and not self.word

    @property
    def one_line(self) -> bool:
        """Whether what fills the hole has no line break."""
        return self.want == "line" or bool(self.right.strip())

    def must_speak(self, text: str) -> bool:
        """Whether an end is not allowed yet: nothing but white space on a blank line."""
        return self.blank and not text.strip()

    def end(self, text: str) -> int | None:
        """Where the new text ends, as an offset into it; None while it goes on."""
        ends = [self._word_end(text), self._line_end(text)]
        ends += [at for s in self.stop if s and (at := text.find(s)) >= 0]
        if self.want == "block":
            ends += [self._dedent(text), self._repeat(text)]
        found = [at for at in ends if at is not None]
        return min(found) if found else None

    def finish(self, text: str) -> str:
        """The text to return: what the right edge already spells is taken off.

        Empty when a split word was never completed.
        """
        if self.word:
            closed = closed_word_start(text + "\n", self.word)
            return text[:closed] if closed is not None else ""
        right = self.right.strip()
        if right and "\n" not in text and text.rstrip().endswith(right):
            rest = text.rstrip()[: -len(right)]
            # "f(x)" before ")" closes a bracket of its own: that is no repetition
            if open_brackets(rest) <= 0:
                rest = rest.rstrip() if self.right[0].isspace() else rest
                return rest if rest.strip() else ""
        return text if text.strip() else ""

    def _word_end(self, text: str) -> int | None:
        if not self.word:
            return None
        at = closed_word_start(text, self.word)
        return None if at is None else at + len(self.word)

    def _line_end(self, text: str) -> int | None:
        if not self.one_line:
            return None
        if self.start and (opened := self.start.end(text)) is not None:
            return opened
        spoken = len(text) - len(text.lstrip()) if self.blank else 0
        at = text.find("\n", spoken)
        return None if at < 0 else at

    def _dedent(self, text: str) -> int | None:
        """Before the first line that is indented less than the block's first line.

        Where the text begins with a line break, the block is what stands below the cursor's line;
        a bracket may then close in that line's column.
        """
        lead, _, below = text.partition("\n")
        first = self.left + lead
        if not first.strip():
            return None
        depth = opening = _indent(first)
        if not lead.strip():
            depth = max(opening, _indent(next((x for x in below.split("\n") if x.strip()), "")))
        at = text.find("\n")
        while at >= 0:
            end = text.find("\n", at + 1)
            line = text[at + 1 : end if end >= 0 else len(text)]
            least = opening if line.strip().startswith(_CLOSERS) else depth
            if line.strip() and _indent(line) < least:
                return len(text[:at].rstrip())
            at = end
        return None

    def _repeat(self, text: str) -> int | None:
        """Before a line that repeats the suffix's first line of substance."""
        following = next((x for x in self.suffix.split("\n") if x.strip()), "").rstrip()
        if len(following.strip()) < _REPEAT_MIN or self.right.strip():
            return None
        for at, line in _lines(text):
            if at and line.rstrip() == following:
                return len(text[:at].rstrip())
        return None


def unix(text: str) -> str:
    """LF line ends: the model reads and writes no others."""
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _indent(line: str) -> int:
    expanded = line.expandtabs(8)
    return len(expanded) - len(expanded.lstrip(" "))


def _lines(text: str) -> list[tuple[int, str]]:
    """(offset, line) of each complete line."""
    found, at = [], 0
    for line in text.split("\n")[:-1]:
        found.append((at, line))
        at += len(line) + 1
    return found
