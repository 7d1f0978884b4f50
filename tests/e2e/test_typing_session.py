"""What users report of completion tools, as cases through the real server, in two encodings.

The numbers are those of a list of failures seen in other tools. A document is written with `|` for
the cursor; the engine is scripted, so what is under test is everything around it.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import pytest_asyncio

from benchmarks.editor import INVOKED, Editor, Encoding, Ghost, initialize_params
from dlsp.commands.rpc_child import RpcChild
from tests.e2e.test_lsp_session import free_port, wait_until_ready

FAKE = Path(__file__).parent / "scripted_fim.py"
ENCODINGS: tuple[Encoding, ...] = ("utf-8", "utf-16")

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest.fixture(scope="module")
def engine_url() -> Iterator[str]:
    port = free_port()
    process = subprocess.Popen([sys.executable, str(FAKE), str(port)])
    try:
        wait_until_ready(f"http://127.0.0.1:{port}")
        yield f"http://127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()


class Stage:
    """A server, its scripted engine, and documents to type into."""

    def __init__(self, server: RpcChild, url: str, encoding: Encoding) -> None:
        self.server, self._url, self.encoding = server, url, encoding
        self._opened = 0

    def script(self, ends: dict[str, str], **more: float) -> None:
        httpx.post(f"{self._url}/script", json={"ends": ends, **more}, trust_env=False)

    @property
    def requests(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = httpx.get(f"{self._url}/requests", trust_env=False).json()
        return found

    def open(self, marked: str, name: str = "a.py", language: str = "python") -> Editor:
        before, _, after = marked.partition("|")
        self._opened += 1
        uri = f"file:///stage/{self._opened}/{name}"
        editor = Editor(self.server, uri, before + after, encoding=self.encoding, language=language)
        editor.go(len(before))
        return editor


@pytest_asyncio.fixture(loop_scope="module", scope="module", params=ENCODINGS)
async def stage(engine_url: str, request: pytest.FixtureRequest) -> AsyncIterator[Stage]:
    """One server for all cases of an encoding."""
    server = await RpcChild.start((sys.executable, "-P", "-m", "dlsp", "lsp"), {})
    try:
        options = {"engineUrl": engine_url, "deadlineMs": 5000, "developer": {"scorecard": False}}
        await server.request("initialize", initialize_params(request.param, options))
        server.notify("initialized", {})
        yield Stage(server, engine_url, request.param)
        await server.request("shutdown", None)
        server.notify("exit", None)
        await asyncio.wait_for(server.wait(), 10)
    finally:
        server.abandon()


def put(editor: Editor, ghost: Ghost | None) -> str:
    """The document with the suggestion accepted; as it is without one."""
    return editor.text if ghost is None else editor.with_accepted(ghost)


#: (number, name of file, language, document, what the engine says, document accepted)
PLACES = [
    (1, "a.py", "python", "print(|)\n", "x, y)", "print(x, y)\n"),
    (1, "a.py", "python", "print(f(|))\n", "x)) + 1", "print(f(x)) + 1\n"),
    (1, "a.js", "javascript", "f(function () {|})\n", " return 1 }",
     "f(function () { return 1 })\n"),
    (1, "a.go", "go", 'package a\n\nvar x = []string{"|"}\n', 'b", "c"}',
     'package a\n\nvar x = []string{"b", "c"}\n'),
    (1, "a.ts", "typescript", "const x = [|];\n", "1, 2];", "const x = [1, 2];\n"),
    (1, "a.rs", "rust", "fn main() {\n    println!(|);\n}\n", '"{}", x);',
     'fn main() {\n    println!("{}", x);\n}\n'),
    (2, "a.py", "python", "def f(a):\n    |\n    return a\n", "a += 1\n    return a\n",
     "def f(a):\n    a += 1\n    return a\n"),
    (2, "a.py", "python", "x = 1\n|\ny = 2\n", "y = 2", "x = 1\n\ny = 2\n"),
    (2, "a.js", "javascript", "a();\n|\nb();\n", "a();", "a();\n\nb();\n"),
    (4, "a.py", "python", "def f(a):\n    |\n", "    return a", "def f(a):\n    return a\n"),
    (4, "a.py", "python", "def f(a):\n|", "    return a", "def f(a):\n    return a"),
    (4, "a.go", "go", "package a\n\nfunc f() {\n\t|\n}\n", "\treturn\n",
     "package a\n\nfunc f() {\n\treturn\n}\n"),
    (5, "a.py", "python", "if x:\n\ty()\n|\n", "if z:\n    w()\n", "if x:\n\ty()\nif z:\n\tw()\n"),
    (5, "a.js", "javascript", "if (x) {\n  y();\n}\n|\n", "if (z) {\n\tw();\n}\n",
     "if (x) {\n  y();\n}\nif (z) {\n  w();\n}\n"),
    (6, "a.py", "python", "def f(a):\r\n    |\r\n    return a\r\n", "a += 1\n    return a\n",
     "def f(a):\r\n    a += 1\r\n    return a\r\n"),
    (6, "a.py", "python", "x = 1\r\n|\r\ny = 2\n", "y = 2\r\n", "x = 1\r\n\r\ny = 2\n"),
    (7, "a.py", "python", "é = '日本😀' + |\n", "'b'", "é = '日本😀' + 'b'\n"),
    (7, "a.py", "python", "f('😀', |)\n", "'😀')", "f('😀', '😀')\n"),
    (19, "a.py", "python", "x = | + one\n", "y + one", "x = y + one\n"),
    (25, "a.py", "python", "def g(:\n    pass\n\n\nx = |\n", "f(1)",
     "def g(:\n    pass\n\n\nx = f(1)\n"),
    (25, "a.py", "python", "def g(:\n    pass\n\n\nx = |\n", "f(1]]",
     "def g(:\n    pass\n\n\nx = \n"),
    (26, "a.py", "python", "def f():\n    x = |\n", "1 if y else", "def f():\n    x = \n"),
    (9, "a.py", "python", "x = |", "1", "x = 1"),
]  # fmt: skip


async def test_accepted_in_place(stage: Stage) -> None:
    wrong: list[tuple[int, str, str]] = []
    for number, name, language, marked, text, expected in PLACES:
        stage.script({marked.partition("|")[0].replace("\r\n", "\n")[-8:]: text,
                      marked.partition("|")[0][-8:]: text})  # fmt: skip
        editor = stage.open(marked, name, language)
        ghost = await editor.ask(trigger=INVOKED)
        assert len(stage.requests) == 1
        if put(editor, ghost) != expected:
            wrong.append((number, marked, put(editor, ghost)))
    assert wrong == []


async def test_what_was_just_accepted_is_not_offered_again(stage: Stage) -> None:
    """Case 3."""
    stage.script({"x = ": "foo(é)", "foo(é)": "\nx = foo(é)"})
    editor = stage.open("y = 1\nx = |\n")
    ghost = await editor.ask()
    assert ghost is not None
    editor.accept(ghost)
    assert (editor.text, editor.cursor) == ("y = 1\nx = foo(é)\n", len("y = 1\nx = foo(é)"))
    assert await editor.ask() is None


async def test_the_suggestion_stays_while_it_is_typed(stage: Stage) -> None:
    """Cases 1 and 13: every key agrees, closers are set by the editor, nobody is asked again."""
    said = "max(é, [1], 'a')"
    stage.script({"x = ": said})
    editor = stage.open("x = |\n")
    whole = "x = " + said + "\n"
    for key in said:
        ghost = await editor.ask()
        assert ghost is not None
        assert editor.with_accepted(ghost) == whole
        editor.type(key)
    assert editor.text == whole
    assert len(stage.requests) == 1


async def test_words_and_lines_of_it_are_accepted(stage: Stage) -> None:
    said = "for é in items:\n        print(é)\n    return items"
    stage.script({"    ": said})
    editor = stage.open("def f(items):\n    |\n")
    whole = "def f(items):\n    " + said + "\n"
    for length in (3, 2, len(said.partition("\n")[0]) - 5, 9):
        ghost = await editor.ask()
        assert ghost is not None
        assert editor.with_accepted(ghost) == whole
        editor.accept_part(ghost, length)
    editor.backspace(4)
    ghost = await editor.ask()
    assert ghost is not None, "taking back what was accepted is no departure"
    assert editor.with_accepted(ghost) == whole
    assert len(stage.requests) == 1


async def test_departing_and_coming_back(stage: Stage) -> None:
    stage.script({"x = ": "foo(1)", "q": "", "foo(": "2)"})
    editor = stage.open("x = |\n")
    assert await editor.ask() is not None
    editor.type("q")
    assert await editor.ask() is None
    assert stage.requests[-1]["dlsp"]["guess"] == "foo(1)"
    editor.backspace()
    editor.type("f")
    ghost = await editor.ask()
    assert ghost is not None
    assert ghost.text == "oo(1)"
    assert len(stage.requests) == 2


async def test_a_key_during_flight_drops_what_comes_and_keeps_it(stage: Stage) -> None:
    """Case 14, and an editor that sends its next request late."""
    stage.script({"x = ": "foo(1)"}, delay_s=1.5)
    editor = stage.open("x = a|\n")
    editor.backspace()
    flying = asyncio.ensure_future(editor.ask(trigger=INVOKED))
    await editor.settle(lambda: bool(stage.requests))
    editor.type("f")
    assert await flying is None
    assert editor.late == 0, "the server is to drop it, not the editor"
    ghost = await editor.ask()
    assert ghost is not None
    assert editor.with_accepted(ghost) == "x = foo(1)\n"
    assert len(stage.requests) == 1
    editor.backspace(2)
    assert await editor.ask() is None


async def test_an_item_selected_in_the_list_is_extended(stage: Stage) -> None:
    """Case 15."""
    stage.script({"print": "('é')", "pri": "vate"})
    editor = stage.open("é = 'é'; pri|\n")
    start = editor.cursor - 3
    ghost = await editor.ask(selected=(start, editor.cursor, "print"))
    assert ghost == Ghost(text="print('é')", start=start, end=editor.cursor,
                          suggestion_id=ghost.suggestion_id if ghost else None)  # fmt: skip


async def test_silence_where_nobody_wants_it(stage: Stage) -> None:
    """Cases 16 and 17, comments and strings: quiet, unless asked by hand."""
    stage.script({"": "anything()"})

    def deleted(editor: Editor) -> None:
        editor.backspace()

    def undone(editor: Editor) -> None:
        editor.replace(editor.cursor - 4, editor.cursor, "")
        editor.replace(editor.cursor, editor.cursor, "bc =")

    def composed(editor: Editor) -> None:
        editor.replace(editor.cursor, editor.cursor, "k")
        editor.replace(editor.cursor - 1, editor.cursor, "か")

    def nothing(editor: Editor) -> None:
        editor.type("a")

    for marked, act, reason in (
        ("abc = |\n", deleted, "after a deletion"),
        ("abc =|\n", undone, "after an undo"),
        ("abc = |\n", composed, "an input method composes"),
        ("# é|\n", nothing, "in a comment"),
        ("x = 'é|'\n", nothing, "in a string"),
    ):
        editor = stage.open(marked)
        act(editor)
        assert await editor.ask() is None, marked
        assert (await editor.why())["reason"] == reason
        asked = len(stage.requests)
        await editor.ask(trigger=INVOKED)
        assert len(stage.requests) == asked + 1, marked


async def test_a_commit_ends_the_composition(stage: Stage) -> None:
    """Case 16."""
    stage.script({"か": " + 1", "か ": "+ 1"})
    editor = stage.open("x = |\n")
    editor.replace(editor.cursor, editor.cursor, "k")
    editor.replace(editor.cursor - 1, editor.cursor, "か")
    assert await editor.ask() is None
    editor.type(" ")
    ghost = await editor.ask()
    assert ghost is not None
    assert editor.with_accepted(ghost) == "x = か + 1\n"


async def test_the_same_prefix_with_another_suffix(stage: Stage) -> None:
    """Case 18."""
    stage.script({"    ": "return a"})
    editor = stage.open("def f(a):\n    |\n    b = 1\n")
    assert await editor.ask(trigger=INVOKED) is not None
    here = editor.cursor
    start = editor.text.index("b = 1")
    editor.replace(start, start + 5, "return a")
    editor.go(here)
    assert await editor.ask(trigger=INVOKED) is None, "the line below says it now"
    assert len(stage.requests) == 2


async def test_the_mood_decides_how_sure_a_suggestion_must_be(stage: Stage) -> None:
    for mood, shown in (("quiet", False), ("eager", True), ("balanced", True)):
        settings = {"dlsp": {"mood": mood}}
        stage.server.notify("workspace/didChangeConfiguration", {"settings": settings})
        stage.script({"x = ": "1"}, confidence=0.7)
        editor = stage.open("x = |\n")
        assert (await editor.ask() is not None) is shown, mood


async def test_a_mid_line_hole_never_spills_over_lines(stage: Stage) -> None:
    stage.script({"f(": "a,\n  b", "x = ": "1\ny = 2"})
    for marked in ("f(|)\n", "x = |\n", "x = | + 1\n"):
        editor = stage.open(marked)
        ghost = await editor.ask(trigger=INVOKED)
        assert ghost is None or "\n" not in ghost.text
        wants = {request["dlsp"]["want"] for request in stage.requests}
        assert wants == {"line"}


async def test_by_untitled_names_and_odd_paths(stage: Stage) -> None:
    """Cases 10 and 11."""
    stage.script({"x = ": "1"})
    for uri in (
        "untitled:Untitled-1",
        "file:///c%3A/My%20Code/%5Ba%5D/%C3%A9.py",
        "file:///C:/My Code/[a]/é.py",
        "vscode-notebook-cell:/a/b.ipynb#W0sZmlsZQ%3D%3D",
    ):
        editor = Editor(stage.server, uri, "x = ", encoding=stage.encoding, language="python")
        ghost = await editor.ask(trigger=INVOKED)
        assert ghost is not None, uri
        assert editor.with_accepted(ghost) == "x = 1"
