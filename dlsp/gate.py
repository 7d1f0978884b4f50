"""Whether to ask the engine here at all, and for a line or a block.

Knows the text on both sides of the cursor and nothing of the engine, the client or past requests.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from engine.request import Want

#: A longer document is data or generated code: its context is not worth a request per keystroke.
MAX_CHARACTERS: Final = 2_000_000
_BINARY_PROBE: Final = 8_000
_IDENTIFIER: Final = re.compile(r"\w")


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate:
    """`ask` is False where silence is right; `reason` says why, for the log."""

    ask: bool
    want: Want
    reason: str


def decide(*, prefix: str, suffix: str, language: str | None, invoked: bool) -> Gate:
    """Decide for a cursor between `prefix` and `suffix`; a manual invocation is always answered."""
    del language  # every language opens its blocks on a line of their own
    want = _want(prefix, suffix)
    if invoked:
        return Gate(ask=True, want=want, reason="invoked")
    silence = _silence(prefix, suffix)
    return Gate(ask=silence is None, want=want, reason=silence or want)


def _want(prefix: str, suffix: str) -> Want:
    """A block only where one may start: an empty line with nothing right of the cursor."""
    head = prefix.rpartition("\n")[2]
    tail = suffix.partition("\n")[0]
    if head.strip() or tail.strip():
        return "line"
    return "block"


def _silence(prefix: str, suffix: str) -> str | None:
    if "\0" in prefix[-_BINARY_PROBE:] or "\0" in suffix[:_BINARY_PROBE]:
        return "binary"
    if "\0" in prefix[:_BINARY_PROBE]:
        return "binary"
    if len(prefix) + len(suffix) > MAX_CHARACTERS:
        return "huge file"
    if _IDENTIFIER.match(suffix):
        return "inside a word"
    return None
