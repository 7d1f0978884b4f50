"""Where a text holds what looks like somebody's key, token or password.

Two kinds of rule: forms that services give their keys (as they publish them for scanners), and a
quoted string of high entropy given to a name that says what it is. Placeholders do not count.
Knows text alone; free of torch, because `dlsp` imports it too.

Our own rules rather than `detect-secrets`: on 500 installed files that took thirty times as long,
what it found beyond these rules were digests (its entropy test knows no names), and it has had no
release since May 2024.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator

_PRIVATE_KEY = re.compile(
    r"-----BEGIN (?:[A-Z]+ )*PRIVATE KEY(?: BLOCK)?-----.*?(?:-----END [A-Z ]+-----|\Z)", re.S
)
_KEYS = re.compile(
    r"\b(?:AKIA|ASIA|ABIA|ACCA)[0-9A-Z]{16}\b"  # AWS
    r"|\bgh[pousr]_[A-Za-z0-9]{36,}|\bgithub_pat_\w{40,}|\bglpat-[\w-]{20,}"
    r"|\bxox[abeoprs]-[0-9A-Za-z-]{10,}|hooks\.slack\.com/services/T\w+/B\w+/\w{20,}"
    r"|\bAIza[0-9A-Za-z_-]{35}|\bya29\.[0-9A-Za-z_-]{30,}"  # Google
    r"|\b[sr]k_live_[0-9A-Za-z]{20,}"  # Stripe
    r"|\bsk-ant-[\w-]{20,}|\bsk-(?:proj-)?[A-Za-z0-9]{20}T3BlbkFJ[\w-]*"
    r"|\bSG\.[\w-]{22}\.[\w-]{43}|\bnpm_[A-Za-z0-9]{36}\b|\bpypi-AgEIcHlwaS5vcmc[\w-]{20,}"
    r"|\bhf_[A-Za-z]{34}\b|\bSK[0-9a-f]{32}\b"
    r"|\beyJ[\w-]{10,}\.eyJ[\w-]{10,}\.[\w-]{20,}"  # JSON web tokens
)
#: A line without any of these, in lower case, holds no secret; and they are quick to find.
_MARKS = (
    "akia", "asia", "abia", "acca", "ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_",
    "glpat-", "xox", "hooks.slack.com", "aiza", "ya29.", "k_live_", "sk-ant-", "t3blbkfj", "sg.",
    "npm_", "pypi-", "hf_", "sk", ".eyj", "passw", "passphrase", "secret", "token", "key",
    "credential", "://",
)  # fmt: skip
_ASSIGNED = re.compile(
    r"(?:passw(?:or)?d|passphrase|secret(?:_?key)?|token|(?:api|access|auth)_?key|credential)s?"
    r"[\"']?"
    r"\s*(?::=?|=>?|:\s*str\s*=)\s*[\"'`]([\w+/=.~!@#$%^&*-]{8,})[\"'`]",
    re.I,
)
_URL_PASSWORD = re.compile(
    r"\b[a-z][a-z+.-]+://[^\s:/@\"'<>{}$]+:([^\s:/@\"'<>{}$]{8,})@(?P<host>[\w.-]*\w)"
)
_PLACEHOLDER = re.compile(r"pass|pwd|secret|token|xxx|\*\*\*|example|change|your|dummy|test", re.I)
_MIXED = re.compile(r"[\d@!#$%^&*+=~]")
_RANDOM_CHARACTERS = 16
# Bits per character: words and identifiers lie below, random keys above (hex has four at most).
_LEAST_BITS, _LEAST_HEX_BITS = 3.7, 3.0


def holds_secret(text: str) -> bool:
    """Whether `text` seems to hold a key, token or password of somebody's."""
    return next(secret_spans(text), None) is not None


def secret_spans(text: str, *, wary: bool = False) -> Iterator[tuple[int, int]]:
    """The half-open ranges of what looks like a secret, not in order; they may overlap.

    `wary` also takes a short string with a digit or a sign in it that is given to such a name, and
    placeholders and bare hosts in addresses: for uses where a false alarm costs next to nothing.
    """
    if "PRIVATE KEY-" in text or "PRIVATE KEY BLOCK-" in text:
        yield from (found.span() for found in _PRIVATE_KEY.finditer(text))
    for start, end in _suspect_lines(text):
        yield from (found.span() for found in _KEYS.finditer(text, start, end))
        for found in _ASSIGNED.finditer(text, start, end):
            if _is_random(found[1]) or (wary and _MIXED.search(found[1])):
                yield found.span(1)
        for found in _URL_PASSWORD.finditer(text, start, end):
            # A bare host is this machine or a container: what opens those is in every manual.
            public = "." not in found["host"] or _PLACEHOLDER.search(found[1])
            if wary or not public:
                yield found.span(1)


def _suspect_lines(text: str) -> Iterator[tuple[int, int]]:
    """The lines with a mark in them, each with the next one, where an assigned value may stand."""
    lower = text.lower()
    if len(lower) != len(text):  # a few letters become two: offsets would not hold
        yield 0, len(text)
        return
    ends = {_line_end(lower, at) for mark in _MARKS for at in _all(mark, lower)}
    for end in ends:
        yield lower.rfind("\n", 0, end) + 1, _line_end(lower, end + 1)


def _all(mark: str, text: str) -> Iterator[int]:
    at = text.find(mark)
    while at >= 0:
        yield at
        at = text.find(mark, at + len(mark))


def _line_end(text: str, offset: int) -> int:
    end = text.find("\n", offset)
    return len(text) if end < 0 else end


def _is_random(value: str) -> bool:
    if len(value) < _RANDOM_CHARACTERS or _PLACEHOLDER.search(value):
        return False
    mixed = re.search(r"\d", value) and re.search(r"[A-Za-z]", value)
    least = _LEAST_HEX_BITS if re.fullmatch(r"[0-9A-Fa-f]+", value) else _LEAST_BITS
    return bool(mixed) and _bits(value) >= least


def _bits(value: str) -> float:
    """Shannon entropy per character."""
    shares = [count / len(value) for count in Counter(value).values()]
    return -sum(share * math.log2(share) for share in shares)
