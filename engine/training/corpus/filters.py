"""Which files are not worth learning from, judged by their name and their text alone.

Each test gives the reason it drops a file for, a word of `REASONS`, so that a report can count.
"""

from __future__ import annotations

import re

_MIN_BYTES, _MAX_BYTES = 400, 120_000
_LONGEST_LINE, _MEAN_LINE = 1_000, 120.0
_MOST_SIGNS, _MOST_DIGITS = 0.6, 0.3  # shares of what is not space
_WORD, _DIGIT = re.compile(r"\w+"), re.compile(r"[0-9]+")
_HEAD = 1_500

_VENDORED = re.compile(
    r"(^|/)(_?vendor(ed)?|third[-_]?party|extern(al)?s?|node_modules|bower_components|deps"
    r"|site-packages|dist-packages|Pods)(/|$)",
    re.I,
)
_TEST_DATA = re.compile(r"(^|/)(test_?data|fixtures?|__snapshots__|golden)(/|$)", re.I)
_GENERATED_NAME = re.compile(
    r"(^|/)(generated|_generated|gen|autogen|__generated__)(/|$)"
    r"|_pb2(_grpc)?\.py$|\.pb\.(go|cc|h)$|_pb\.[jt]s$|(^|/)zz_generated|bindata\.go$"
    r"|[._-]generated\.\w+$|(^|/)parser\.c$",
    re.I,
)
_GENERATED_HEAD = re.compile(
    r"(auto(matically)?[- ]?generated|code generated|generated (by|from|with|code|file)"
    r"|file (is|was|has been) generated|machine[- ]generated|do not (edit|modify)"
    r"|don't edit|@generated)",
    re.I,
)
_BUILT = re.compile(
    r"(^|/)(dist|build|built|umd|cjs|esm\d*|_?es\d*|_?cjs|_?esm|out|bundles?|lib-es\w*)/", re.I
)
_TRANSPILED = re.compile(
    r"sourceMappingURL=|exports, [\"']__esModule[\"']|\b__(awaiter|extends|spreadArray)\b"
    r"|_interopRequire|__webpack_require__|regeneratorRuntime"
)

REASONS = ("declarations", "vendored", "test data", "generated", "size", "minified", "data")


def reason_by_name(path: str) -> str | None:
    """Why a file of that path (posix, inside its package) is dropped unread, or None."""
    if path.endswith((".d.ts", ".d.mts", ".d.cts")):
        return "declarations"
    if _VENDORED.search(path):
        return "vendored"
    if _TEST_DATA.search(path):
        return "test data"
    if _GENERATED_NAME.search(path):
        return "generated"
    script = path.endswith((".js", ".mjs", ".cjs", ".jsx"))
    if script and re.search(r"[.-](min|bundle|umd|prod)\.\w+$", path):
        return "minified"
    if script and _BUILT.search(path):
        return "generated"
    return None


def reason_by_size(size: int) -> str | None:
    """Why a file of so many bytes is dropped unread, or None."""
    return None if _MIN_BYTES <= size <= _MAX_BYTES else "size"


def reason_by_text(text: str) -> str | None:
    """Why a text is dropped, or None."""
    if _GENERATED_HEAD.search(text[:_HEAD]) or _TRANSPILED.search(text):
        return "generated"
    lines = text.splitlines()
    longest = max(map(len, lines), default=0)
    if longest > _LONGEST_LINE or len(text) / max(len(lines), 1) > _MEAN_LINE:
        return "minified"
    inked = "".join(text.split())
    words, digits = len(_WORD.sub("", inked)), len(_DIGIT.sub("", inked))
    signs, numbers = words / max(len(inked), 1), 1 - digits / max(len(inked), 1)
    return "data" if signs > _MOST_SIGNS or numbers > _MOST_DIGITS else None
