"""What a line of a document is, and its end. Light to import: the command line counts lines too.

Knows text only.
"""

from __future__ import annotations

import re

# str.splitlines also splits at form feeds, U+2028 and more, which editors do not: the mirror
# would drift from the editor's text at the first edit behind one.
_LINE = re.compile(r"[^\r\n]*(?:\r\n|\n|\r)|[^\r\n]+")


def split_lines(text: str) -> list[str]:
    """Lines with their ends, split at LF, CRLF and CR only; no empty last line."""
    return _LINE.findall(text)


def to_lf(text: str) -> str:
    """Line ends as LF."""
    return text.replace("\r\n", "\n").replace("\r", "\n")
