"""Excerpts: smaller documents in which every text gets the verdict it has in the whole one."""

from __future__ import annotations

import random
import sysconfig
from collections import Counter
from pathlib import Path

import pytest

from engine import syntax
from engine.excerpt import SMALL, excerpt
from engine.grammars import grammar
from engine.readings import Hole
from tests.engine.syntax_samples import SAMPLES

_LIBRARY = Path(sysconfig.get_paths()["stdlib"])
_DAMAGE = ("(", ")", "}", '"', "\n}", "\nelse:\n    pass", "=", " if", "def f():", "class X {")


def _hole(document: str, start: int, end: int) -> Hole:
    parts = (document[:start], document[start:end], document[end:])
    prefix, text, suffix = (part.encode() for part in parts)
    return Hole(prefix=prefix, text=text, suffix=suffix)


def _holes(document: str, rng: random.Random, count: int) -> list[tuple[str, str, str]]:
    """Holes of a line or a few, filled with the true text or a damaged one."""
    lines, holes = document.split("\n"), []
    for _ in range(count):
        number = rng.randrange(len(lines))
        start = sum(len(line) + 1 for line in lines[:number])
        start += len(lines[number]) - len(lines[number].lstrip())
        end = sum(len(line) + 1 for line in lines[: number + rng.choice((1, 1, 3))]) - 1
        start, end = min(start, len(document)), min(end, len(document))
        text = document[start:end]
        choices = (text, text + rng.choice(_DAMAGE), text[: len(text) // 2], rng.choice(_DAMAGE))
        holes.append((document[:start], rng.choice(choices), document[max(start, end) :]))
    return holes


def _same_verdicts(
    holes: list[tuple[str, str, str]], language: str, patch: pytest.MonkeyPatch
) -> Counter[str]:
    """Asserts that cutting the documents changes no status; how many there were of each."""
    seen: Counter[str] = Counter()
    for prefix, text, suffix in holes:
        verdicts = []
        for cut in (excerpt, lambda _, hole: hole):
            patch.setattr(syntax, "excerpt", cut)
            verdicts.append(
                syntax.check(prefix=prefix, text=text, suffix=suffix, language=language).status
            )
        assert verdicts[0] == verdicts[1], (prefix[-200:], text, suffix[:200])
        seen[verdicts[0]] += 1
    return seen


def test_verdicts_in_real_python_files_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    rng, seen = random.Random(5), Counter[str]()
    for name in ("argparse.py", "textwrap.py", "json/decoder.py", "unittest/case.py"):
        document = (_LIBRARY / name).read_text(encoding="utf-8")
        seen += _same_verdicts(_holes(document, rng, 12), "python", monkeypatch)
    assert seen["ok"] > 10
    assert seen["broken"] > 10


@pytest.mark.parametrize(
    "language", ["javascript", "typescript", "go", "rust", "c", "cpp", "java", "ruby", "lua", "css"]
)
def test_verdicts_in_other_languages_stay(language: str, monkeypatch: pytest.MonkeyPatch) -> None:
    sample = SAMPLES[language]
    document = sample * (2 * SMALL // len(sample) + 2)
    seen = _same_verdicts(_holes(document, random.Random(3), 12), language, monkeypatch)
    assert len(seen) > 1


def test_a_large_document_shrinks_to_the_neighbours_of_the_line() -> None:
    known = grammar("python")
    assert known is not None
    methods = [f"    def m{n}(self):\n        a = {n}\n        return a\n" for n in range(600)]
    document = "import os\n\nclass A:\n" + "\n".join(methods) + "\nlast = 1\n"
    start = document.index("a = 300")
    small = excerpt(known, _hole(document, start, start + len("a = 300")))
    left = small.document.decode()
    assert small.text == b"a = 300"
    assert small.head == "        "
    assert [f"m{n}" in left for n in (298, 299, 300, 301, 302)] == [False, True, True, True, False]
    assert "class A:" in left
    assert len(left) < 500


def test_a_line_inside_a_longer_python_statement_is_judged_on_its_function() -> None:
    known = grammar("python")
    assert known is not None
    many = "def g():\n    return 1\n\n\n" * (SMALL // 20)
    prefix = many + "def f(rows):\n    found = [\n        (a, b) for a"
    suffix = "\n    ]\n    return found\n\n\n" + many
    cases = ((", b in rows", "ok"), (", b in rows]", "broken"), (", b of rows", "broken"))
    for text, status in cases:
        hole = Hole(prefix=prefix.encode(), text=text.encode(), suffix=suffix.encode())
        small = excerpt(known, hole)
        assert len(small.document) < 200
        found = syntax.check(prefix=prefix, text=text, suffix=suffix, language="python")
        assert found.status == status


def test_what_cannot_be_cut_stays_as_it_is() -> None:
    for language, document in (
        ("python", "x = 1\n" * 10),  # small
        ("json", "[\n" + "1,\n" * SMALL + "1]"),  # no list of statements
        ("go", "func f( {\n" + "x := 1\n" * SMALL),  # faulty elsewhere
        ("python", 'x = """\n' + "y = 1\n" * SMALL),  # in a string, perhaps
    ):
        known = grammar(language)
        assert known is not None
        hole = _hole(document, 20, 22)
        assert excerpt(known, hole) is hole
