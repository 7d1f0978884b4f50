"""Imports, enclosing headers and signatures, in several languages."""

from __future__ import annotations

import pytest

from engine.outline import Import, comment_out, imports, lead, signatures

PYTHON = '''"""Doc."""
import os
from a.b import (
    c as d,
    e,
)

LIMIT = 3


@dataclass
class Box(Base):
    """Doc."""

    size: int = 1

    @property
    def area(self,
             unit: str = "m") -> int:
        for side in range(3):
            HERE
        return 1


async def later(x):
    return x
'''
TYPESCRIPT = """import { A, b as c } from "./x";
import D from '../d.js';

export interface Pair { left: number; swap(): Pair }
export class Box<T> extends Base {
  private size = 1;
  area(unit: string): number {
    HERE
  }
}
export function later(x: number) { return x; }
"""
CPP = """#include "a/b.h"
#include <stdio.h>
namespace ns {
class Box : public Base {
public:
  int area(int unit) const {
    HERE;
  }
};
}
struct Pair { int left; };
static int later(int x) { return x; }
"""


def test_the_lead_is_imports_and_headers_as_whole_lines() -> None:
    assert lead(PYTHON, PYTHON.index("HERE"), "python") == (
        "import os\nfrom a.b import (\n    c as d,\n    e,\n)\nclass Box(Base):\n"
        '    def area(self,\n             unit: str = "m") -> int:\n'
    )
    assert lead(TYPESCRIPT, TYPESCRIPT.index("HERE"), "typescript") == (
        "import { A, b as c } from \"./x\";\nimport D from '../d.js';\n"
        "export class Box<T> extends Base {\n  area(unit: string): number {\n"
    )
    assert lead(CPP, CPP.index("HERE"), "cpp") == (
        '#include "a/b.h"\n#include <stdio.h>\nnamespace ns {\nclass Box : public Base {\n'
        "  int area(int unit) const {\n"
    )


def test_the_lead_has_only_what_stands_before() -> None:
    assert lead(PYTHON, 0, "python") == ""
    assert lead(PYTHON, PYTHON.index("LIMIT"), "python").endswith(")\n")
    assert "class Box" not in lead(PYTHON, PYTHON.index("async def"), "python")
    assert lead(PYTHON, 5, None) == lead(PYTHON, 5, "klingon") == ""
    assert lead("é = 'İ'\n" + PYTHON, 9 + PYTHON.index("HERE"), "python").endswith("-> int:\n")


def test_imports() -> None:
    assert imports(PYTHON, "python") == (
        Import(module="os"),
        Import(module="a.b", names=("c", "e")),
    )
    assert imports("from ..x import y\nimport p.q as r, s\n", "python") == (
        Import(module="..x", names=("y",)), Import(module="p.q"), Import(module="s"),
    )  # fmt: skip
    assert [found.module for found in imports(TYPESCRIPT, "typescript")] == ["./x", "../d.js"]
    assert imports(CPP, "cpp") == (Import(module="a/b.h"),)
    assert imports("package x", None) == ()


def test_signatures() -> None:
    assert [(found.name, found.text) for found in signatures(PYTHON, "python")] == [
        ("LIMIT", "LIMIT = 3"),
        (
            "Box",
            'class Box(Base):\n    size: int = 1\n    def area(self, unit: str = "m") -> int: ...',
        ),
        ("later", "async def later(x): ..."),
    ]
    assert [(found.name, found.text) for found in signatures(TYPESCRIPT, "typescript")] == [
        ("Pair", "interface Pair {\n    left: number\n    swap(): Pair\n}"),
        (
            "Box",
            "class Box<T> extends Base {\n    private size = 1\n"
            "    area(unit: string): number { ... }\n}",
        ),
        ("later", "function later(x: number) { ... }"),
    ]
    found = {each.name: each.text for each in signatures(CPP, "cpp")}
    assert found["Pair"] == "struct Pair {\n    int left;\n}"
    assert found["later"] == "static int later(int x) { ... }"


@pytest.mark.parametrize("language", ["python", "typescript", "cpp", "go", "json", "html"])
def test_broken_code_has_an_outline_too(language: str) -> None:
    for text in ("", "class (", "import from x\n}{", "def f(:\n  x", "\0é\r\n" * 50):
        signatures(text, language)
        imports(text, language)
        assert isinstance(lead(text, len(text), language), str)


@pytest.mark.parametrize(
    ("language", "expected"),
    [
        ("python", "# a\n#\n#   b\n"),
        ("typescript", "// a\n//\n//   b\n"),
        ("lua", "-- a\n--\n--   b\n"),
        ("css", "/* a */\n/* */\n/*   b */\n"),
        (None, "// a\n//\n//   b\n"),
    ],
)
def test_comments(language: str | None, expected: str) -> None:
    assert comment_out("a\n\n  b\n", language) == expected


def test_a_comment_cannot_be_ended_from_inside() -> None:
    assert comment_out("a */ b", "css") == "/* a  b */\n"
