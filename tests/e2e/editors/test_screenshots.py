"""The pictures of both editors, which `make screenshots` keeps in docs/."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from PIL import Image
from playwright.sync_api import Browser

from tests.e2e.editors.conftest import SCREENSHOTS, OpenNeovim
from tests.e2e.editors.neovim import INIT
from tests.e2e.editors.picture import draw
from tests.e2e.editors.workbench import Workbench

LIMIT_BYTES = 150_000
CODE = '''\
from dataclasses import dataclass


@dataclass
class Rectangle:
    """A rectangle with its sides parallel to the axes."""

    left: float
    top: float
    right: float
    bottom: float

    def width(self) -> float:
        return self.right - self.left

    def height(self) -> float:
'''
TYPED, SHOWN = "return ", "return self.bottom - self.top"


@pytest.fixture
def keep(tmp_path: Path) -> Callable[[str], Path]:
    """Where a picture of that name goes."""
    return lambda name: (SCREENSHOTS or tmp_path) / name


def shrink(file: Path) -> None:
    """Few colours are enough for text; the picture must not be blank, and small."""
    with Image.open(file) as image:
        assert len(image.getcolors(1 << 24) or ()) > 8
        image.convert("RGB").quantize(64, dither=Image.Dither.NONE).save(file, optimize=True)
    assert os.path.getsize(file) < LIMIT_BYTES


def test_screenshot_of_vscode(workbench: Workbench, keep: Callable[[str], Path]) -> None:
    workbench.open(workbench.write("shapes.py", CODE))
    workbench.type("        " + TYPED, then="        " + SHOWN)
    workbench.page.screenshot(path=keep("vscode.png"))
    shrink(keep("vscode.png"))


@pytest.mark.parametrize("nvim", ["0.12"], indirect=True)
def test_screenshot_of_neovim(
    open_neovim: OpenNeovim, browser: Browser, keep: Callable[[str], Path]
) -> None:
    look = (
        "vim.o.number = true vim.o.laststatus = 2 vim.o.termguicolors = true\n"
        "vim.o.statusline = \" %f %m%=%{v:lua.require'dlsp'.statusline()} \"\n"
    )
    neovim = open_neovim("shapes.py", CODE, init=INIT + look)
    neovim.wait_for_client()
    neovim.terminal.press("Go")
    neovim.terminal.type(TYPED)
    neovim.terminal.shows(SHOWN)
    neovim.terminal.watch(0.5)
    draw(neovim.terminal.screen, browser, keep("neovim.png"))
    shrink(keep("neovim.png"))
