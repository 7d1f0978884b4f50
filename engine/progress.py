"""Progress on standard error: a bar on a terminal, a few plain lines elsewhere.

This room knows tqdm and nothing of what is being done.
"""

from __future__ import annotations

import sys
from types import TracebackType
from typing import NoReturn

from tqdm import tqdm

_PLAIN_STEP = 10  # percent between two plain lines


class TerminalProgress:
    """A `Progress` callable for command lines; leaving it as a context ends its line."""

    def __init__(self) -> None:
        self._bar: tqdm[NoReturn] | None = None
        self._label = ""
        self._percent = 0

    def __call__(self, label: str, done: int, total: int) -> None:
        """Show that `label` has done so much of `total`; a total of 0 marks a mere message."""
        if total <= 0:
            self.close()
            sys.stderr.write(f"{label}\n")
        elif sys.stderr.isatty():
            self._draw(label, done, total)
        else:
            self._write_plain(label, done, total)

    def _draw(self, label: str, done: int, total: int) -> None:
        bar = self._bar
        if bar is None or label != self._label:
            self.close()
            bar = tqdm(
                desc=label, total=total, initial=done, unit_scale=True, unit="", file=sys.stderr
            )
            self._bar, self._label = bar, label
        # Going back is real: a stretch that arrived corrupt is dropped.
        bar.update(done - bar.n)

    def _write_plain(self, label: str, done: int, total: int) -> None:
        percent = 100 * done // total
        if label != self._label:
            self._label = label
        elif percent < self._percent + _PLAIN_STEP and not (done >= total and self._percent < 100):
            return
        self._percent = percent
        sys.stderr.write(f"{label}: {percent} %\n")

    def close(self) -> None:
        """End the bar's line, if there is one."""
        if self._bar is not None:
            self._bar.close()
        self._bar, self._label = None, ""

    def __enter__(self) -> TerminalProgress:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
