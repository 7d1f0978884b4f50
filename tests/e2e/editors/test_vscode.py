"""VS Code with the packaged extension, the real server and the real model, as a user sees them."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.e2e.editors.processes import engines
from tests.e2e.editors.samples import EMOJI, PAIRS, START, TYPESCRIPT, WHOLE
from tests.e2e.editors.workbench import CodeServer, Workbench
from tests.e2e.processes import alive

OpenWorkbench = Callable[..., Workbench]


def offered(workbench: Workbench, name: str = "calc.py") -> Workbench:
    """Open the last function of `START` and wait for what it offers."""
    workbench.open(name)
    workbench.until_ready()
    workbench.type("    return ", then=WHOLE)
    return workbench


def test_type_see_accept_save(open_workbench: OpenWorkbench) -> None:
    workbench = offered(open_workbench({"calc.py": START}))
    assert (workbench.folder / "calc.py").read_text() == START
    workbench.press("Tab")
    assert workbench.save("calc.py") == START + WHOLE
    assert workbench.foreign == set()


def test_typescript_word_by_word(open_workbench: OpenWorkbench) -> None:
    workbench = open_workbench({"calc.ts": TYPESCRIPT})
    workbench.open("calc.ts")
    workbench.until_ready()
    workbench.press("ArrowUp", "ArrowUp", "End", "Enter")
    workbench.type("return ", then="  return a - b;")
    workbench.press("Control+ArrowRight", "Control+ArrowRight")
    workbench.until(lambda: "  return a - b;" in workbench.lines(), "the rest is still shown")
    workbench.press("Tab")
    assert workbench.save("calc.ts") == TYPESCRIPT[:-2] + "  return a - b;\n}\n"


def test_accept_line(open_workbench: OpenWorkbench) -> None:
    workbench = offered(open_workbench({"calc.py": START}))
    workbench.press("Control+Alt+l")
    assert workbench.save("calc.py") == START + WHOLE


def test_typing_through_never_flickers(open_workbench: OpenWorkbench) -> None:
    workbench = offered(open_workbench({"calc.py": START}))
    for key in "a - ":
        pictures = workbench.watch(lambda key=key: workbench.press(key), seconds=0.4)  # type: ignore[misc]
        assert [picture for picture in pictures if WHOLE not in picture] == []
    workbench.press("Tab")
    assert workbench.save("calc.py") == START + WHOLE


def test_brackets_that_the_editor_closes_are_not_doubled(open_workbench: OpenWorkbench) -> None:
    workbench = open_workbench({"calc.py": PAIRS})
    workbench.open("calc.py")
    workbench.until_ready()
    workbench.type("print(", then="print(product)")
    workbench.press("Tab")
    assert workbench.save("calc.py") == PAIRS + "print(product)"


@pytest.mark.parametrize(
    ("start", "typed", "whole"),
    [
        pytest.param(START.replace("\n", "\r\n"), "    return ", WHOLE, id="line ends of Windows"),
        pytest.param(EMOJI, '    return "🙂", ', '    return "🙂", a - b', id="an emoji before it"),
    ],
)
def test_positions(open_workbench: OpenWorkbench, start: str, typed: str, whole: str) -> None:
    workbench = open_workbench({"calc.py": start})
    workbench.open("calc.py")
    workbench.until_ready()
    # As a paste: VS Code would close the quotes.
    workbench.page.keyboard.insert_text(typed[:-1])
    workbench.type(typed[-1], then=whole)
    workbench.press("Tab")
    assert workbench.save("calc.py") == start + whole


def test_escape_dismisses_and_tab_still_indents(open_workbench: OpenWorkbench) -> None:
    workbench = offered(open_workbench({"calc.py": START}))
    workbench.press("Escape")
    workbench.until(lambda: WHOLE not in workbench.lines(), "no ghost text")
    workbench.press("Home", "Home", "Tab")
    assert workbench.save("calc.py") == START + "    " + "    return "


def test_the_server_killed_comes_back(
    open_workbench: OpenWorkbench, code_server: CodeServer
) -> None:
    workbench = offered(open_workbench({"calc.py": START, "next.py": START}))
    [server] = code_server.servers()
    os.kill(server, signal.SIGKILL)
    workbench.until(lambda: not alive(server), "the server is dead")
    workbench.until(lambda: len(code_server.servers()) == 1, "there is another")
    offered(workbench, "next.py")
    workbench.press("Tab")
    assert workbench.save("next.py") == START + WHOLE


def test_two_windows_share_one_engine(
    open_workbench: OpenWorkbench, code_server: CodeServer, runtime: Path
) -> None:
    for _ in range(2):
        offered(open_workbench({"calc.py": START}))
    assert len(code_server.servers()) == 2
    assert len(engines(runtime)) == 1


def test_menu_of_the_status_item(open_workbench: OpenWorkbench) -> None:
    workbench = offered(open_workbench({"calc.py": START}))
    workbench.until(lambda: workbench.status().endswith(" ms"), "the last latency")
    workbench.status_item.click()
    menu = workbench.page.locator(".quick-input-list .monaco-list-row")
    menu.filter(has_text="everywhere").click()
    workbench.until(lambda: workbench.status() == "dlsp paused", "paused")
    workbench.status_item.click()
    menu.filter(has_text="everywhere").click()
    workbench.until(lambda: "paused" not in workbench.status(), "resumed")


def test_why_and_models(open_workbench: OpenWorkbench) -> None:
    workbench = offered(open_workbench({"calc.py": START}))
    workbench.command("Why This Suggestion, or None")
    workbench.page.locator(".view-line", has_text="model:").first.wait_for()
    workbench.command("dlsp: Pick Model")
    workbench.page.locator(
        ".quick-input-list .monaco-list-row", has_text="Apache-2.0"
    ).first.wait_for()
