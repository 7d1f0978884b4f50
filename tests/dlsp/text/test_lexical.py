"""Comments and strings, by language."""

from __future__ import annotations

import pytest

from dlsp.text.lexical import inside


@pytest.mark.parametrize(
    ("language", "before", "expected"),
    [
        ("python", "x = 1  # why", "comment"),
        ("python", "x = 1  # why\n", None),
        ("python", "x = '#", "string"),
        ("python", "x = '#'", None),
        ("python", "x = '#' + ", None),
        ("python", 'x = "it\\"s', "string"),
        ("python", 'x = "unfinished\ny = ', None),
        ("python", 'def f():\n    """Says\n    what', "string"),
        ("python", 'def f():\n    """Says."""\n    ', None),
        ("python", "'''a \"\"\" b''' + ", None),
        ("python", 'f"{x.', None),
        ("python", 'f"a {x} b', "string"),
        ("python", 'f"{{a', "string"),
        ("python", 'rf"""\n{x.', None),
        ("python", 'if"a', "string"),
        ("python", "r'\\'", "string"),
        ("python", "# don't\nx = ", None),
        ("javascript", "x = 1 // why", "comment"),
        ("javascript", "/* a\n b", "comment"),
        ("javascript", "/* a */ x", None),
        ("javascript", "/** a *", "comment"),
        ("javascript", "x = `a ${b", None),
        ("javascript", "x = `a ${b} c\n", "string"),
        ("javascript", "u = 'http://x'; y", None),
        ("typescript", "import x from '", "string"),
        ("go", "s := `raw\n", "string"),
        ("go", "r := '\"'; x", None),
        ("go", "// it's\nx", None),
        ("rust", "fn f<'a>(x: &'a str", None),
        ("rust", 'println!("{', "string"),
        ("c", "char c = '\\''; int x", None),
        ("c", '#include "', "string"),
        ("cpp", "a /* b */ + c // d", "comment"),
        ("java", '"a" + "', "string"),
        ("csharp", "/// <summary>", "comment"),
        ("ruby", "x = 'a' # b", "comment"),
        ("ruby", 'x = "#{a', "string"),
        ("bash", "echo $# ", None),
        ("bash", "echo ${#x} ", None),
        ("bash", "ls # all", "comment"),
        ("lua", "--[[ a\nb", "comment"),
        ("lua", "--[[ a ]] x", None),
        ("lua", "x = 1 -- b", "comment"),
        ("yaml", "a: b#c", None),
        ("yaml", "a: b # c", "comment"),
        ("toml", "a = '#' # b", "comment"),
        ("css", "a { /* b", "comment"),
        ("css", "#id { color: ", None),
        ("html", "<!-- a", "comment"),
        ("html", "<!-- a --><p>it's ", None),
        ("php", "$a = 1; # b", "comment"),
        ("json", '{"a": "', None),  # all of it is strings
        (None, "# a", None),
    ],
)
def test_inside(language: str | None, before: str, expected: str | None) -> None:
    assert inside(before, language) == expected


def test_a_long_text_is_scanned_once() -> None:
    before = ('x = "a" * 2  # b\n' + "'''c\n\"\n'''\n") * 20_000
    assert inside(before, "python") is None
    assert inside(before + "'''", "python") == "string"
