"""Whether a cursor stands in a comment or a string: a scan of the text before it.

Knows how languages spell comments and strings, as regular expressions; no grammar, so it costs
little and never fails on code that is being written. Does not know what follows from it.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, Literal

Inside = Literal["comment", "string"]

# Each piece ends with its own end, or with the end of the text: group `c` for a comment, `s` for a
# string, `t` for a string with code in braces.
_SLASHES = r"//[^\n]*(?P<c1>\Z)?"
_BLOCK = r"/\*(?:[^*]|\*(?!/))*(?:\*/|(?P<c2>\Z))"
_HASH = r"\#[^\n]*(?P<c3>\Z)?"
_SPACED_HASH = r"(?<!\S)\#[^\n]*(?P<c3>\Z)?"
_DASHES = r"--(?!\[\[)[^\n]*(?P<c4>\Z)?"
_LONG_DASHES = r"--\[\[(?:[^\]]|\](?!\]))*(?:\]\]|(?P<c5>\Z))"
_MARKUP = r"<!--(?:[^-]|-(?!->))*(?:-->|(?P<c6>\Z))"
_DOUBLE = r'"(?:\\.|[^"\\\n])*(?:"|(?=\n)|(?P<s1>\Z))'
_SINGLE = r"'(?:\\.|[^'\\\n])*(?:'|(?=\n)|(?P<s2>\Z))"
_CHARACTER = r"'(?:\\[^\n']+|[^'\\\n])'"
_TEMPLATE = r"`(?:\\.|[^`\\])*(?:`|(?P<t1>\Z))"
_RAW = r"`[^`]*(?:`|(?P<s3>\Z))"
_FORMATTED = r"""(?<!\w)[rR]?[fFtT][rR]?(?:
    \"\"\"(?:\\.|[^"\\]|"(?!""))*(?:\"\"\"|(?P<t2>\Z))
  | '''(?:\\.|[^'\\]|'(?!''))*(?:'''|(?P<t3>\Z))
  | "(?:\\.|[^"\\\n])*(?:"|(?=\n)|(?P<t4>\Z))
  | '(?:\\.|[^'\\\n])*(?:'|(?=\n)|(?P<t5>\Z)))"""
_TRIPLE = r"""\"\"\"(?:\\.|[^"\\]|"(?!""))*(?:\"\"\"|(?P<s4>\Z))
  | '''(?:\\.|[^'\\]|'(?!''))*(?:'''|(?P<s5>\Z))"""


def _scanner(*pieces: str) -> re.Pattern[str]:
    return re.compile("|".join(f"(?:{piece})" for piece in pieces), re.DOTALL | re.VERBOSE)


_C = _scanner(_SLASHES, _BLOCK, _DOUBLE, _CHARACTER)
_SCRIPT = _scanner(_SLASHES, _BLOCK, _DOUBLE, _SINGLE, _TEMPLATE)
_SHELL = _scanner(_SPACED_HASH, _DOUBLE, _SINGLE)
_SCANNERS: Final[Mapping[str, re.Pattern[str]]] = MappingProxyType(
    {
        "python": _scanner(_HASH, _FORMATTED, _TRIPLE, _DOUBLE, _SINGLE),
        "javascript": _SCRIPT,
        "typescript": _SCRIPT,
        "tsx": _SCRIPT,
        "go": _scanner(_SLASHES, _BLOCK, _DOUBLE, _CHARACTER, _RAW),
        "rust": _C,
        "c": _C,
        "cpp": _C,
        "java": _C,
        "csharp": _C,
        "css": _scanner(_BLOCK, _DOUBLE, _SINGLE),
        "php": _scanner(_SLASHES, _HASH, _BLOCK, _DOUBLE, _SINGLE),
        "ruby": _SHELL,
        "bash": _SHELL,
        "yaml": _scanner(_SPACED_HASH),
        "toml": _scanner(_HASH, _TRIPLE, _DOUBLE, _SINGLE),
        "lua": _scanner(_LONG_DASHES, _DASHES, _DOUBLE, _SINGLE),
        "html": _scanner(_MARKUP),
    }
)


def inside(before: str, language: str | None) -> Inside | None:
    """What a cursor behind `before`, the text from the document's start (on LF), stands in."""
    scanner = _SCANNERS.get(language or "")
    if scanner is None:
        return None
    pieces = deque(scanner.finditer(before), maxlen=1)
    if not pieces or pieces[0].end() < len(before) or pieces[0].lastgroup is None:
        return None
    last, kind = pieces[0], pieces[0].lastgroup[0]
    if kind == "t" and _in_braces(last.group()):
        return None
    return "comment" if kind == "c" else "string"


def _in_braces(string: str) -> bool:
    """Whether an unfinished template has a brace open: there, code is written."""
    if string.startswith("`"):
        return string.rfind("${") > string.rfind("}")
    plain = string.replace("{{", "").replace("}}", "")
    return plain.rfind("{") > plain.rfind("}")
