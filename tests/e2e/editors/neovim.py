"""Neovim as its user has it: an init file, a terminal, keys.

Text is judged on the screen and on the disk. Only what is to be waited for and cannot be seen (an
attached client) is asked over Neovim's own socket.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Mapping
from pathlib import Path

from tests.e2e.editors.processes import language_servers
from tests.e2e.editors.terminal import ENTER, ESCAPE, PATIENCE_S, Terminal

PLUGIN = Path(__file__).parents[3] / "editors" / "nvim"

#: What the manual tells a new user to write.
INIT = f"""\
vim.opt.runtimepath:append('{PLUGIN}')
vim.lsp.enable('dlsp')
vim.keymap.set('i', '<Tab>', require('dlsp').tab, {{ expr = true, desc = 'dlsp: accept, or Tab' }})
"""


class Neovim:
    """One Neovim with one file."""

    def __init__(
        self,
        binary: Path,
        file: Path,
        *,
        environment: Mapping[str, str],
        init: str = INIT,
    ) -> None:
        self._binary = binary
        self._environment = environment
        folder = file.parent
        self.file = file
        script = folder / f".{file.name}.init.lua"
        script.write_text(init, encoding="utf-8")
        self._socket = folder / f".{file.name}.socket"
        options = ["-u", str(script), "-i", "NONE", "-n"]
        self.terminal = Terminal(
            [str(binary), *options, "--listen", str(self._socket), file.name],
            environment=environment,
            folder=folder,
        )

    def evaluate(self, lua: str) -> str:
        """The value of a Lua expression in this Neovim, as text."""
        quoted = lua.replace("'", "''")
        try:
            answer = subprocess.run(
                [self._binary, "--server", self._socket, "--remote-expr", f"luaeval('{quoted}')"],
                env=dict(self._environment),
                capture_output=True,
                text=True,
                timeout=10,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise AssertionError(f"Neovim waits for a key:\n{self.terminal.look()}") from None
        return answer.stdout.strip()

    def wait(self, lua: str, *, patience_s: float = PATIENCE_S) -> None:
        """Wait until a Lua expression is true."""
        until = time.monotonic() + patience_s
        while self.evaluate(lua) != "true":
            self.terminal.look()
            if time.monotonic() > until:
                raise AssertionError(f"not within {patience_s:g} s: {lua}\n{self.terminal.look()}")

    def wait_for_client(self, *, patience_s: float = 3 * PATIENCE_S) -> None:
        """Wait until the server runs, serves the buffer and says that the model is ready."""
        self.wait(
            "(require('dlsp.status').current() or {}).state == 'ready'", patience_s=patience_s
        )

    def server_id(self) -> int:
        """The process id of the server."""
        [server] = language_servers(int(self.evaluate("vim.fn.getpid()")))
        return server

    def line(self) -> str:
        """The line of the cursor as it stands on the screen, ghost text included."""
        return self.terminal.look().split("\n")[self.terminal.screen.cursor.y]

    def ghost(self) -> str:
        """What stands on the screen behind the cursor, in its line."""
        return self.line()[self.terminal.screen.cursor.x :]

    def type(self, text: str, *, then: str) -> None:
        """Type, and wait until the line of the cursor reads, with its ghost text, as given."""
        self.terminal.type(text)
        self.terminal.until(lambda _: self.line() == then, f"the line {then!r}")

    def save(self) -> str:
        """Leave insert mode, write the file, return what is on the disk, line ends untouched."""
        before = self.file.stat().st_mtime_ns if self.file.exists() else 0
        self.terminal.press(ESCAPE)
        self.terminal.watch(0.1)  # else Escape and the next key are one: Alt and that key
        self.terminal.press(":write" + ENTER)
        until = time.monotonic() + PATIENCE_S
        while not self.file.exists() or self.file.stat().st_mtime_ns == before:
            self.terminal.look()
            assert time.monotonic() < until, self.terminal.look()
        return self.file.read_bytes().decode()

    def close(self) -> None:
        """End it without saving."""
        self.terminal.close()
