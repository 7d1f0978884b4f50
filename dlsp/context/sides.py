"""The text around a cursor that is offered to the engine, which cuts it to its token budget.

Knows documents and lengths; does not know tokens, models or other files.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from lsprotocol import types as lsp

from dlsp.text.document import Document

#: Code points taken on each side of the cursor: far above any token budget, and a bound on the
#: work per request in a huge file.
SIDE_LIMIT = 100_000

_SURROGATE = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """What stands on both sides of the cursor, as in the file (line ends included)."""

    prefix: str
    suffix: str


def gather(document: Document, position: lsp.Position, *, limit: int = SIDE_LIMIT) -> Context:
    """The document's text around a position; a prefix that had to be cut starts at a line."""
    prefix, suffix = document.cut(position, limit=limit)
    if len(prefix) == limit:
        prefix = prefix[prefix.find("\n") + 1 :]
    return Context(prefix=_encodable(prefix), suffix=_encodable(suffix))


def _encodable(text: str) -> str:
    """Half a UTF-16 pair cannot travel as UTF-8; one code point replaces it, so offsets hold."""
    return _SURROGATE.sub("\ufffd", text)
