"""Grammars: every wheel loads, names of languages, incremental parsing, a wheel that is missing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine import grammars
from engine.grammars import LANGUAGES, Grammar, grammar, language_for
from engine.syntax import check
from tests.engine.syntax_samples import SAMPLES


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_grammar_loads_and_reads_its_sample(language: str) -> None:
    known = grammar(language)
    assert known is not None
    assert known.faults(SAMPLES[language].encode()) == ()


@settings(max_examples=80, deadline=None)
@given(st.sampled_from(LANGUAGES), st.lists(st.tuples(st.integers(0, 400), st.integers(0, 30))))
def test_incremental_parsing_finds_what_parsing_from_nothing_finds(
    language: str, cuts: list[tuple[int, int]]
) -> None:
    known = grammar(language)
    assert known is not None
    document = SAMPLES[language].encode()
    for start, length in cuts:
        edited = document[:start] + document[start + length :]
        fresh = Grammar(language, known.tree(b"").language)
        assert bool(known.faults(edited)) == bool(fresh.faults(edited))


def test_brackets_are_tokens_not_text() -> None:
    known = grammar("javascript")
    assert known is not None
    document = b"f('(', `[${x}]`) // {\n"
    assert [b.char for b in known.brackets(document)] == ["(", "{", "}", ")"]


def test_a_missing_wheel_is_said_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    wheels = {**grammars._WHEELS, "cobol": ("tree_sitter_cobol_that_is_not_there", "language")}
    monkeypatch.setattr(grammars, "_WHEELS", wheels)
    grammar.cache_clear()
    for _ in range(3):
        assert check(prefix="", text="x", suffix="", language="cobol").status == "unknown"
    grammar.cache_clear()
    assert [record.getMessage()[:27] for record in caplog.records] == [
        "no syntax checks for cobol:"
    ]


@pytest.mark.parametrize(
    ("path", "language_id", "expected"),
    [
        ("a.py", None, "python"),
        ("a.tsx", "typescriptreact", "tsx"),
        ("a.jsx", "javascriptreact", "javascript"),
        ("script", "shellscript", "bash"),
        ("a.h", "cpp", "cpp"),
        ("a.h", None, "c"),
        ("C:\\x\\A.CS", None, "csharp"),
        ("dir.py/Makefile", None, None),
        ("a.go", "plaintext", "go"),
        (None, "jsonc", "json"),
        ("Gemfile", None, "ruby"),
        (None, None, None),
        ("notes.md", "markdown", None),
    ],
)
def test_language_for(path: str | None, language_id: str | None, expected: str | None) -> None:
    assert language_for(path, language_id) == expected


def test_importing_it_loads_neither_torch_nor_a_grammar() -> None:
    program = (
        "import sys, engine.syntax; "
        "sys.exit(any(name == 'torch' or name.startswith('tree_sitter_') for name in sys.modules))"
    )
    root = Path(__file__).parents[2]
    assert subprocess.run([sys.executable, "-c", program], cwd=root, check=False).returncode == 0
