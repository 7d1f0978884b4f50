"""A program in a real terminal: a pseudo-terminal and an emulator that keeps its screen.

What a user sees and types, and nothing else: tests press keys and look at the screen.
"""

from __future__ import annotations

import os
import pty
import re
import select
import signal
import struct
import termios
import time
from collections.abc import Callable, Mapping, Sequence
from fcntl import ioctl
from pathlib import Path

import pyte

PATIENCE_S = 60.0
#: A program draws one change in several writes; after this long without one the picture is whole.
_SETTLED_S = 0.02

ESCAPE, ENTER, TAB, BACKSPACE = "\x1b", "\r", "\t", "\x7f"


#: A program asks for the colour behind its text, and what a dark terminal answers.
_BACKGROUND = (b"\x1b]11;?", b"\x1b]11;rgb:0000/0000/0000\x1b\\")
_CONTROL_STRING = re.compile(rb"\x1bP.*?\x1b\\", re.DOTALL)


class _Screen(pyte.Screen):
    """A screen that answers what programs ask their terminal."""

    def __init__(self, columns: int, lines: int, answer: Callable[[bytes], None]) -> None:
        super().__init__(columns, lines)
        self._answer = answer

    def write_process_input(self, data: str) -> None:
        self._answer(data.encode())


class Terminal:
    """One program on a screen of its own."""

    def __init__(
        self,
        command: Sequence[str],
        *,
        environment: Mapping[str, str],
        folder: Path,
        columns: int = 120,
        lines: int = 20,
    ) -> None:
        self._screen = _Screen(columns, lines, lambda data: self._write(data))
        self._stream = pyte.ByteStream(self._screen)
        self.process_id, self._master = pty.fork()
        if self.process_id == 0:
            os.chdir(folder)
            os.execvpe(command[0], list(command), {**environment, "TERM": "xterm-256color"})
        ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
        self._held = b""
        self._over = False

    @property
    def screen(self) -> pyte.Screen:
        """The emulator's screen, with colours, as of the last look."""
        return self._screen

    def look(self) -> str:
        """The screen as it is once it stands still, one line of text for each of its lines."""
        while not self._over and select.select([self._master], [], [], _SETTLED_S)[0]:
            try:
                data = os.read(self._master, 65536)
                if _BACKGROUND[0] in data:
                    self._write(_BACKGROUND[1])
                self._stream.feed(self._without_questions(data))
            except OSError:  # how Linux says that the program is gone
                self._over = True
        return "\n".join(line.rstrip() for line in self._screen.display)

    def _without_questions(self, data: bytes) -> bytes:
        """Drop device control strings, which the emulator prints; a cut one waits for its end."""
        whole = _CONTROL_STRING.sub(b"", self._held + data)
        start = whole.find(b"\x1bP")
        self._held = whole[start:] if start >= 0 else b""
        return whole[:start] if start >= 0 else whole

    def press(self, keys: str) -> None:
        """Send keys as a terminal sends them."""
        self._write(keys.encode())

    def _write(self, data: bytes) -> None:
        os.write(self._master, data)

    def type(self, text: str, *, pause_s: float = 0.03) -> None:
        """Press one key after the other, as quick as a person types."""
        for key in text:
            self.press(key)
            self.watch(pause_s)

    def watch(self, seconds: float, *, after: Callable[[str], bool] = lambda _: True) -> list[str]:
        """All the different screens up to one that is as wanted, and so many seconds longer."""
        screens: list[str] = []

        def noted(screen: str) -> bool:
            if not screens or screens[-1] != screen:
                screens.append(screen)
            return after(screen)

        self.until(noted, "the screen to watch from")
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            noted(self.look())
        return screens

    def until(
        self, seen: Callable[[str], bool], what: str, *, patience_s: float = PATIENCE_S
    ) -> str:
        """Wait for a screen; fails with the last one."""
        until = time.monotonic() + patience_s
        while not seen(screen := self.look()):
            if time.monotonic() > until or self._over:
                raise AssertionError(
                    f"{what}: not within {patience_s:g} s; the screen is\n{screen}"
                )
        return screen

    def shows(self, text: str) -> str:
        """Wait until the text is on the screen."""
        return self.until(lambda screen: text in screen, f"the text {text!r}")

    def close(self) -> None:
        """End the program, at once if it will not go."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            if self._ended():
                break
            os.kill(self.process_id, number)
            until = time.monotonic() + 3.0
            while not self._ended() and time.monotonic() < until:
                self.look()
        os.close(self._master)

    def _ended(self) -> bool:
        try:
            return os.waitpid(self.process_id, os.WNOHANG)[0] != 0
        except ChildProcessError:
            return True
