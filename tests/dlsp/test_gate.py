"""Whether to ask, and for how much."""

from __future__ import annotations

import pytest

from dlsp.gate import MAX_CHARACTERS, decide


@pytest.mark.parametrize(
    ("prefix", "suffix", "want"),
    [
        ("def f():\n    ", "\n", "block"),
        ("def f():\n", "", "block"),
        ("", "\nx = 1\n", "block"),
        ("x = ", "\n", "line"),
        ("x = foo(", ")\n", "line"),
        ("    ", "x = 1\n", "line"),
        ("a\r\n\t", "\r\nb\r\n", "block"),
        ("func f() {\n\t", "\n}\n", "block"),
        ("func f() {", "\n}\n", "line"),
    ],
)
def test_line_or_block(prefix: str, suffix: str, want: str) -> None:
    gate = decide(prefix=prefix, suffix=suffix, language="python", invoked=False)
    assert (gate.want, invoked_want(prefix, suffix)) == (want, want)


def invoked_want(prefix: str, suffix: str) -> str:
    return decide(prefix=prefix, suffix=suffix, language=None, invoked=True).want


@pytest.mark.parametrize(
    ("prefix", "suffix", "reason"),
    [
        ("PNG\0\1", "", "binary"),
        ("x = ", "\0", "binary"),
        ("\0" + "x" * 20_000, "", "binary"),
        ("x" * MAX_CHARACTERS, "y", "huge file"),
        ("pri", "nt(x)\n", "inside a word"),
        ("é", "ét\n", "inside a word"),
    ],
)
def test_silence_unless_invoked(prefix: str, suffix: str, reason: str) -> None:
    gate = decide(prefix=prefix, suffix=suffix, language="python", invoked=False)
    assert (gate.ask, gate.reason) == (False, reason)
    asked = decide(prefix=prefix, suffix=suffix, language="python", invoked=True)
    assert (asked.ask, asked.reason) == (True, "invoked")


def test_a_common_cursor_is_asked_for() -> None:
    gate = decide(prefix="x = foo(", suffix=")\n", language="python", invoked=False)
    assert gate.ask
