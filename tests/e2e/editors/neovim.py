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
#: The other keys, as the manual has them, and a status line.
KEYS = """\
vim.keymap.set('i', '<C-L>', '<Plug>(dlsp-accept-word)')
vim.keymap.set('i', '<C-J>', '<Plug>(dlsp-accept-line)')
vim.keymap.set('i', '<C-G>', '<Plug>(dlsp-request)')
vim.keymap.set('i', '<C-E>', '<Plug>(dlsp-dismiss)')
"""
STATUS = "vim.o.laststatus = 2 vim.o.statusline = \"[%{v:lua.require'dlsp'.statusline()}]\"\n"
WORD, LINE, REQUEST, DISMISS = "\x0c", "\n", "\x07", "\x05"


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
        self.binary = binary
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
                [self.binary, "--server", self._socket, "--remote-expr", f"luaeval('{quoted}')"],
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
            "#vim.lsp.get_clients({ name = 'dlsp', bufnr = 0 }) == 1 "
            "and (require('dlsp.status').current() or {}).state == 'ready'",
            patience_s=patience_s,
        )

    def servers(self) -> set[int]:
        """The process ids of the language servers that it runs."""
        return set(language_servers(self.terminal.process_id))

    def open(self, file: Path, *options: str) -> None:
        """Edit another file with these options of its own, and wait until it is served."""
        self.file = file
        self.normal()
        self.terminal.press(f":edit {file.name}{ENTER}")
        self.wait(f"vim.fn.expand('%:t') == '{file.name}'")
        for option in options:
            self.terminal.press(f":{option}{ENTER}")
        self.wait_for_client()

    def discard(self) -> None:
        """Close every file; what is not saved is lost."""
        self.normal()
        self.terminal.press(f":%bwipeout!{ENTER}")
        self.wait("vim.fn.expand('%:t') == ''")

    def normal(self) -> None:
        """Leave insert mode, or whatever else there is to leave."""
        self.terminal.press(ESCAPE)
        # Were the next key sent at once, the two would be one: Alt and that key.
        self.wait("vim.api.nvim_get_mode().mode == 'n'")

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
        self.normal()
        self.terminal.press(":write" + ENTER)
        # So it is once the file is whole; its time of change is earlier.
        self.wait("not vim.bo.modified")
        return self.file.read_bytes().decode()

    def close(self) -> None:
        """End it without saving."""
        self.terminal.close()
