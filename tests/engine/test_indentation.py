"""A line of Python begins as its neighbours demand, and only where they demand it."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from engine.canvas import Canvas, Committed
from engine.choice import Chooser, Vocabulary
from engine.hole import Hole
from engine.indentation import Start, required
from engine.prompt import style_of
from engine.request import InfillRequest
from engine.tokenizer import Tokenizer
from tests.engine.tiny_base import tokenizer_json

BODY = Start(indent="        ", opens=False)
REACHED = Start(indent="        ", goes_on="        ")
OPENER = Start(indent="        ", opens=True)


@pytest.mark.parametrize(
    ("prefix", "suffix", "expected"),
    [
        ("def f(a):\n    for b in a:\n", "\n    return a\n", BODY),
        ("def f(a):\n    for b in a:\n    ", "\n    return a\n", Start(indent="    ", opens=False)),
        ("def f(a):\n    for b in a:  # all\n        # one\n", "\n    return a\n", BODY),
        ("def f(a):\n    for b in a:\n", "\n        print(b)\n", REACHED),
        ("def f(a):\n    for b in a:\n", "\n            print(b)\n    return a\n", OPENER),
        (
            "def f(a):\n    c = 1\n",
            "\n        c += 1\n    return c\n",
            Start(indent="    ", opens=True),
        ),
        ("def f(a):\n    ", "\n        c += 1\n    return c\n", Start(indent="", opens=True)),
        ("if a:\n    if b:\n        c()\n", "\n    else:\n        d()\n", BODY),
        (
            "class A:\n  def f(self):\n    pass\n  def g(self):\n",
            "\n",
            Start(indent="    ", opens=False),
        ),
        ("def f(a):\n    x = 1\n", "\n    return x\n", Start(goes_on="    ")),
        ("def f(a):\n    x = 1\n    ", "\n    return x\n", Start(goes_on="")),
        ("x = 1\n", "\ny = 2\n", Start(goes_on="")),
        ("class A:\n\tdef f(self):\n", "\n\tx = 1\n", Start(indent="\t\t", opens=False)),
    ],
)
def test_what_the_neighbours_demand(prefix: str, suffix: str, expected: Start) -> None:
    assert required(prefix, suffix, "python") == expected


@pytest.mark.parametrize(
    ("prefix", "suffix"),
    [
        ("def f(a):\n    x = 1\n", "\n"),  # nothing stands below
        ("def f(a):\n    for b in a:\n        ", "\n    return a\n"),  # the editor has indented it
        ("def f(a):\n    for b in a:\n        print(", "\n    return a\n"),  # not blank
        ("def f(a):\n    for b in a:\n", "print(b)\n"),  # not blank on the right
        ('def f(a):\n    """Sum.\n\n    Args:\n', '\n        a: it.\n    """\n    return a\n'),
        ("x = f(\n    a,\n", "\n        b,\n)\n"),  # in a bracket
        ("d = {\n    'a':\n", "\n    1}\n"),
        ("def f(a):\n    for b in a:\n", "\n    return a)\n"),  # something else is broken
        ('x = """\none\n', '\ntwo\n"""\n'),
        ("", ""),
    ],
)
def test_where_nothing_is_demanded(prefix: str, suffix: str) -> None:
    assert required(prefix, suffix, "python") is None


def test_half_a_surrogate_pair_is_no_reason_to_fail() -> None:
    prefix = 'def f(b):\n    x = "\ud800"\n    for a in b:\n'
    assert required(prefix, "\n    return 1\n", "python") == BODY


@pytest.mark.parametrize("language", ["go", "typescript", None])
def test_other_languages_are_left_alone(language: str | None) -> None:
    assert required("for b in a:\n", "\n    pass\n", language) is None


def test_which_beginnings_are_allowed() -> None:
    for text in ("", " " * 7, " " * 8, " " * 8 + "return", " " * 8 + "x"):
        assert BODY.allows(text), text
    for text in (" ", " " * 4, " " * 9, " " * 4 + "x", "x", "\n", " " * 8 + "\n"):
        assert not BODY.allows(text), text
    for text in (" " * 8 + "el", " " * 8 + "for x", " " * 8 + "else:", " " * 8 + "if(a"):
        assert OPENER.allows(text), text
    for text in (" " * 8 + "ret", " " * 8 + "form", " " * 8 + "x = 1", " " * 8 + "# if"):
        assert not OPENER.allows(text), text
    reached = Start(goes_on="    ")
    for text in ("    ", "return", " " * 8 + "return", "    retry", "    x = 1", "    if a"):
        assert reached.allows(text), text
    for text in ("    return", "    raise E", "    break", "    continue"):
        assert not reached.allows(text), text
    assert not reached.settled("    ret")
    assert reached.settled("    ret = ")
    assert BODY.settled(" " * 8 + "x")
    assert not BODY.settled(" " * 8)
    assert OPENER.settled(" " * 8 + "if ")
    assert not OPENER.settled(" " * 8 + "i")


@pytest.mark.parametrize(
    ("text", "end"),
    [
        ("if a:", 5),
        ("if a[1:2] == ':':  # so", 17),
        ("if a == '(': return", 12),
        ("for a in sorted(b, key=lambda c: c):", None),
        ("if a", None),
    ],
)
def test_the_line_that_opens_a_block_ends_at_its_colon(text: str, end: int | None) -> None:
    assert Start(indent="", opens=True).end(text) == end
    assert Start(indent="", opens=False).end(text) is None


def test_a_hole_ends_where_the_block_is_open() -> None:
    request = InfillRequest(prefix="def f(a):\n    ", suffix="\n        a()\n", language="python")
    hole = Hole.of(request).started()
    assert hole.start == Start(indent="", opens=True)
    assert hole.end("if a: return") == len("if a:")
    assert Hole.of(request).end("if a: return") is None


def test_the_likeliest_token_that_fits_is_chosen(tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_text(tokenizer_json(), encoding="utf-8")
    tokenizer = Tokenizer.from_hub(path)
    vocabulary = Vocabulary(tokenizer, style_of(tokenizer), tokenizer.size)
    request = InfillRequest(prefix="if a:\n    for b in c:\n", suffix="\n", language="python")
    hole = Hole.of(request).started()
    assert hole.start == BODY
    canvas = Canvas(tokenizer, b"")
    order = torch.Generator().manual_seed(3)
    for _ in range(12):
        logits = torch.randn(tokenizer.size, generator=order)
        chosen = Chooser(vocabulary, hole, 0.0, 0).choose(logits, canvas).token_id
        canvas.commit(Committed(token_id=chosen, source="base", forward=0, probability=1.0))
    assert canvas.text.startswith(BODY.indent)
    assert not canvas.text[len(BODY.indent)].isspace()
