"""What the typing benchmark types, and how it compares what was shown with the file."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.editor import Editor, Encoding, Ghost
from benchmarks.projects import SourceFile
from benchmarks.report import BenchmarkError
from benchmarks.typing import (
    Replay,
    Script,
    Shown,
    bracket_pairs,
    figures,
    judge,
    keys_of,
    replay,
    saved,
)

TEXT = "import os\n\n\ndef f(a):\n    x = foo(a, 'b')\n    return x\n"
START = TEXT.index("    x")


def script(start: int = START, end: int = TEXT.index("\n    return")) -> Script:
    file = SourceFile(project="p", name="p/a.py", language="python", text=TEXT)
    return Script(file=file, start=start, end=end)


class FakeServer:
    """Answers every request with the next word of the file, or what it was told to."""

    def __init__(self, items: list[dict[str, Any]] | None = None) -> None:
        self.items = items or []
        self.notified: list[str] = []

    async def request(self, method: str, params: Any) -> Any:
        await asyncio.sleep(0)
        if method == "dlsp/why" and not self.items:
            return {"reason": "not sure enough (0.2 < 0.5)"}
        if method == "dlsp/why":
            return {"text": self.items[0]["insertText"], "backend": "memory", "from": {"memory": 2}}
        here = {"start": params["position"], "end": params["position"]}
        return {"items": [{**item, "range": here} for item in self.items]}

    def notify(self, method: str, params: object) -> None:
        self.notified.append(method)


@given(st.text("a \n\t(", max_size=30))
def test_keys_make_the_text(text: str) -> None:
    keys = list(keys_of(text))
    assert "".join(keys) == text
    assert all(len(key) == 1 or key.strip() == "" for key in keys)


def test_only_brackets_that_the_piece_closes_are_pairs() -> None:
    text = "f(a, [b]) + '(' + g(\n"
    assert bracket_pairs(text, 0, len(text)) == {1: 8, 5: 7}
    assert bracket_pairs(text, 2, 8) == {5: 7}


def test_a_script_is_typed_as_the_file_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.typing.gap_s", lambda key, before, rng: 0.0)
    server = FakeServer()
    found = asyncio.run(replay(server, script(), random.Random(0), 0))  # type: ignore[arg-type]
    # one key for the indentation; the closers that the editor set are typed over
    assert found.keys == len("x = foo(a, 'b')") + 1
    assert (found.shown, set(found.silences)) == ([], {"not sure enough"})
    assert server.notified[0] == "textDocument/didOpen"
    assert server.notified[-1] == "textDocument/didClose"


def test_what_is_not_the_file_at_the_end_is_no_measurement(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("benchmarks.typing.gap_s", lambda key, before, rng: 0.0)
    monkeypatch.setattr("benchmarks.typing._press", lambda editor, key, closer, closes: None)
    with pytest.raises(BenchmarkError, match="not what the file says"):
        asyncio.run(replay(FakeServer(), script(), random.Random(0), 0))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "end", "right", "misplaced", "broken"),
    [
        ("oo(a, 'b')", 0, True, False, False),
        ("oo(a)", 0, False, False, False),
        ("oo(a))", 0, False, False, True),
        ("oo(a, 'b')", 3, True, True, False),
    ],
)
def test_judging(text: str, end: int, right: bool, misplaced: bool, broken: bool) -> None:
    at = TEXT.index("oo(")
    now = TEXT[:at] + TEXT[script().end :]
    found = judge(Ghost(text=text, start=at, end=at + end), script(), now, at, at)
    assert (found.right, found.misplaced) == (right, misplaced)
    assert found.broken is broken or misplaced


def shown(
    at: int, text: str, *, right: bool = True, ms: float = 10.0, memory: bool = False
) -> Shown:
    why = {"backend": "memory" if memory else "unix", "from": {"memory": 3}}
    return Shown(at=at, text=text, ms=ms, right=right, misplaced=False, broken=False, why=why)


def test_saved_counts_no_character_twice_and_the_key_that_accepts() -> None:
    found = Replay(script=script(), keys=16)
    found.shown = [
        shown(START + 4, "x = fo"),
        shown(START + 5, " = foo(a"),
        shown(START + 12, "(a"),
    ]
    assert saved(found) == 5 + 1
    found.shown = [shown(START + 4, "y", right=False)]
    assert saved(found) == 0
    found.shown = [shown(START + 4, TEXT[START + 4 :])]
    assert saved(found) == script().end - START - 4 - 1, "only what was to be typed"


def test_figures() -> None:
    found = Replay(script=script(), keys=20)
    found.shown = [shown(START, "    x", ms=200.0), shown(START + 1, "   x", ms=2.0, memory=True)]
    made = figures([found], asked=5)
    assert (made["ms_p50"], made["fresh_ms_p50"]) == (101.0, 200.0)
    assert (made["nonempty_under_100ms"], made["from_memory"]) == (0.5, 0.5)
    assert (made["requests_per_100_keys"], made["reinfill_saved"]) == (25.0, 3)
    assert (made["wrong_place"], made["new_syntax_errors"]) == (0, 0)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "utf-32"])
def test_positions_and_offsets_are_inverse(encoding: Encoding) -> None:
    text = "é = '日本😀'\r\nx\n\n\u2028\x0cy😀"
    editor = Editor(FakeServer(), "file:///a", text, encoding=encoding)
    for offset in range(len(text) + 1):
        if text[offset - 1 : offset + 1] != "\r\n":
            assert editor.offset(editor.position(offset)) == offset


def test_a_suggestion_for_a_text_that_is_gone_is_dropped_and_counted() -> None:
    async def scenario() -> None:
        editor = Editor(FakeServer([{"insertText": "x"}]), "file:///a", "", encoding="utf-16")
        asked = asyncio.ensure_future(editor.ask())
        await asyncio.sleep(0)
        editor.type("a")
        assert await asked is None
        assert editor.late == 1

    asyncio.run(scenario())


def test_closers_are_set_and_typed_over() -> None:
    editor = Editor(FakeServer(), "file:///a", "", encoding="utf-16")
    editor.type("f([")
    assert (editor.text, editor.cursor) == ("f([])", 3)
    editor.type("])")
    assert (editor.text, editor.cursor) == ("f([])", 5)
    editor.type(" don't")
    assert editor.text == "f([]) don't"
