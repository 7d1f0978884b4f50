"""Texts that hold a secret: whole files are left out, nothing is masked or shown.

Two kinds of rule: forms that services give their keys (as they publish them for scanners), and a
quoted string of high entropy given to a name that says what it is. Placeholders do not count.

Our own rules rather than `detect-secrets`: on 500 installed files that took thirty times as long,
and what it found beyond these rules were digests (its entropy test knows no names).
"""

from __future__ import annotations

import math
import re
from collections import Counter

_KEYS = re.compile(
    r"-----BEGIN (?:[A-Z]+ )*PRIVATE KEY(?: BLOCK)?-----"
    r"|\b(?:AKIA|ASIA|ABIA|ACCA)[0-9A-Z]{16}\b"  # AWS
    r"|\bgh[pousr]_[A-Za-z0-9]{36}|\bgithub_pat_\w{40}|\bglpat-[\w-]{20}"
    r"|\bxox[abeoprs]-[0-9A-Za-z-]{10,}|hooks\.slack\.com/services/T\w+/B\w+/\w{20}"
    r"|\bAIza[0-9A-Za-z_-]{35}|\bya29\.[0-9A-Za-z_-]{30}"  # Google
    r"|\b[sr]k_live_[0-9A-Za-z]{20}"  # Stripe
    r"|\bsk-ant-[\w-]{20}|\bsk-(?:proj-)?[A-Za-z0-9]{20}T3BlbkFJ"
    r"|\bSG\.[\w-]{22}\.[\w-]{43}|\bnpm_[A-Za-z0-9]{36}\b|\bpypi-AgEIcHlwaS5vcmc[\w-]{20}"
    r"|\bhf_[A-Za-z]{34}\b|\bSK[0-9a-f]{32}\b"
    r"|\beyJ[\w-]{10,}\.eyJ[\w-]{10,}\.[\w-]{20,}"  # JSON web tokens
)
#: A text without any of these holds no key; a hundred times faster to see than by `_KEYS`.
_MARKS = (
    "PRIVATE KEY", "AKIA", "ASIA", "ABIA", "ACCA", "ghp_", "gho_", "ghu_", "ghs_", "ghr_",
    "github_pat_", "glpat-", "xox", "hooks.slack.com", "AIza", "ya29.", "k_live_", "sk-ant-",
    "T3BlbkFJ", "SG.", "npm_", "pypi-", "hf_", "SK", ".eyJ",
)  # fmt: skip
_ASSIGNED = re.compile(
    r"(?:passw(?:or)?d|passphrase|secret(?:_?key)?|token|(?:api|access|auth)_?key|credential)s?"
    r"[\"']?"
    r"\s*(?::=?|=>?|:\s*str\s*=)\s*[\"'`]([\w+/=.~!@#$%^&*-]{16,})[\"'`]",
    re.I,
)
_URL_PASSWORD = re.compile(
    r"\b[a-z][a-z+.-]+://[^\s:/@\"'<>{}$]+:([^\s:/@\"'<>{}$]{8,})@[\w.-]+\.\w"
)
_PLACEHOLDER = re.compile(r"pass|pwd|secret|token|xxx|\*\*\*|example|change|your|dummy|test", re.I)
# Bits per character: words and identifiers lie below, random keys above (hex has four at most).
_LEAST_BITS, _LEAST_HEX_BITS = 3.7, 3.0


def holds_secret(text: str) -> bool:
    """Whether `text` seems to hold a key, token or password of somebody's."""
    if any(mark in text for mark in _MARKS) and _KEYS.search(text):
        return True
    if any(_is_random(found) for found in _ASSIGNED.findall(text)):
        return True
    return any(not _PLACEHOLDER.search(found) for found in _URL_PASSWORD.findall(text))


def _is_random(value: str) -> bool:
    mixed = re.search(r"\d", value) and re.search(r"[A-Za-z]", value)
    least = _LEAST_HEX_BITS if re.fullmatch(r"[0-9A-Fa-f]+", value) else _LEAST_BITS
    return bool(mixed) and not _PLACEHOLDER.search(value) and _bits(value) >= least


def _bits(value: str) -> float:
    """Shannon entropy per character."""
    shares = [count / len(value) for count in Counter(value).values()]
    return -sum(share * math.log2(share) for share in shares)
