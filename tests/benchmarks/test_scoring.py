"""How near a text is to the original."""

from __future__ import annotations

import pytest

from benchmarks import scoring


@pytest.mark.parametrize(
    ("one", "other", "similarity"),
    [
        ("", "", 1.0),
        ("same", "same  \n", 1.0),
        ("kitten", "sitting", 1 - 3 / 7),
        ("abc", "", 0.0),
        ("ab", "ba", 0.0),
        ("été", "ete", 1 / 3),
    ],
)
def test_edit_similarity(one: str, other: str, similarity: float) -> None:
    assert scoring.edit_similarity(one, other) == pytest.approx(similarity)
    assert scoring.edit_similarity(other, one) == pytest.approx(similarity)


@pytest.mark.parametrize(
    ("text", "original", "right"),
    [("abc", "abd", 2), ("abc", "abc", 3), ("abcd", "abc", 3), ("", "abc", 0), ("x", "abc", 0)],
)
def test_the_useful_prefix_ends_before_the_first_error(
    text: str, original: str, right: int
) -> None:
    assert scoring.useful_prefix(text, original) == right


def test_first_line_and_exact() -> None:
    assert scoring.first_line("a = 1 \nb = 2", "a = 1\nb = 3")
    assert not scoring.first_line("a = 2\nb = 2", "a = 1\nb = 2")
    assert scoring.exact("a = 1\n", "a = 1")
    assert not scoring.exact(" a = 1", "a = 1")


@pytest.mark.parametrize(
    ("program", "language", "fine"),
    [
        ("x = 1\n", "python", True),
        ("x = (1\n", "python", False),
        ("x = '\0'\n", "python", False),
        ("package a\n\nfunc f() int {\n\treturn 1\n}\n", "go", True),
        ("package a\n\nfunc f() int {\n\treturn (1\n}\n", "go", False),
        ("const x = f(1);\n", "javascript", True),
        ("const x = f(1;\n", "javascript", False),
        ("x", "no such language", False),
    ],
)
def test_parses(program: str, language: str, fine: bool) -> None:
    assert scoring.parses(program, language) is fine
