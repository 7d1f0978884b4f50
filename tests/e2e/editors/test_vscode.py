"""VS Code with the packaged extension, the real server and the real model, as a user sees them."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from tests.e2e.editors.code_server import ACCEPT_LINE
from tests.e2e.editors.conftest import OpenWorkbench
from tests.e2e.editors.processes import engines
from tests.e2e.editors.samples import EMOJI, PAIRS, START, TYPESCRIPT, WHOLE
from tests.e2e.editors.workbench import Workbench
from tests.e2e.processes import alive


def offered(workbench: Workbench, name: str) -> Path:
    """Open `START` as a new file and wait for what its last function is offered."""
    file = workbench.write(name, START)
    workbench.open(file)
    workbench.type("    return ", then=WHOLE)
    return file


def test_type_see_accept_save(workbench: Workbench) -> None:
    file = offered(workbench, "calc.py")
    assert file.read_text() == START
    workbench.accept()
    assert workbench.save(file) == START + WHOLE
    assert workbench.foreign == set()


def test_typescript_word_by_word(workbench: Workbench) -> None:
    file = workbench.write("calc.ts", TYPESCRIPT)
    workbench.open(file)
    workbench.press("ArrowUp", "ArrowUp", "End", "Enter")
    workbench.type("return ", then="  return a - b;")
    for _ in range(2):
        before = workbench.ghost()
        workbench.press("Control+ArrowRight")
        workbench.until(lambda before=before: before[1:].endswith(workbench.ghost()), "a word less")  # type: ignore[misc]
        assert workbench.ghost() != ""
        assert "  return a - b;" in workbench.lines(), "the rest is still shown"
    workbench.accept()
    assert workbench.save(file) == TYPESCRIPT[:-2] + "  return a - b;\n}\n"


def test_accept_line(workbench: Workbench) -> None:
    file = offered(workbench, "line.py")
    workbench.accept(ACCEPT_LINE)
    assert workbench.save(file) == START + WHOLE


def test_typing_through_never_flickers(workbench: Workbench) -> None:
    file = offered(workbench, "through.py")
    for key in "a - ":
        pictures = workbench.watch(lambda key=key: workbench.press(key), seconds=0.4)  # type: ignore[misc]
        assert [picture for picture in pictures if WHOLE not in picture] == []
    workbench.accept()
    assert workbench.save(file) == START + WHOLE


def test_brackets_that_the_editor_closes_are_not_doubled(workbench: Workbench) -> None:
    file = workbench.write("pairs.py", PAIRS)
    workbench.open(file)
    workbench.type("print(", then="print(product)")
    workbench.accept()
    assert workbench.save(file) == PAIRS + "print(product)"


@pytest.mark.parametrize(
    ("name", "start", "typed", "whole"),
    [
        pytest.param(
            "windows.py", START.replace("\n", "\r\n"), "    return ", WHOLE, id="line ends"
        ),
        pytest.param(
            "emoji.py", EMOJI, '    return "🙂", ', '    return "🙂", a - b', id="an emoji"
        ),
    ],
)
def test_positions(workbench: Workbench, name: str, start: str, typed: str, whole: str) -> None:
    file = workbench.write(name, start)
    workbench.open(file)
    # As a paste: VS Code would close the quotes.
    workbench.page.keyboard.insert_text(typed[:-1])
    workbench.type(typed[-1], then=whole)
    workbench.accept()
    assert workbench.save(file) == start + whole


def test_escape_dismisses_and_tab_still_indents(workbench: Workbench) -> None:
    file = offered(workbench, "escape.py")
    workbench.press("Escape")
    workbench.until(lambda: WHOLE not in workbench.lines(), "no ghost text")
    workbench.press("Home", "Home", "Tab")
    assert workbench.save(file) == START + "    " + "    return "


def test_the_server_killed_comes_back(workbench: Workbench) -> None:
    offered(workbench, "before.py")
    [server] = workbench.servers()
    os.kill(server, signal.SIGKILL)
    workbench.until(lambda: not alive(server), "the server is dead")
    workbench.until(lambda: len(workbench.servers()) == 1, "there is another")
    workbench.discard()
    file = offered(workbench, "after.py")
    workbench.accept()
    assert workbench.save(file) == START + WHOLE


def test_two_windows_share_one_engine(
    workbench: Workbench, open_workbench: OpenWorkbench, tmp_path: Path, runtime: Path
) -> None:
    offered(workbench, "first.py")
    second = open_workbench(tmp_path)
    second.until_ready()
    offered(second, "second.py")
    assert len(workbench.servers() | second.servers()) == 2
    assert len(engines(runtime)) == 1


def test_menu_of_the_status_item(workbench: Workbench) -> None:
    offered(workbench, "menu.py")
    workbench.until(lambda: workbench.status().endswith(" ms"), "the last latency")
    workbench.menu("everywhere")
    workbench.until(lambda: workbench.status() == "dlsp paused", "paused")
    workbench.until(lambda: workbench.ghost() == "", "nothing is offered")
    workbench.menu("everywhere")
    workbench.until(lambda: "paused" not in workbench.status(), "resumed")


def test_why_and_models(workbench: Workbench) -> None:
    offered(workbench, "why.py")
    workbench.command("Why This Suggestion, or None")
    workbench.page.locator(".view-line", has_text="model:").first.wait_for()
    workbench.command("dlsp: Pick Model")
    workbench.page.locator(
        ".quick-input-list .monaco-list-row", has_text="Apache-2.0"
    ).first.wait_for()
