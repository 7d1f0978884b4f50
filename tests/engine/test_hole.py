from __future__ import annotations

import pytest

from engine.hole import Hole, unix
from engine.request import InfillRequest


def _hole(prefix: str, suffix: str = "", want: str = "line", stop: tuple[str, ...] = ()) -> Hole:
    return Hole.of(InfillRequest(prefix=prefix, suffix=suffix, want=want, stop=stop))  # type: ignore[arg-type]


def _filled(hole: Hole, text: str) -> str:
    """The text returned when the model goes on to write `text`, a character at a time."""
    for end in range(len(text) + 1):
        at = hole.end(text[:end])
        if at is not None:
            return hole.finish(text[:at])
    return hole.finish(text)


@pytest.mark.parametrize(
    ("prefix", "suffix", "word", "left", "right"),
    [
        ("a\nx = pri", "nt(y)\nz", "nt", "x = pri", "(y)"),
        ("x = ", "foo", "", "x = ", "foo"),
        ("x = f(", ")\n", "", "x = f(", ")"),
        ("", "word", "", "", "word"),
        ("nam", "e_2", "e_2", "nam", ""),
        ("größ", "e = 1", "e", "größ", " = 1"),
        ("a\r\nb", "\r\nc", "", "b", ""),
    ],
)
def test_around_the_cursor(prefix: str, suffix: str, word: str, left: str, right: str) -> None:
    hole = _hole(prefix, suffix)
    assert (hole.word, hole.left, hole.right) == (word, left, right)
    assert hole.prefix + hole.word + hole.suffix == unix(prefix + suffix)


@pytest.mark.parametrize(
    ("prefix", "suffix", "blank"),
    [
        ("x\n", "\ny", True),
        ("x\n    ", "  \ny", True),
        ("", "", True),
        ("x = ", "\n", False),
        ("    ", ")\n", False),
        ("x\r\n", "\r\ny", True),
    ],
)
def test_blank(prefix: str, suffix: str, blank: bool) -> None:
    assert _hole(prefix, suffix).blank is blank


@pytest.mark.parametrize(
    ("prefix", "suffix", "text", "expected"),
    [
        # the line ends at its newline
        ("x = ", "\ny", "1\nz", "1"),
        ("x = ", "", "1", "1"),
        ("x = ", "\n", "\nmore", ""),
        # a blank line must speak: white space before the words does not end it
        ("if a:\n    ", "\n", "return 1\nb", "return 1"),
        ("if a:\n", "\n", "\n\n    return 1\nb", "\n\n    return 1"),
        ("if a:\n", "\n", "   \n", ""),
        # a split word must be completed, and is not returned twice
        ("pri", "nt(x)\n", "nt(x)", ""),
        ("x = my_", "name\n", "first_name\n", "first_"),
        ("x = my_", "name", "first_name", "first_"),
        ("x = my_", "name\n", "names_name + 1", "names_"),
        ("x = my_", "name\n", "other\n", ""),
        # what stands right of the cursor is not repeated
        ("print(", ")\n", "x)", "x"),
        ("print(", ")\n", "x))\n", "x)"),
        ("print(", ")\n", "f(x)", "f(x)"),
        ("print(", ")\n", "f(x))\n", "f(x)"),
        ("print(", " )\n", "x )", "x"),
        ("a[", "]:\n", "i]:", "i"),
        ("x = ", " + 1\n", "y + 1\n", "y"),
        ("print(", ")\n", ")", ""),
        ("x = ", "\n", "   \n", ""),
    ],
)
def test_a_line(prefix: str, suffix: str, text: str, expected: str) -> None:
    assert _filled(_hole(prefix, suffix), text) == expected


@pytest.mark.parametrize(
    ("prefix", "suffix", "text", "expected"),
    [
        # before the first line that is indented less than the first
        ("def f():\n    ", "\n", "a = 1\n    return a\n\ndef g():\n", "a = 1\n    return a"),
        ("def f():\n", "\n", "    a = 1\n    return a\nx = 2\n", "    a = 1\n    return a"),
        ("    ", "\n", "if a:\n        b\n    c\nd\n", "if a:\n        b\n    c"),
        ("\t", "\n", "a\n\tb\n  c\n", "a\n\tb"),
        # blank lines belong to the block, not behind its end
        ("    ", "\n", "a\n\n    b\n\n\nc\n", "a\n\n    b"),
        # a header just written: its body is the block, and brackets close in its column
        ("def f():", "\n", "\n    return 1\nx = 2\n", "\n    return 1"),
        ("x = f(", "\n", "\n    a,\n    b,\n)\ny\n", "\n    a,\n    b,\n)"),
        ("func f() {", "\n", "\n\treturn 1\n}\nfunc g() {\n", "\n\treturn 1\n}"),
        ("    return a", "\n", "\n\nclass B:\n", ""),
        # a bracket that closes further left than the block began ends it
        ("func f() {\n\t", "\n", "return 1\n}\n", "return 1"),
        # before a repetition of the suffix
        ("a = 1\n", "\nprint(a)\n", "b = 2\nprint(a)\nc", "b = 2"),
        ("    x = 1\n    ", "\n    return x\n", "y = 2\n    return x\n", "y = 2"),
        # too short a line to be told from chance
        ("for (;;) {\n  ", "\n}\n", "a();\n  b();\n  }\n  c();\n", "a();\n  b();\n  }\n  c();\n"),
        # text right of the cursor: one line only
        ("f(", ")\n", "a\nb", "a"),
    ],
)
def test_a_block(prefix: str, suffix: str, text: str, expected: str) -> None:
    assert _filled(_hole(prefix, suffix, want="block"), text) == expected


def test_a_block_does_not_end_at_a_partial_line_that_may_still_be_indented() -> None:
    hole = _hole("    ", "\n", want="block")
    for text in ("a\n", "a\n  ", "a\n    "):
        assert hole.end(text) is None


@pytest.mark.parametrize("want", ["line", "block"])
def test_stop_strings(want: str) -> None:
    hole = _hole("x = ", "\n", want=want, stop=(";", "\r\n#"))
    assert _filled(hole, "1; y") == "1"
    assert _filled(_hole("x = ", "\n", want="block", stop=("\r\n#",)), "1\n# no") == "1"


def test_an_empty_stop_string_stops_nothing() -> None:
    assert _filled(_hole("x = ", "\n", stop=("",)), "123\n") == "123"


@pytest.mark.parametrize("want", ["line", "block"])
def test_crlf_is_read_as_lf(want: str) -> None:
    crlf = _hole("if a:\r\n    ", "\r\nprint(a)\r\n", want=want)
    assert crlf == _hole("if a:\n    ", "\nprint(a)\n", want=want)
    assert "\r" not in crlf.prefix + crlf.suffix + crlf.right
    assert _hole("a\rb", "\rc").prefix == "a\nb"


def test_the_first_end_counts() -> None:
    assert _hole("x = my_", "name\n", stop=("_",)).end("first_name\n") == len("first")
