"""VS Code as its user has it: code-server, the packaged extension, a browser, keys.

Text is judged on the page and on the disk.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
from playwright.sync_api import Browser, Locator, Page

from tests.e2e.editors.processes import language_servers

PATIENCE_S = 90.0
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
SETTINGS: dict[str, Any] = {
    "security.workspace.trust.enabled": False,
    "workbench.startupEditor": "none",
    "workbench.secondarySideBar.defaultVisibility": "hidden",
    "telemetry.telemetryLevel": "off",
    "chat.disableAIFeatures": True,
    "extensions.autoCheckUpdates": False,
    "extensions.autoUpdate": False,
    "extensions.ignoreRecommendations": True,
    "git.enabled": False,
    "editor.minimap.enabled": False,
}
#: Accepting a line has no key of its own in VS Code.
KEYS = [{"key": "ctrl+alt+l", "command": "editor.action.inlineSuggest.acceptNextLine"}]


@dataclass(frozen=True, slots=True, kw_only=True)
class Installation:
    """Where code-server and its Node.js are."""

    node: Path
    program: Path


class CodeServer:
    """One code-server of one user."""

    def __init__(
        self, installed: Installation, home: Path, *, environment: Mapping[str, str]
    ) -> None:
        self._installed = installed
        self._home = home
        self._environment = {
            **environment,
            "EXTENSIONS_GALLERY": '{"serviceUrl":""}',  # no marketplace
            "XDG_DATA_HOME": str(home / "xdg"),
            "XDG_CONFIG_HOME": str(home / "xdg"),
        }
        (home / "none.yaml").write_text("cert: false\n")
        self.configure({})
        (home / "data" / "User" / "keybindings.json").write_text(json.dumps(KEYS))
        self._process: subprocess.Popen[bytes] | None = None
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            self._port = int(taken.getsockname()[1])

    def configure(self, settings: Mapping[str, Any]) -> None:
        """Write the user's settings."""
        # Those of the scope "machine" are read from the second place, where the files are.
        for place in ("User", "Machine"):
            file = self._home / "data" / place / "settings.json"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(json.dumps({**SETTINGS, **settings}))

    def _command(self, *arguments: str) -> list[str]:
        return [
            str(self._installed.node),
            str(self._installed.program),
            *("--user-data-dir", str(self._home / "data")),
            *("--extensions-dir", str(self._home / "extensions")),
            *("--config", str(self._home / "none.yaml")),
            *arguments,
        ]

    def install(self, vsix: Path) -> None:
        """Install an extension from its package."""
        subprocess.run(
            self._command("--install-extension", str(vsix)),
            env=self._environment,
            check=True,
            capture_output=True,
        )

    def start(self) -> None:
        """Serve, and wait until it answers."""
        options = ("--auth", "none", "--disable-telemetry", "--disable-update-check")
        with (self._home / "code-server.log").open("wb") as log:
            self._process = subprocess.Popen(
                self._command("--bind-addr", f"127.0.0.1:{self._port}", *options),
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        until = time.monotonic() + PATIENCE_S
        while True:
            try:
                if httpx.get(f"http://127.0.0.1:{self._port}/healthz", trust_env=False).is_success:
                    return
            except httpx.TransportError:
                pass
            assert time.monotonic() < until, "code-server did not start"
            time.sleep(0.2)

    def servers(self) -> list[int]:
        """The process ids of the language servers that run under it."""
        assert self._process is not None
        return language_servers(self._process.pid)

    def address(self, folder: Path) -> str:
        """Where a browser finds a folder."""
        return f"http://127.0.0.1:{self._port}/?folder={quote(str(folder))}"

    def close(self) -> None:
        """End it with every process that it started."""
        if self._process is not None:
            os.killpg(self._process.pid, signal.SIGTERM)
            try:
                self._process.wait(10)
            except subprocess.TimeoutExpired:
                os.killpg(self._process.pid, signal.SIGKILL)
                self._process.wait()


class Workbench:
    """One window with one folder."""

    def __init__(self, browser: Browser, server: CodeServer, folder: Path) -> None:
        self.folder = folder
        self.page: Page = browser.new_page(viewport={"width": 1000, "height": 560})
        self.page.set_default_timeout(PATIENCE_S * 1000)
        self.foreign: set[str] = set()
        self.page.on("request", lambda request: self._note(request.url))
        self.page.goto(server.address(folder), wait_until="commit")
        self.page.wait_for_selector(".monaco-workbench")

    def _note(self, url: str) -> None:
        host = httpx.URL(url).host
        if url.startswith(("http", "ws")) and host not in ("127.0.0.1", "localhost"):
            self.foreign.add(host)

    def open(self, name: str) -> None:
        """Open a file of the folder and put the cursor at its end."""
        self.page.get_by_role("treeitem", name=name).dblclick()
        editor = self.page.locator(".editor-instance .monaco-editor").first
        editor.wait_for()
        self.page.locator(f".tab.active[data-resource-name='{name}']").wait_for()
        editor.click()
        self.press("Control+End")

    def press(self, *keys: str) -> None:
        """Press keys, by the names that the browser has for them."""
        for key in keys:
            self.page.keyboard.press(key)

    def type(self, text: str, *, then: str) -> None:
        """Type, and wait until a line reads, with its ghost text, as given."""
        self.page.keyboard.type(text, delay=30)
        self.until(lambda: then in self.lines(), f"the line {then!r}")

    def lines(self) -> list[str]:
        """The lines of the editor as they stand on the page, ghost text included."""
        found: list[str] = self.page.evaluate(_LINES)
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
                shown = "\n".join(self.lines())
                label = self.status_item.locator("a").first.get_attribute("aria-label")
                told = f"{what}: not within {patience_s:g} s; status {label!r}"
                raise AssertionError(f"{told}; the page has\n{shown}")
            self.page.wait_for_timeout(50)

    @property
    def status_item(self) -> Locator:
        """The extension's item in the status bar."""
        return self.page.locator(".statusbar-item[id$='dlsp.status']")

    def status(self) -> str:
        """What the status item says."""
        found = self.status_item
        return (found.text_content() or "").strip() if found.count() else ""

    def until_ready(self, *, patience_s: float = 2 * PATIENCE_S) -> None:
        """Wait until the server says that the model is ready."""
        label = self.page.locator("[aria-label^='dlsp ready'], [aria-label^='dlsp busy']")
        self.until(lambda: label.count() > 0, "the server is ready", patience_s=patience_s)

    def save(self, name: str) -> str:
        """Save the active file and return what is on the disk, line ends untouched."""
        file = self.folder / name
        before = file.stat().st_mtime_ns
        self.press("Control+s")
        self.until(lambda: file.stat().st_mtime_ns != before, "saved")
        return file.read_bytes().decode()

    def command(self, title: str) -> None:
        """Run a command by its title in the palette."""
        self.press("F1")
        self.page.locator(".quick-input-widget input").wait_for()
        self.page.keyboard.type(title)
        self.page.locator(".quick-input-list .monaco-list-row", has_text=title).first.click()

    def close(self) -> None:
        """Close the window, as a user does: what is not saved is lost."""
        self.page.close()


#: The lines of the first editor from top to bottom, with ordinary blanks.
_LINES = """() => [...document.querySelectorAll('.editor-instance .view-line')]
  .sort((a, b) => parseFloat(a.style.top) - parseFloat(b.style.top))
  .map(line => line.textContent.replace(/\\u00a0|\\u00b7/g, ' ').replace(/\\u200c|\\u200b/g, ''))"""
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
