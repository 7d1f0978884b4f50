"""A window of VS Code as its user has it: a browser, keys, what stands on page and disk."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import httpx
from playwright.sync_api import Browser, Locator, Page

from tests.e2e.editors.code_server import DISCARD, NEW_FILE, PATIENCE_S, CodeServer

#: Nothing but the loopback exists for this browser.
BROWSER = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1, EXCLUDE localhost",
)


class Workbench:
    """One window with one folder, or with a workspace of several."""

    def __init__(self, browser: Browser, server: CodeServer, target: Path) -> None:
        self.folder = target if target.is_dir() else target.parent
        self._server = server
        self._others = server.servers()
        self.page: Page = browser.new_page(viewport={"width": 1000, "height": 560})
        self.page.set_default_timeout(PATIENCE_S * 1000)
        self.foreign: set[str] = set()
        self.page.on("request", lambda request: self._note(request.url))
        self.page.goto(server.address(target), wait_until="commit")
        self.page.wait_for_selector(".monaco-workbench")

    def _note(self, url: str) -> None:
        host = httpx.URL(url).host
        if url.startswith(("http", "ws")) and host not in ("127.0.0.1", "localhost"):
            self.foreign.add(host)

    def servers(self) -> set[int]:
        """The process ids of its language servers, and of those of windows opened later."""
        return self._server.servers() - self._others

    def write(self, name: str, text: str) -> Path:
        """Put a new file into the folder; no two have one name, so that none is mistaken."""
        file = self.folder / name
        with file.open("xb") as new:
            new.write(text.encode())
        return file

    def open(self, file: Path) -> None:
        """Open a file and put the cursor at its end."""
        self.press("Control+p")
        self._choose(file.name, wanted=str(file))
        self._opened(file.name)
        self.press("Control+End")

    def open_notebook(self, file: Path, *, cell: int) -> None:
        """Open a notebook and put the cursor at the end of one of its cells, counted from 0."""
        self.press("Control+p")
        self._choose(file.name, wanted=str(file))
        self.page.locator(f".tab.active[data-resource-name='{file.name}']").wait_for()
        self.page.locator(".notebookOverlay .cell-editor-part .view-lines").nth(cell).click()
        self.page.locator(".notebookOverlay .monaco-editor.focused").wait_for()
        self.press("Control+End")

    def new_file(self) -> None:
        """Open a file that has no place on the disk, in Python."""
        self.press(NEW_FILE)
        self._opened("Untitled-1")

    def _opened(self, name: str) -> None:
        self.page.locator(f".tab.active[data-resource-name='{name}']").wait_for()
        self.page.locator(".editor-instance .monaco-editor.focused").wait_for()

    def discard(self) -> None:
        """Close every editor; what is not saved is lost."""
        tabs = self.page.locator(".tab")
        while count := tabs.count():
            self.press("Escape", DISCARD)
            self.until(lambda count=count: tabs.count() < count, "an editor is closed")  # type: ignore[misc]

    def press(self, *keys: str) -> None:
        """Press keys, by the names that the browser has for them."""
        for key in keys:
            self.page.keyboard.press(key)

    def type(self, text: str, *, then: str) -> None:
        """Type, and wait until a line reads, with its ghost text, as given."""
        self.page.keyboard.type(text, delay=30)
        self.until(lambda: then in self.lines() and self.ghost() != "", f"{then!r} is offered")

    def accept(self, key: str = "Tab") -> None:
        """Press a key that takes all of what is shown, and wait until that is so."""
        self.press(key)
        self.until(lambda: self.ghost() == "", "no ghost text")

    def lines(self) -> list[str]:
        """The lines of the editor as they stand on the page, ghost text included."""
        found: list[str] = self.page.evaluate(_LINES)
        return found

    def ghost(self) -> str:
        """The ghost text on the page."""
        found: str = self.page.evaluate(_GHOST)
        return found

    def watch(self, act: Callable[[], None], *, seconds: float) -> list[list[str]]:
        """Every picture of the editor's lines that was painted while acting and then."""
        self.page.evaluate(_START_WATCH)
        act()
        self.page.wait_for_timeout(seconds * 1000)
        pictures: list[list[str]] = self.page.evaluate(_END_WATCH)
        assert len(pictures) > 1
        return pictures

    def until(self, seen: Callable[[], bool], what: str, *, patience_s: float = PATIENCE_S) -> None:
        """Wait until something is so; fails with what the page shows."""
        until = time.monotonic() + patience_s
        while not seen():
            if time.monotonic() > until:
                raise AssertionError(f"{what}: not within {patience_s:g} s; {self._told()}")
            self.page.wait_for_timeout(30)

    def _told(self) -> str:
        """What the page shows, and what the server says of its last answer; keeps a picture."""
        self.page.screenshot(path=self.folder / "failed.png")
        label = self.status_item.locator("a").first.get_attribute("aria-label")
        focus = self.page.evaluate("() => document.activeElement?.className")
        shown = f"status {label!r}; focus {focus!r}; ghost text {self.ghost()!r}; the page has\n"
        before = "\n".join(self.lines())
        self.command("Why This Suggestion, or None")
        self.page.wait_for_timeout(3000)
        return shown + before + "\nand then\n" + "\n".join(self.lines())

    @property
    def status_item(self) -> Locator:
        """The extension's item in the status bar."""
        return self.page.locator(".statusbar-item[id$='dlsp.status']")

    def status(self) -> str:
        """What the status item says."""
        found = self.status_item
        return (found.text_content() or "").strip() if found.count() else ""

    def until_ready(self, *, patience_s: float = 2 * PATIENCE_S) -> None:
        """Wait until VS Code's own start is over and the server says that the model is ready."""
        # What is typed before that may go without an answer.
        self.until(lambda: bool(self.page.evaluate(_STARTED)), "VS Code has started")
        label = self.page.locator("[aria-label^='dlsp ready'], [aria-label^='dlsp busy']")
        self.until(lambda: label.count() > 0, "the server is ready", patience_s=patience_s)

    def save(self, file: Path) -> str:
        """Save the active file and return what is on the disk, line ends untouched."""
        # The mark goes once the file is whole on the disk; its time of change is earlier.
        dirty = self.page.locator(".tab.active.dirty")
        dirty.wait_for()
        self.press("Control+s")
        dirty.wait_for(state="detached")
        return file.read_bytes().decode()

    def command(self, title: str) -> None:
        """Run a command by its title in the palette."""
        self.press("F1")
        self._choose(title, wanted=f">{title}")

    def menu(self, entry: str) -> None:
        """Choose from the status item's menu."""
        self.status_item.click()
        self._choose(entry, wanted=entry)

    def _choose(self, entry: str, *, wanted: str) -> None:
        """Write into the quick input, and take the entry once it is the chosen one."""
        self.page.locator(".quick-input-widget input").fill(wanted)
        chosen = ".quick-input-list .monaco-list-row.focused"
        self.page.locator(chosen, has_text=entry).first.wait_for()
        self.press("Enter")

    def close(self) -> None:
        """Close the window, as a user does: what is not saved is lost."""
        servers = self.servers()
        self.page.close()
        self._server.until_gone(servers)


#: The lines of the editor, or of each cell of a notebook, from top to bottom, with ordinary blanks.
_LINES = """() => [...document.querySelectorAll(
    '.editor-instance .view-line, .notebookOverlay .view-line')]
  .sort((a, b) => parseFloat(a.style.top) - parseFloat(b.style.top))
  .map(line => line.textContent.replace(/\\u00a0|\\u00b7/g, ' ').replace(/\\u200c|\\u200b/g, ''))"""
_GHOST = """() => [...document.querySelectorAll(
    '.view-line .ghost-text, .view-line .ghost-text-decoration')]
  .map(part => part.textContent).join('').replace(/\\u00a0|\\u00b7/g, ' ')"""
_STARTED = "() => performance.getEntriesByName('code/LifecyclePhase/Eventually').length"
_START_WATCH = f"""() => {{
  const lines = {_LINES};
  window.watched = [];
  const look = () => {{
    if (!window.watched) return;
    window.watched.push(lines());
    requestAnimationFrame(look);
  }};
  look();
}}"""
_END_WATCH = "() => { const seen = window.watched; window.watched = null; return seen; }"
