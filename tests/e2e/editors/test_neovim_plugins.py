"""The plugin beside others of Neovim that open menus and close brackets, set up as the manual says.

No package registry carries them: they run where DLSP_NVIM_PLUGINS names a folder with theirs.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.e2e.editors.conftest import NVIM_PLUGINS, OpenNeovim
from tests.e2e.editors.neovim import INIT, PLUGIN
from tests.e2e.editors.samples import PAIRS, START, WHOLE
from tests.e2e.editors.terminal import TAB

MANUAL = PLUGIN / "doc" / "dlsp.txt"
Init = Callable[[], str]
WORDS = "subtotal = 1\nsubject = 2\n"


def folder(plugin: str) -> Path:
    """Where a plugin is; skips the test where it is not."""
    if NVIM_PLUGINS is None or not (NVIM_PLUGINS / plugin).is_dir():
        pytest.skip(f"DLSP_NVIM_PLUGINS names no folder with {plugin}")
    return NVIM_PLUGINS / plugin


def recipe(plugin: str) -> str:
    """What the manual says to write for a plugin."""
    found = re.search(rf"^    -- {plugin}\n(.*?)^(?:    --|<|\S)", MANUAL.read_text(), re.S | re.M)
    assert found
    return found[1]


def blink() -> str:
    return (
        f"vim.opt.runtimepath:append('{folder('blink.cmp')}')\n"
        "require('blink.cmp').setup({ fuzzy = { implementation = 'lua' },\n"
        f"sources = {{ default = {{ 'buffer' }} }},\n{recipe('blink.cmp')} }})\n"
        "MENU = require('blink.cmp').is_visible\n"
    )


def nvim_cmp() -> str:
    return (
        f"vim.opt.runtimepath:append('{folder('nvim-cmp')}')\n"
        f"vim.opt.runtimepath:append('{folder('cmp-buffer')}')\n"
        "local cmp = require('cmp')\n"
        "cmp.register_source('buffer', require('cmp_buffer'))\n"
        f"cmp.setup({{ sources = {{ {{ name = 'buffer' }} }},\n"
        f"mapping = {{ {recipe('nvim-cmp')} }} }})\n"
        "MENU = cmp.visible\n"
    )


menus = pytest.mark.parametrize("menu", [blink, nvim_cmp])
ONLY_DLSP = "".join(INIT.splitlines(keepends=True)[:2])  # Tab is the menu's to map


@menus
def test_tab_goes_to_an_open_menu_first(open_neovim: OpenNeovim, menu: Init) -> None:
    neovim = open_neovim("words.py", WORDS, init=ONLY_DLSP + menu())
    neovim.wait_for_client()
    neovim.terminal.press("Go")
    neovim.terminal.type("sub")
    neovim.wait("MENU()")
    neovim.terminal.press(TAB)
    neovim.wait("vim.list_contains({ 'subtotal', 'subject' }, vim.api.nvim_get_current_line())")
    assert neovim.evaluate("MENU()") == "true"


@menus
def test_tab_accepts_where_no_menu_is_open(open_neovim: OpenNeovim, menu: Init) -> None:
    neovim = open_neovim("calc.py", START, init=ONLY_DLSP + menu())
    neovim.wait_for_client()
    neovim.terminal.press("Go")
    neovim.type("return ", then=WHOLE)
    neovim.terminal.press(TAB)
    assert neovim.save() == START + WHOLE + "\n"


def test_brackets_that_autopairs_closes_are_not_doubled(open_neovim: OpenNeovim) -> None:
    pairs = (
        f"vim.opt.runtimepath:append('{folder('nvim-autopairs')}')\n"
        "require('nvim-autopairs').setup({})\n"
    )
    neovim = open_neovim("calc.py", PAIRS, init=INIT + pairs)
    neovim.wait_for_client()
    neovim.terminal.press("Go")
    neovim.type("print(", then="print(product)")
    neovim.terminal.press(TAB)
    assert neovim.save() == PAIRS + "print(product)\n"
