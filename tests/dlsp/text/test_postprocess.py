"""Each step has its table; then the whole way, with the verdict at its end."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlsp.text.indent import drop_repeated, in_unit, unit_of
from dlsp.text.lines import to_lf
from dlsp.text.overlap import (
    closed_by,
    closers_right_of,
    cut_end_mark,
    cut_following_lines,
    cut_rest_of_line,
    open_at_end,
    repeats_neighbour,
)
from dlsp.text.postprocess import Finished, Place, finish, only_wanted, trimmed, whole_words
from engine.request import Want
from engine.syntax import check


@pytest.mark.parametrize(
    ("text", "suffix", "expected"),
    [
        ("x, b)", "b)\n", "x, "),
        ("a + b", " + b\n", "a"),
        ("a, b)", ")\n", "a, b)"),  # closers are weighed by syntax, not cut here
        ("foo(self.na", "self.name)\n", "foo(self.na"),  # an unfinished name is not a repeat
        ("x", "\n", "x"),
        ("x", "y\n", "x"),
        ("total, total)", "total)\n", "total, "),
    ],
)
def test_cut_rest_of_line(text: str, suffix: str, expected: str) -> None:
    assert cut_rest_of_line(text, suffix) == expected


@pytest.mark.parametrize(
    ("text", "prefix", "suffix", "expected"),
    [
        ("x = 1\n    return x", "    ", "\n    return x\n", "x = 1"),
        ("x = 1\n\n    return x", "    ", "\n\n    return x\n", "x = 1"),
        ("x = 1\n    y = 2\n    ret", "    ", "\n    y = 2\n    return x\n", "x = 1"),
        ("return x", "    ", "\n    return x\n", ""),
        ("return x", "        ", "\n    return x\n", "return x"),  # another depth
        ("x()\n}", "", "\n}\n", "x()\n}"),  # a closer may be due twice
        ("x = 1\ny = 2", "", "\ny = 2\nz = 3\n", "x = 1"),
        ("x = 1", "", "", "x = 1"),
        ("b)\nc = 1", "a(", ")\nc = 1\n", "b)\nc = 1"),  # something is right of the cursor
    ],
)
def test_cut_following_lines(text: str, prefix: str, suffix: str, expected: str) -> None:
    assert cut_following_lines(text, prefix, suffix) == expected


@pytest.mark.parametrize(
    ("text", "prefix", "suffix", "expected"),
    [
        ("x = 1", "x = 1\n", "\n", True),
        ("x = 1", "    x = 1\n\n    ", "\n", True),
        ("1", "x = 1\nx = ", "\n", True),
        ("x = 2", "x = 1\n", "\n", False),
        ("}", "}\n", "\n", False),
        ("end", "  end\n", "\n", False),
        ("y = 2", "x\n", "\n\ny = 2\n", True),
        ("a = 1\nb = 2", "a = 1\nb = 2\n", "\n", True),
    ],
)
def test_repeats_neighbour(text: str, prefix: str, suffix: str, expected: bool) -> None:
    assert repeats_neighbour(text, prefix, suffix) is expected


@pytest.mark.parametrize(
    ("text", "prefix", "expected"),
    [
        ("    return 1", "def f():\n    ", "return 1"),
        ("return 1", "def f():\n    ", "return 1"),
        (" return 1", "x = 1\n    ", "return 1"),
        ("    return 1", "def f():\n", "    return 1"),
        ("        y = 1", "x = 1\n    ", "    y = 1"),
        ("    return 1", "    def f():\n    ", "    return 1"),  # the block lies deeper
        (" 1", "x =", " 1"),
        ("\treturn", "func f() {\n\t", "return"),
        ("    a()\n    b()", "x\n    ", "a()\n    b()"),
    ],
)
def test_drop_repeated_indentation(text: str, prefix: str, expected: str) -> None:
    assert drop_repeated(text, prefix) == expected


@pytest.mark.parametrize(
    ("text", "prefix", "expected"),
    [
        ("if x {\n    y()\n}", "func f() {\n\tz()\n", "if x {\n\ty()\n}"),
        ("if x:\n\ty()", "def f():\n  z()\n", "if x:\n  y()"),
        ("if x:\n    y()", "def f():\n    z()\n", "if x:\n    y()"),
        ("if x:\n\ty()", "", "if x:\n\ty()"),
        ("x {\n  y {\n    z\n  }\n}", "a {\n\tb\n}\n", "x {\n\ty {\n\t\tz\n\t}\n}"),
    ],
)
def test_indentation_in_the_files_unit(text: str, prefix: str, expected: str) -> None:
    assert in_unit(text, prefix, "") == expected


@pytest.mark.parametrize(
    ("document", "unit"),
    [
        ("a\n\tb\n", "\t"),
        ("a\n  b\n    c\n", "  "),
        ("a\n    b\n        c\n", "    "),
        ("a\nb\n", None),
    ],
)
def test_unit_of(document: str, unit: str | None) -> None:
    assert unit_of(document, "") == unit


@pytest.mark.parametrize(
    ("text", "head", "closed"),
    [
        ("a, b)", "foo(", ")"),
        ("a[0], f(x))", "foo(", ")"),
        ("x)]", "[foo(", ")]"),
        ("a']", "x['", "']"),
        ("a\\'b'", "x = '", "'"),
        ("')'", "foo(", ""),
        ("a, b", "foo(", ""),
    ],
)
def test_closed_by(text: str, head: str, closed: str) -> None:
    assert closed_by(text, head) == closed


def test_open_at_end_and_closers_right() -> None:
    assert open_at_end("x = [foo(a, 'b") == "')]"
    assert open_at_end("foo(a)[") == "]"
    assert closers_right_of(")]; x\n") == ")]"
    assert closers_right_of("\n)") == ""


@pytest.mark.parametrize(
    ("text", "suffix", "expected"),
    [
        ("1, 2];", "];\n", "1, 2]"),
        ("1;", ";\n", "1"),
        (" == 1:", ":\n", " == 1"),
        ("'a': 1,", "},\n", "'a': 1"),
        ("i < n;", "; i++) {\n", "i < n;"),  # the line goes on behind it
        ("1;", ")\n", "1;"),
        ("1", ";\n", "1"),
        ("1;", "\n", "1;"),
    ],
)
def test_cut_end_mark(text: str, suffix: str, expected: str) -> None:
    assert cut_end_mark(text, suffix) == expected


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("self.assertEq", "self."),
        ("foo(bar, ba", "foo(bar,"),
        ("return va", "return"),
        ("value", "value"),  # all there is
        ("foo(a)", "foo(a)"),
        ("x = 1\n    y = fo", "x = 1"),
        ("\n    y = fo", "\n    y ="),
        ("", ""),
    ],
)
def test_whole_words(text: str, kept: str) -> None:
    assert whole_words(text) == kept


def test_what_time_cut_short_is_shown_in_whole_words() -> None:
    place = Place(prefix="x = ", suffix="\n", language="python")
    assert finish("foo(a) + ba", place, want="line", cut_short=True).text == "foo(a)"
    assert finish("foo(a) + ba", place, want="line").text == "foo(a) + ba"


@pytest.mark.parametrize(
    ("language", "name", "text", "prefix", "suffix", "expected"),
    [
        ("python", "closers", "a, b)", "x = foo(", ")\n", "x = foo(a, b)\n"),
        ("python", "dictionary", "'b': 2}", "x = {", "}\n", "x = {'b': 2}\n"),
        ("python", "colon", " > 1:", "if x", ":\n    pass\n", "if x > 1:\n    pass\n"),
        ("python", "tabs", "if a:\n        b()", "if x:\n\ty()\n\t", "\n",
         "if x:\n\ty()\n\tif a:\n\t\tb()\n"),
        ("javascript", "call", "a, b);", "f(", ");\n", "f(a, b);\n"),
        ("javascript", "arrow", " return 1; }", "f(() => {", "});\n", "f(() => { return 1; });\n"),
        ("javascript", "template", "${a}`;", "x = `", "`;\n", "x = `${a}`;\n"),
        ("typescript", "type", "string>;", "let x: Array<", ">;\n", "let x: Array<string>;\n"),
        ("go", "block", "return 1\n}", "package a\n\nfunc f() int {\n\t", "\n}\n",
         "package a\n\nfunc f() int {\n\treturn 1\n}\n"),
        ("rust", "macro", '"{}", x);', "fn f() {\n    println!(", ");\n}\n",
         'fn f() {\n    println!("{}", x);\n}\n'),
        ("c", "index", "i];", "int f() {\n  return a[", "];\n}\n",
         "int f() {\n  return a[i];\n}\n"),
        ("cpp", "initialiser", "1, 2};", "int a[] = {", "};\n", "int a[] = {1, 2};\n"),
        ("java", "string", 'b");', 'class A { void f() { g("', '"); } }\n',
         'class A { void f() { g("b"); } }\n'),
        ("csharp", "call", "x);", "class A { void F() { G(", "); } }\n",
         "class A { void F() { G(x); } }\n"),
        ("ruby", "end", "x + 1\nend", "def f(x)\n  ", "\nend\n", "def f(x)\n  x + 1\nend\n"),
        ("php", "call", "$x);", "<?php\nf(", ");\n", "<?php\nf($x);\n"),
        ("lua", "end", "return 1\nend", "function f()\n  ", "\nend\n",
         "function f()\n  return 1\nend\n"),
        ("bash", "fi", "echo a\nfi", "if x; then\n  ", "\nfi\n", "if x; then\n  echo a\nfi\n"),
        ("json", "list", "1, 2]", '{"a": [', "]}\n", '{"a": [1, 2]}\n'),
        ("css", "rule", "color: red;\n}", "a {\n  ", "\n}\n", "a {\n  color: red;\n}\n"),
    ],
)  # fmt: skip
def test_in_place_by_language(
    language: str, name: str, text: str, prefix: str, suffix: str, expected: str
) -> None:
    want: Want = "block" if "\n" in text else "line"
    finished = _finish(text, prefix, suffix, language, want)
    assert prefix + finished.text + suffix[finished.replace_after :] == expected, name
    crlf = _finish(
        text.replace("\n", "\r\n"), prefix.replace("\n", "\r\n"), suffix.replace("\n", "\r\n"),
        language, want,
    )  # fmt: skip
    assert (crlf.text, crlf.replace_after) == (finished.text, finished.replace_after)


def test_small_steps() -> None:
    assert to_lf("a\r\nb\rc\n") == "a\nb\nc\n"
    assert only_wanted("a\nb", "line") == "a"
    assert only_wanted("a\nb", "block") == "a\nb"
    assert trimmed("a  ", "\n") == "a"
    assert trimmed("a, ", "b)\n") == "a, "
    assert trimmed("a\n   \nb\n\n", "") == "a\n\nb"


def _finish(
    text: str, prefix: str, suffix: str, language: str | None, want: Want = "line"
) -> Finished:
    place = Place(prefix=to_lf(prefix), suffix=to_lf(suffix), language=language)
    return finish(text, place, want=want)


@pytest.mark.parametrize("language", ["python", None])
@pytest.mark.parametrize(
    ("text", "prefix", "suffix", "expected", "replace_after"),
    [
        ("a, b)", "x = foo(", ")\n", "a, b", 0),
        ("a, b", "x = foo(", ")\n", "a, b", 0),
        ("a) + b", "x = foo(", ")\n", "a) + b", 1),
        ("x)", "foo(bar(", ")\n", "x)", 0),  # both are due
        ('abc"', 'x = "', '"\n', "abc", 0),
        ("a']", "x['", "']\n", "a", 0),
        ("a, 'b': 2}", "x = {'c': ", "}\n", "a, 'b': 2", 0),
        ("1]", "x = [", "]\r\n", "1", 0),
    ],
)
def test_exactly_one_closer_remains(
    language: str | None, text: str, prefix: str, suffix: str, expected: str, replace_after: int
) -> None:
    finished = _finish(text, prefix, suffix, language)
    assert (finished.text, finished.replace_after) == (expected, replace_after)
    whole = prefix + finished.text + suffix[finished.replace_after :]
    assert check(prefix="", text=whole, suffix="", language="python").status == "ok"


@pytest.mark.parametrize(
    ("text", "prefix", "suffix", "language", "expected"),
    [
        ("if (x) {\n    y();\n  }\n}", "function f() {\n  ", "\n}\n", "javascript",
         "if (x) {\n    y();\n  }"),
        ("x()\ny()\n}", "function f() {\n\t", "\n}\n", "javascript", "x()\ny()"),
        ("if x {\n    y()\n}", "package a\n\nfunc f() {\n\tz()\n\t", "\n}\n", "go",
         "if x {\n\ty()\n}"),
        ("x = 1\ny = foo(", "", "\n", "python", "x = 1"),  # cut shorter once
        ("x = 1\r\ny = 2\r\n", "", "\r\n", "python", "x = 1\ny = 2"),
        ("x = 1\n    return 1", "def f():\n    ", "\n    return 1\n", "python", "x = 1"),
    ],
)  # fmt: skip
def test_blocks(text: str, prefix: str, suffix: str, language: str, expected: str) -> None:
    assert _finish(text, prefix, suffix, language, "block").text == expected


@pytest.mark.parametrize(
    ("text", "prefix", "suffix", "want", "dropped"),
    [
        ("", "", "", "line", "empty"),
        ("   \n  ", "", "", "block", "empty"),
        ("\nx = 1", "", "", "line", "empty"),
        ("return 1", "def f():\n    ", "\n    return 1\n", "line", "repeats what follows"),
        ("a = 1", "a = 1\n", "\n", "line", "repeats a line beside it"),
        ("x = )", "", "\n", "line", "breaks the syntax"),
        ("x = foo(\nbar]", "", "\n", "block", "breaks the syntax"),
    ],
)
def test_what_is_dropped_says_why(
    text: str, prefix: str, suffix: str, want: Want, dropped: str
) -> None:
    finished = _finish(text, prefix, suffix, "python", want)
    assert (finished.text, finished.replace_after, finished.dropped) == ("", 0, dropped)
    assert (finished.verdict.status == "broken") == (dropped == "breaks the syntax")


def test_a_comment_does_not_swallow_the_closers_on_the_right() -> None:
    finished = _finish("1, 2)) # 1", "print(f(", "))\n", "python")
    assert (finished.text, finished.replace_after) == ("1, 2)) # 1", 2)
    finished = _finish('"#") + ("x"', "x = (", ")\n", "python")
    assert (finished.text, finished.replace_after) == ('"#") + ("x"', 0)


def test_what_is_kept_is_ok_and_says_nothing() -> None:
    finished = _finish("return a + b", "def f(a, b):\n    ", "\n", "python")
    assert finished.verdict.status == "ok"
    assert finished.dropped is None


@settings(max_examples=150, deadline=None)
@given(
    st.text("ab(){}[]'\"\n\r\t :=", max_size=20),
    st.text("ab(){}[]'\"\n\r\t :=", max_size=20),
    st.text("ab(){}[]'\"\n\r\t :=", max_size=20),
    st.sampled_from(["python", "javascript", None]),
    st.sampled_from(["line", "block"]),
)
def test_anything_in_keeps_the_promises_out(
    text: str, prefix: str, suffix: str, language: str | None, want: Want
) -> None:
    finished = _finish(text, prefix, suffix, language, want)
    assert "\r" not in finished.text
    assert want == "block" or "\n" not in finished.text
    assert finished.verdict.status != "broken" or not finished.text
    assert bool(finished.text) == (finished.dropped is None)
    assert finished.text.strip() or not finished.text
    line = to_lf(suffix).partition("\n")[0]
    assert 0 <= finished.replace_after <= len(line)
