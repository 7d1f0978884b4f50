"""A terminal's screen as a picture, drawn by the browser that the tests have anyway."""

from __future__ import annotations

from html import escape
from pathlib import Path

from playwright.sync_api import Browser
from pyte.screens import Char, Screen

_PAGE = """<body style="margin:0;background:#14161b"><pre style="display:inline-block;margin:0;
padding:14px;color:#e0e2ea;font:15px/20px 'DejaVu Sans Mono',monospace">{}</pre>"""
_NAMED = {"default": "", "brown": "#fce094", "black": "#07080d"}


def draw(screen: Screen, browser: Browser, file: Path) -> None:
    """Write the screen as a PNG."""
    rows = [
        "".join(_cell(screen.buffer[line][column]) for column in range(screen.columns))
        for line in range(screen.lines)
    ]
    page = browser.new_page(viewport={"width": 1100, "height": 700})
    page.set_content(_PAGE.format("\n".join(rows)))
    page.locator("pre").screenshot(path=file)
    page.close()


def _cell(cell: Char) -> str:
    ink, paper = _colour(cell.fg), _colour(cell.bg)
    if cell.reverse:
        ink, paper = paper or "#14161b", ink or "#e0e2ea"
    style = f"color:{ink};" * bool(ink) + f"background:{paper};" * bool(paper)
    style += "font-weight:bold;" * cell.bold
    return f'<span style="{style}">{escape(cell.data)}</span>' if style else escape(cell.data)


def _colour(name: str) -> str:
    return _NAMED.get(name, f"#{name}" if len(name) == 6 and name.isalnum() else name)
