"""Neovim 0.12 and 0.11 with the plugin, the real server and the real model, as a user sees them."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from tests.e2e.editors.conftest import OpenNeovim
from tests.e2e.editors.neovim import INIT, Neovim
from tests.e2e.editors.processes import engines
from tests.e2e.editors.samples import EMOJI, PAIRS, START, TYPESCRIPT, WHOLE
from tests.e2e.editors.terminal import ENTER, ESCAPE, TAB
from tests.e2e.processes import alive

KEYS = """\
vim.keymap.set('i', '<C-L>', '<Plug>(dlsp-accept-word)')
vim.keymap.set('i', '<C-J>', '<Plug>(dlsp-accept-line)')
vim.keymap.set('i', '<C-G>', '<Plug>(dlsp-request)')
vim.keymap.set('i', '<C-E>', '<Plug>(dlsp-dismiss)')
"""
WORD, LINE, REQUEST, DISMISS = "\x0c", "\n", "\x07", "\x05"


def offered(neovim: Neovim) -> Neovim:
    """Open the last function of `START` and wait for what it offers."""
    neovim.wait_for_client()
    neovim.terminal.press("Go")
    neovim.type("return ", then=WHOLE)
    return neovim


def test_three_lines_of_init_are_enough(open_neovim: OpenNeovim) -> None:
    neovim = offered(open_neovim("calc.py", START))
    assert neovim.file.read_text() == START
    neovim.terminal.press(TAB)
    assert neovim.save() == START + WHOLE + "\n"


def test_typescript(open_neovim: OpenNeovim) -> None:
    indent = "vim.o.expandtab = true vim.o.shiftwidth = 2\n"
    neovim = open_neovim("calc.ts", TYPESCRIPT, init=INIT + indent)
    neovim.wait_for_client()
    neovim.terminal.press("GO")
    neovim.type("return ", then="  return a - b;")
    neovim.terminal.press(TAB)
    assert neovim.save() == TYPESCRIPT[:-2] + "  return a - b;\n}\n"


def test_word_by_word(open_neovim: OpenNeovim) -> None:
    neovim = offered(open_neovim("calc.py", START, init=INIT + KEYS))
    for ghost in (" - b", " b", ""):
        neovim.terminal.press(WORD)
        shown = neovim.terminal.watch(1.0)
        assert neovim.ghost() == ghost
        assert all(WHOLE in screen for screen in shown), "the rest was not shown all the time"
    assert neovim.save() == START + WHOLE + "\n"


def test_words_then_the_rest(open_neovim: OpenNeovim) -> None:
    neovim = offered(open_neovim("calc.py", START, init=INIT + KEYS))
    for key in (WORD, WORD, TAB):
        neovim.terminal.press(key)
        neovim.terminal.watch(0.05)
    assert neovim.save() == START + WHOLE + "\n"


def test_accept_line(open_neovim: OpenNeovim) -> None:
    neovim = offered(open_neovim("calc.py", START, init=INIT + KEYS))
    neovim.terminal.press(LINE)
    assert neovim.save() == START + WHOLE + "\n"


def test_typing_through_never_flickers(open_neovim: OpenNeovim) -> None:
    neovim = offered(open_neovim("calc.py", START))
    for key in "a - ":
        neovim.terminal.press(key)
        screens = neovim.terminal.watch(0.4)
        assert [screen for screen in screens if WHOLE not in screen] == []
    assert neovim.ghost() == "b"
    neovim.terminal.press(TAB)
    assert neovim.save() == START + WHOLE + "\n"


def test_what_was_typed_a_moment_ago_is_not_inserted_again(open_neovim: OpenNeovim) -> None:
    neovim = offered(open_neovim("calc.py", START))
    neovim.terminal.press("a" + TAB)
    assert neovim.save() == START + WHOLE + "\n"


def test_brackets_that_a_plugin_closes_are_not_doubled(open_neovim: OpenNeovim) -> None:
    pairs = "vim.keymap.set('i', '(', '()<Left>')\n"
    neovim = open_neovim("calc.py", PAIRS, init=INIT + pairs)
    neovim.wait_for_client()
    neovim.terminal.press("Go")
    neovim.type("print(", then="print(product)")
    neovim.terminal.press(TAB)
    assert neovim.save() == PAIRS + "print(product)\n"


def test_line_ends_of_windows(open_neovim: OpenNeovim) -> None:
    neovim = offered(open_neovim("calc.py", START.replace("\n", "\r\n")))
    neovim.terminal.press(TAB)
    assert neovim.save() == (START + WHOLE + "\n").replace("\n", "\r\n")


def test_an_emoji_before_the_cursor(open_neovim: OpenNeovim) -> None:
    neovim = open_neovim("calc.py", EMOJI)
    neovim.wait_for_client()
    neovim.terminal.press("Go")
    neovim.type('return "🙂", ', then='    return "🙂", a - b')
    neovim.terminal.press(TAB)
    assert neovim.save() == EMOJI + '    return "🙂", a - b\n'


def test_escape_dismisses_and_tab_still_indents(open_neovim: OpenNeovim) -> None:
    tabs = "vim.o.expandtab = true vim.o.shiftwidth = 4\n"
    neovim = offered(open_neovim("calc.py", START, init=INIT + KEYS + tabs))
    neovim.terminal.press(DISMISS)
    neovim.terminal.until(lambda _: neovim.line() == "    return", "no ghost text")
    neovim.terminal.press(ESCAPE)
    neovim.terminal.watch(0.2)
    neovim.terminal.press("cc" + TAB + "x")
    assert neovim.save() == START + "    " * 2 + "x\n"


def test_a_menu_keeps_its_keys(open_neovim: OpenNeovim) -> None:
    neovim = open_neovim("calc.py", START + "    subtotal = a - b\n", init=INIT)
    neovim.wait_for_client()
    neovim.terminal.press("o")
    neovim.terminal.type("sub\x0e")  # Ctrl-N: Neovim's own menu of words
    neovim.terminal.until(
        lambda _: neovim.evaluate("vim.fn.pumvisible()") == "1", "the menu is open"
    )
    before = neovim.line()
    neovim.terminal.watch(1.5)
    assert neovim.line() == before, "ghost text beside an open menu"


def test_the_server_killed_comes_back(open_neovim: OpenNeovim) -> None:
    neovim = offered(open_neovim("calc.py", START))
    server = neovim.server_id()
    os.kill(server, signal.SIGKILL)
    neovim.terminal.until(lambda _: not alive(server), "the server is dead")
    if "Press ENTER" in neovim.terminal.shows("quit with"):  # Neovim's own word on it
        neovim.terminal.press(ENTER)
    neovim.wait_for_client()
    neovim.terminal.press(ESCAPE)
    neovim.terminal.watch(0.2)
    neovim.terminal.press("cc")
    neovim.type("return ", then=WHOLE)
    assert neovim.server_id() != server
    neovim.terminal.press(TAB)
    assert neovim.save() == START + WHOLE + "\n"


def test_two_windows_share_one_engine(open_neovim: OpenNeovim, runtime: Path) -> None:
    first, second = (offered(open_neovim(name, START)) for name in ("one.py", "two.py"))
    assert first.server_id() != second.server_id()
    assert len(engines(runtime)) == 1


def test_status_line_and_commands(open_neovim: OpenNeovim) -> None:
    line = "vim.o.laststatus = 2 vim.o.statusline = \"[%{v:lua.require'dlsp'.statusline()}]\"\n"
    neovim = offered(open_neovim("calc.py", START, init=INIT + line))
    neovim.terminal.shows("[dlsp")
    neovim.terminal.press(ESCAPE)
    neovim.terminal.watch(0.2)
    neovim.terminal.press(":Dlsp why" + ENTER)
    neovim.terminal.shows("reason")
    neovim.terminal.press("q:Dlsp status" + ENTER)
    neovim.terminal.shows("state    ready")


def test_checkhealth_finds_nothing_wrong(open_neovim: OpenNeovim) -> None:
    neovim = open_neovim("calc.py", START)
    neovim.wait_for_client()
    neovim.terminal.press(":checkhealth dlsp" + ENTER)
    screen = neovim.terminal.shows("is mapped")
    assert "ERROR" not in screen
    assert "WARN" not in screen
