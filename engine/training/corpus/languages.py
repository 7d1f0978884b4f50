"""The languages of the corpus: how their files are called, and how they define functions."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import PurePosixPath

_SUFFIXES = {
    "python": (".py",),
    "javascript": (".js", ".mjs", ".cjs", ".jsx"),
    "typescript": (".ts", ".tsx", ".mts", ".cts"),
    "go": (".go",),
    "rust": (".rs",),
    "java": (".java",),
    "c": (".c", ".h"),
    "cpp": (".cc", ".cpp", ".cxx", ".hpp", ".hh", ".hxx"),
}
#: All languages, in the order of the tables; shards store indices into it, so only append.
LANGUAGES = tuple(_SUFFIXES)
SUFFIXES = frozenset(suffix for suffixes in _SUFFIXES.values() for suffix in suffixes)

_OF = {suffix: name for name, suffixes in _SUFFIXES.items() for suffix in suffixes}
_CPP = re.compile(r"^\s*(namespace\b|template\s*<|class\s+\w+|using\s+\w)|std::", re.M)
# Runs are bounded: files that are not the language they seem must not cost more.
_DEFINITION = re.compile(
    r"\b(?:def|function|func|fn)\s+(?:\([^)]*\)\s*)?(\w+)"  # Python, JavaScript, Go, Rust
    r"|\b(?:const|let|var)\s+(\w+)\s*=\s*(?:async\s*)?(?:function\b|\(|\w+\s*=>)"
    r"|^[ \t]*(?:[\w<>\[\],:*&]+[ \t]+){1,6}[*&]*(\w+)\([^;{}()]{0,300}\)[^;{}()]{0,100}\{",
    re.M,
)


def language_of(path: str) -> str | None:
    """The language that a file's name implies, or None."""
    return _OF.get(PurePosixPath(path).suffix.lower())


def refined(language: str, text: str) -> str:
    """`language`, but a C header that is C++ is C++."""
    return "cpp" if language == "c" and _CPP.search(text) else language


def defined_names(language: str, text: str) -> Iterator[str]:
    """Names of the functions that `text` defines, as they are written."""
    if language == "python":
        yield from re.findall(r"\bdef\s+(\w+)\s*\(", text)
        return
    for match in _DEFINITION.finditer(text):
        yield next(name for name in match.groups() if name)
