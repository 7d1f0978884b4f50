"""The server of VS Code as its user has it: code-server with the packaged extension, settings."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx

from tests.e2e.editors.processes import language_servers

PATIENCE_S = 90.0
SETTINGS: dict[str, Any] = {
    "security.workspace.trust.enabled": False,
    "security.workspace.trust.startupPrompt": "never",
    "workbench.startupEditor": "none",
    "workbench.secondarySideBar.defaultVisibility": "hidden",
    "telemetry.telemetryLevel": "off",
    "chat.disableAIFeatures": True,
    "extensions.autoCheckUpdates": False,
    "extensions.autoUpdate": False,
    "extensions.ignoreRecommendations": True,
    "files.autoSave": "off",
    # What a new untitled file is.
    "files.defaultLanguage": "python",
    "git.enabled": False,
    "editor.minimap.enabled": False,
}
#: Accepting a line has no key of its own in VS Code; the others are for the tests alone.
ACCEPT_LINE, DISCARD, NEW_FILE = "Control+Alt+l", "Control+Alt+w", "Control+Alt+n"
KEYS = [
    {"key": "ctrl+alt+l", "command": "editor.action.inlineSuggest.acceptNextLine"},
    {"key": "ctrl+alt+w", "command": "workbench.action.revertAndCloseActiveEditor"},
    {"key": "ctrl+alt+n", "command": "workbench.action.files.newUntitledFile"},
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Installation:
    """Where code-server and its Node.js are, and the folder of installed extensions."""

    node: Path
    program: Path
    extensions: Path

    def command(self, *arguments: str) -> list[str]:
        """The command line of code-server."""
        chosen = ("--extensions-dir", str(self.extensions), *arguments)
        return [str(self.node), str(self.program), *chosen]

    def install(self, vsix: Path, home: Path) -> None:
        """Install an extension from its package."""
        subprocess.run(
            self.command("--user-data-dir", str(home), "--install-extension", str(vsix)),
            env={"HOME": str(home), "PATH": "/usr/bin:/bin"},
            check=True,
            capture_output=True,
        )


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
        """Write the user's settings; windows that are opened later have them."""
        # Those of the scope "machine" are read from the second place, where the files are.
        for place in ("User", "Machine"):
            file = self._home / "data" / place / "settings.json"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(json.dumps({**SETTINGS, **settings}))

    def start(self) -> None:
        """Serve, and wait until it answers."""
        places = (
            "--user-data-dir",
            str(self._home / "data"),
            "--config",
            f"{self._home}/none.yaml",
        )
        options = ("--auth", "none", "--disable-telemetry", "--disable-update-check")
        address = f"127.0.0.1:{self._port}"
        with (self._home / "code-server.log").open("wb") as log:
            self._process = subprocess.Popen(
                self._installed.command(*places, "--bind-addr", address, *options),
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        until = time.monotonic() + PATIENCE_S
        while True:
            try:
                if httpx.get(f"http://{address}/healthz", trust_env=False).is_success:
                    return
            except httpx.TransportError:
                pass
            assert time.monotonic() < until, "code-server did not start"
            time.sleep(0.1)

    def servers(self) -> set[int]:
        """The process ids of the language servers that run under it."""
        assert self._process is not None
        return set(language_servers(self._process.pid))

    def until_gone(self, servers: set[int]) -> None:
        """Wait until language servers have ended, as they do once their window is closed."""
        until = time.monotonic() + PATIENCE_S
        while servers & self.servers():
            assert time.monotonic() < until, "a closed window's language server does not end"
            time.sleep(0.05)

    def address(self, target: Path) -> str:
        """Where a browser finds a folder, or a workspace of several."""
        kind = "folder" if target.is_dir() else "workspace"
        return f"http://127.0.0.1:{self._port}/?{kind}={quote(str(target))}"

    def close(self) -> None:
        """End it with every process that it started."""
        if self._process is not None:
            os.killpg(self._process.pid, signal.SIGTERM)
            try:
                self._process.wait(10)
            except subprocess.TimeoutExpired:
                os.killpg(self._process.pid, signal.SIGKILL)
                self._process.wait()
