"""The verdict: every language, only new faults, Python's own parser, spans, and cut prefixes."""

from __future__ import annotations

import ast
import random
import sysconfig
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from engine import python_syntax
from engine.grammars import LANGUAGES, grammar
from engine.syntax import MAX_BYTES, check, complete_prefix
from tests.engine.syntax_samples import HOLES, SAMPLES


def _hole(language: str) -> tuple[str, str, str]:
    """(prefix, the true rest of the line, suffix) of a sample's hole."""
    document, marker = SAMPLES[language], HOLES[language][0]
    start = document.index(marker) + len(marker)
    end = document.index("\n", start)
    return document[:start], document[start:end], document[end:]


def test_samples_cover_every_language() -> None:
    assert set(SAMPLES) == set(HOLES) == set(LANGUAGES)


@pytest.mark.parametrize("language", LANGUAGES)
def test_true_text_is_ok_and_damaged_text_is_broken(language: str) -> None:
    prefix, text, suffix = _hole(language)
    fits, damaged = HOLES[language][1] or text, HOLES[language][2]
    assert fits == text
    assert check(prefix=prefix, text=text, suffix=suffix, language=language).status == "ok"
    verdict = check(prefix=prefix, text=damaged, suffix=suffix, language=language)
    assert verdict.status == "broken"
    assert verdict.spans
    assert all(0 <= start < end <= len(damaged) for start, end in verdict.spans)


@pytest.mark.parametrize("language", ["python", "javascript", "go", "c", "rust", "java"])
def test_a_fault_elsewhere_does_not_count(language: str) -> None:
    prefix, text, suffix = _hole(language)
    broken_below = suffix + "\n)\n"
    assert check(prefix=prefix, text=text, suffix=broken_below, language=language).status == "ok"
    damaged = HOLES[language][2]
    verdict = check(prefix=prefix, text=damaged, suffix=broken_below, language=language)
    assert verdict.status == "broken"


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(LANGUAGES), st.data())
def test_any_cut_of_a_valid_document_is_ok(language: str, data: st.DataObject) -> None:
    document = SAMPLES[language]
    start = data.draw(st.integers(0, len(document)))
    end = data.draw(st.integers(start, len(document)))
    prefix, text, suffix = document[:start], document[start:end], document[end:]
    assert check(prefix=prefix, text=text, suffix=suffix, language=language).status == "ok"
    assert complete_prefix(prefix, text, suffix, language) == (text if text.strip() else "")


@given(st.text(max_size=60), st.text(max_size=60), st.text(max_size=60))
@example("", "0\x1f", "")  # white space to `str`, an error to the grammars
@example("", "x = 1\u2028", "")
@settings(max_examples=100, deadline=None)
def test_no_text_makes_it_raise_and_spans_stay_inside(prefix: str, text: str, suffix: str) -> None:
    for language in ("python", "javascript"):
        verdict = check(prefix=prefix, text=text, suffix=suffix, language=language)
        assert all(0 <= start < end <= len(text) for start, end in verdict.spans)
        assert bool(verdict.spans) == (verdict.status == "broken")


@pytest.mark.parametrize(
    ("prefix", "text", "suffix", "status"),
    [
        ("x = foo(", "a", "\ny = 1\n", "ok"),  # the user opened it and may close it later
        ("x = foo(", "a]", "\ny = 1\n", "broken"),
        ("x = foo(", "a, b)", "\ny = 1\n", "ok"),
        ("x = ", "foo(", "\ny = 1\n", "broken"),  # the text opened it
        ("x = ", "foo(", "\n    1,\n)\n", "ok"),  # the suffix closes it
        ("def f():\n    ", "if x:", "\n", "ok"),
        ("def f():\n\t", "if x:", "\n", "ok"),
        ("", "def f(a):", "\n", "ok"),
        ("", "@cache", "\n\nx = 1\n", "ok"),
        ("", "try:", "\n\nx = 1\n", "ok"),
        ("", "match x:", "\n\ny = 1\n", "ok"),
        ("def f():\n    ", "return 1", "\n", "ok"),  # the block above was just opened
        ("def f():\n    ", "return return", "\n", "broken"),
        ("if foo(", "a", "\ny=1\n", "ok"),
        ("if foo(", "x", "):\n\ny=1\n", "ok"),
        ("def f():\n    try:\n        ", "foo()", "\n\nx = 1\n", "ok"),
        ("def f():\n    try:\n        ", "foo(]", "\n\nx = 1\n", "broken"),
        ("foo(\n  a,\n  ", "b,", "\n", "ok"),
        ("foo(\n  a,\n  ", "b],", "\n", "broken"),
        ('def f():\n    """Return the ', "sum.", "\n    return 1\n", "ok"),
        ("x = 'abc", "def'", "\n", "ok"),
        ("x = 'abc", "def", "\n", "ok"),
        ("def f():\n    ", "x = 1\n  y = 2", "\n", "broken"),
        ("", "1 = 2", "\n", "broken"),  # tree-sitter is content; ast is not
        ("x = 1\n", "  y = 2", "\n", "broken"),
        ("if ", "x > 1:", "\n    y = 1\n", "ok"),  # a header above its body
        ("if ", "x > 1", "\n    y = 1\n", "broken"),
        ("print 'old'\n", "x = 1", "\n", "ok"),  # a file that did not parse before
        ("print 'old'\n", "x = = 1", "\n", "broken"),
        ("type = 1\r\nx = ", "2", "\r\ny = 3\r\n", "ok"),
        ("\ufeffx = ", "2", "\ny = 3\n", "ok"),  # behind a byte order mark
    ],
)
def test_python(prefix: str, text: str, suffix: str, status: str) -> None:
    assert check(prefix=prefix, text=text, suffix=suffix, language="python").status == status


@pytest.mark.parametrize(
    ("language", "prefix", "text", "suffix", "status"),
    [
        ("go", "package a\nfunc f() {\n\t", "if x {", "\n}\n", "ok"),
        ("go", "package a\nfunc f() {\n\t", "x := 1", "\n\nfunc g() {}\n", "ok"),
        ("go", "package a\nfunc f() {\n\t", "x := )", "\n\nfunc g() {}\n", "broken"),
        ("go", "package a\nfunc f() {\n\t", "x := foo(", "\n}\n", "broken"),
        ("go", "package a\nfunc f() {\n\tx := foo(", "a", "\n}\n", "ok"),
        ("c", "int f() {\n return x", "+ y", "\n}\n", "ok"),
        ("c", "int f() {\n ", "return y", "\n}\n", "broken"),
        ("json", '{"a": 1,\n', '"b": 2', "\n}\n", "ok"),
        ("json", '{"a": 1,\n', '"b": ]', "\n}\n", "broken"),
        ("javascript", "foo((x) => {\n  ", "y(1);", "\n", "ok"),
        ("javascript", "", "items.forEach((x) => {", "\nfoo();\n", "ok"),
        ("javascript", "foo();\n", "bar((x) => {\n  y(", "\nfoo();\n", "broken"),
        ("lua", "function f()\n  ", "x = 1", "\n", "ok"),
        ("lua", "function f()\n  ", "x = = 1", "\n", "broken"),
        ("lua", "", "function f()", "\nx = 1\n", "ok"),
        ("ruby", "def f\n  ", "x = 1", "\n", "ok"),
        ("ruby", "", "def f(a)", "\nx = 1\n", "ok"),
        ("bash", "if x; then\n", "  y", "\n", "ok"),
        ("bash", "", "for a in b; do", "\necho x\n", "ok"),
        ("css", "a {\n  ", "color: red;", "\n", "ok"),
        ("rust", "fn f() {\n    let x = foo(", "a", "\n}\n", "ok"),
        ("toml", "a = ", "= 1", "\n", "broken"),
        (
            "java",
            "class A {\n  void f() {\n    ",
            "if (x)",
            "\n      y();\n    }\n  }\n}\n",
            "broken",
        ),
        (
            "java",
            "class A {\n  void f() {\n    ",
            "if (x) {",
            "\n      y();\n    }\n  }\n}\n",
            "ok",
        ),
        ("go", "package a\nfunc f() {\n\t", "if x {{", "\n}\n", "broken"),
    ],
)
def test_while_typing(language: str, prefix: str, text: str, suffix: str, status: str) -> None:
    assert check(prefix=prefix, text=text, suffix=suffix, language=language).status == status


@pytest.mark.parametrize(
    ("prefix", "text", "failing"),
    [
        ("x = foo(", "a]", "]"),
        ("def f():\n    ", "foo(1)\n    bar(]", "]"),
        ("😀 = '😀'\nx = foo(", "'😀é' + a]", "]"),
        ("x = ", "foo(", "("),
    ],
)
def test_spans_are_narrow_and_in_code_points(prefix: str, text: str, failing: str) -> None:
    verdict = check(prefix=prefix, text=text, suffix="\n", language="python")
    assert [text[start:end] for start, end in verdict.spans] == [failing]


def test_a_fault_after_the_text_maps_to_its_last_part() -> None:
    verdict = check(prefix="x = ", text="a b = (", suffix="\ny)\n z = 1\n", language="javascript")
    assert verdict.status == "broken"
    text = "foo('bar"
    verdict = check(prefix="x = ", text=text, suffix="\ny = 1\n", language="javascript")
    assert verdict.status == "broken"
    assert verdict.spans[-1][1] <= len(text)


@pytest.mark.parametrize(
    ("text", "at", "expected"),
    [
        ("x = 1", "token", "x = 1"),
        ("x = foo(1", "token", "x = foo"),
        ("x = 1\ny = foo(", "line", "x = 1"),
        ("x = 1\ny = foo(", "token", "x = 1\ny = foo"),
        ("if a:\n    b(", "line", "if a:"),
        ("))", "token", ""),
        ("", "token", ""),
    ],
)
def test_complete_prefix(text: str, at: str, expected: str) -> None:
    cut = "line" if at == "line" else "token"
    assert complete_prefix("", text, "\n", "python", at=cut) == expected


def test_standard_library_is_never_judged_broken() -> None:
    folder = Path(sysconfig.get_paths()["stdlib"])
    rng = random.Random(7)
    files = [path for path in sorted(folder.glob("*.py")) if path.stat().st_size < 60_000]
    alarms = []
    for path in rng.sample(files, 30):
        source = path.read_text(encoding="utf-8", errors="replace")
        lines = source.split("\n")
        for _ in range(3):
            row = rng.choice([row for row, line in enumerate(lines) if line.strip()])
            column = rng.randrange(len(lines[row]))
            start = sum(len(line) + 1 for line in lines[:row]) + column
            text = lines[row][column:]
            suffix = source[start + len(text) :]
            verdict = check(prefix=source[:start], text=text, suffix=suffix, language="python")
            if verdict.status != "ok":
                alarms.append((path.name, row, column, text))
    assert alarms == []


def test_the_window_agrees_with_parsing_the_whole_file() -> None:
    source = "x = 1\n\nif x:\n    y = 2\n\n\ndef f():\n    return 3\n\n\nz = 4\n"
    known = grammar("python")
    assert known is not None
    for text in ("else:\n    y = 3\n", "q = 5\n", "elif x: pass\n", "1 = 2\n", "@f\n"):
        for at in (source.index("\ndef") - 1, 0, len(source)):
            hole = python_syntax.Hole(
                prefix=source[:at].encode(), text=text.encode(), suffix=source[at:].encode()
            )
            document = hole.document.decode()
            if python_syntax.parses_around(known, hole):
                ast.parse(document)


def test_what_cannot_be_judged_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    assert check(prefix="", text="x", suffix="", language=None).status == "unknown"
    assert check(prefix="", text="x", suffix="", language="cobol").status == "unknown"
    big = "#" * (MAX_BYTES + 1)
    assert check(prefix=big, text="x", suffix="", language="python").status == "unknown"

    def too_deep(source: bytes) -> None:
        raise RecursionError

    monkeypatch.setattr(python_syntax, "parses", too_deep)
    assert check(prefix="x = ", text="1", suffix="\n", language="python").status == "unknown"


def test_deep_nesting_does_not_raise() -> None:
    deep = "(" * 400 + "1" + ")" * 400
    assert check(prefix="x = ", text=deep, suffix="\n", language="python").status == "unknown"


def test_large_python_is_left_to_tree_sitter(monkeypatch: pytest.MonkeyPatch) -> None:
    one_statement = "x = [\n" + "    1,\n" * (python_syntax.MAX_AST_BYTES // 7 + 1)
    monkeypatch.setattr(python_syntax, "fault_in", None)
    for text, status in (("    2,", "ok"), ("    2)", "broken")):
        verdict = check(prefix=one_statement, text=text, suffix="\n]\n", language="python")
        assert verdict.status == status
