"""Neovim 0.12 and 0.11 with the plugin, the real server and the real model, as a user sees them."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from tests.e2e.editors.conftest import OpenFile, OpenNeovim
from tests.e2e.editors.neovim import DISMISS, LINE, REQUEST, WORD, Neovim
from tests.e2e.editors.processes import engines
from tests.e2e.editors.samples import EMOJI, PAIRS, START, TYPESCRIPT, WHOLE
from tests.e2e.editors.terminal import ENTER, TAB
from tests.e2e.processes import alive


def offered(neovim: Neovim) -> Neovim:
    """Wait for what the last function of `START` is offered."""
    neovim.wait_for_client()
    neovim.terminal.press("Go")
    neovim.type("return ", then=WHOLE)
    return neovim


def test_three_lines_of_init_are_enough(open_neovim: OpenNeovim) -> None:
    neovim = offered(open_neovim("calc.py", START))
    assert neovim.file.read_text() == START
    neovim.terminal.press(TAB)
    assert neovim.save() == START + WHOLE + "\n"


def test_typescript(edit: OpenFile) -> None:
    neovim = edit("calc.ts", TYPESCRIPT, "setlocal expandtab shiftwidth=2")
    neovim.terminal.press("GO")
    neovim.type("return ", then="  return a - b;")
    neovim.terminal.press(TAB)
    assert neovim.save() == TYPESCRIPT[:-2] + "  return a - b;\n}\n"


def test_word_by_word(edit: OpenFile) -> None:
    neovim = offered(edit("calc.py", START))
    for ghost in (" - b", " b", ""):
        neovim.terminal.press(WORD)
        shown = neovim.terminal.watch(0.6, after=lambda _, ghost=ghost: neovim.ghost() == ghost)  # type: ignore[misc]
        assert neovim.ghost() == ghost, "the answer to what stands there now changes nothing"
        assert all(WHOLE in screen for screen in shown), "the rest was not shown all the time"
    assert neovim.save() == START + WHOLE + "\n"


def test_words_then_the_rest(edit: OpenFile) -> None:
    neovim = offered(edit("calc.py", START))
    for key in (WORD, WORD, TAB):
        neovim.terminal.press(key)
        neovim.terminal.watch(0.05)
    assert neovim.save() == START + WHOLE + "\n"


def test_accept_line(edit: OpenFile) -> None:
    neovim = offered(edit("calc.py", START))
    neovim.terminal.press(LINE)
    assert neovim.save() == START + WHOLE + "\n"


def test_typing_through_never_flickers(edit: OpenFile) -> None:
    neovim = offered(edit("calc.py", START))
    for key in "a - ":
        neovim.terminal.press(key)
        screens = neovim.terminal.watch(0.4)
        assert [screen for screen in screens if WHOLE not in screen] == []
    assert neovim.ghost() == "b"
    neovim.terminal.press(TAB)
    assert neovim.save() == START + WHOLE + "\n"


def test_what_was_typed_a_moment_ago_is_not_inserted_again(edit: OpenFile) -> None:
    neovim = offered(edit("calc.py", START))
    neovim.terminal.press("a" + TAB)
    assert neovim.save() == START + WHOLE + "\n"


def test_asked_for_by_hand(edit: OpenFile) -> None:
    neovim = offered(edit("calc.py", START))
    neovim.terminal.press(DISMISS)
    neovim.terminal.until(lambda _: neovim.ghost() == "", "no ghost text")
    neovim.terminal.press(REQUEST)
    neovim.terminal.until(lambda _: neovim.line() == WHOLE, "it is back")
    neovim.terminal.press(TAB)
    assert neovim.save() == START + WHOLE + "\n"


def test_brackets_that_a_plugin_closes_are_not_doubled(edit: OpenFile) -> None:
    neovim = edit("calc.py", PAIRS, "inoremap <buffer> ( ()<Left>")
    neovim.terminal.press("Go")
    neovim.type("print(", then="print(product)")
    neovim.terminal.press(TAB)
    assert neovim.save() == PAIRS + "print(product)\n"


def test_line_ends_of_windows(edit: OpenFile) -> None:
    neovim = offered(edit("calc.py", START.replace("\n", "\r\n")))
    neovim.terminal.press(TAB)
    assert neovim.save() == (START + WHOLE + "\n").replace("\n", "\r\n")


def test_an_emoji_before_the_cursor(edit: OpenFile) -> None:
    neovim = edit("calc.py", EMOJI)
    neovim.terminal.press("Go")
    neovim.type('return "🙂", ', then='    return "🙂", a - b')
    neovim.terminal.press(TAB)
    assert neovim.save() == EMOJI + '    return "🙂", a - b\n'


def test_escape_dismisses_and_tab_still_indents(edit: OpenFile) -> None:
    neovim = offered(edit("calc.py", START, "setlocal expandtab shiftwidth=4"))
    neovim.terminal.press(DISMISS)
    neovim.terminal.until(lambda _: neovim.line() == "    return", "no ghost text")
    neovim.normal()
    neovim.terminal.press("cc" + TAB + "x")
    assert neovim.save() == START + "    " * 2 + "x\n"


def test_leaving_insert_mode_dismisses(edit: OpenFile) -> None:
    neovim = offered(edit("calc.py", START))
    neovim.normal()
    neovim.terminal.until(lambda _: neovim.line() == "    return", "no ghost text")
    assert neovim.save() == START + "    return \n"


def test_a_menu_keeps_its_keys(edit: OpenFile) -> None:
    neovim = edit("calc.py", START + "    subtotal = a - b\n")
    neovim.terminal.press("o")
    neovim.terminal.type("sub\x0e")  # Ctrl-N: Neovim's own menu of words
    neovim.terminal.until(
        lambda _: neovim.evaluate("vim.fn.pumvisible()") == "1", "the menu is open"
    )
    before = neovim.line()
    neovim.terminal.watch(1.0)
    assert neovim.line() == before, "ghost text beside an open menu"


def test_the_server_killed_comes_back(open_neovim: OpenNeovim) -> None:
    neovim = offered(open_neovim("calc.py", START))
    [server] = neovim.servers()
    os.kill(server, signal.SIGKILL)

    def another(screen: str) -> bool:
        if "Press ENTER" in screen:  # Neovim's own word on it fills the screen
            neovim.terminal.press(ENTER)
        return not alive(server) and bool(neovim.servers() - {server})

    neovim.terminal.until(another, "there is another server")
    neovim.normal()
    neovim.wait_for_client()
    neovim.terminal.press("cc")
    neovim.type("return ", then=WHOLE)
    neovim.terminal.press(TAB)
    assert neovim.save() == START + WHOLE + "\n"


def test_two_windows_share_one_engine(
    edit: OpenFile, open_neovim: OpenNeovim, runtime: Path
) -> None:
    first, second = offered(edit("one.py", START)), offered(open_neovim("two.py", START))
    assert len(first.servers() | second.servers()) == 2
    assert len(engines(runtime)) == 1


def test_status_line_and_commands(edit: OpenFile) -> None:
    neovim = offered(edit("calc.py", START))
    neovim.terminal.until(lambda screen: " ms]" in screen, "the last latency")
    neovim.normal()
    neovim.terminal.press(":Dlsp why" + ENTER)
    neovim.terminal.shows("reason")
    neovim.terminal.press("q:Dlsp status" + ENTER)
    neovim.terminal.shows("state    ready")
    neovim.terminal.press(ENTER)
    for state in ("paused", ""):
        neovim.terminal.press(":Dlsp pause all" + ENTER)
        neovim.terminal.until(
            lambda screen, state=state: ("[dlsp paused]" in screen) == bool(state), state
        )  # type: ignore[misc]


def test_checkhealth_finds_nothing_wrong(edit: OpenFile) -> None:
    neovim = edit("calc.py", START)
    neovim.terminal.press(":checkhealth dlsp" + ENTER)
    screen = neovim.terminal.shows("is mapped")
    assert "ERROR" not in screen
    assert "WARN" not in screen
