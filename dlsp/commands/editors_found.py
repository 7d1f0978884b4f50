"""Which editors are installed here, and whether they can show inline completions.

Knows command names and versions; starts each once with `--version`.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass

#: Neovim draws inline completions of its own from here on; from `_NVIM_LEAST` our plugin does.
_NVIM_OWN, _NVIM_LEAST = (0, 12), (0, 11)
#: The VS Code that our extension's client library asks for.
_CODE_LEAST = (1, 91)
_VERSION = re.compile(r"(\d+)\.(\d+)")
_LIMIT_S = 20.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Editor:
    """`fits`: it can show suggestions; otherwise `advice` says what is missing."""

    name: str
    version: str
    fits: bool
    note: str = ""
    advice: str = ""


def editors() -> Iterator[Editor]:
    """The editors that we have a client for and that are on the path."""
    for command in ("nvim", "code", "codium", "code-server"):
        path = shutil.which(command)
        if path is not None:
            version = _version_of(path)
            yield _nvim(version) if command == "nvim" else _code(command, version)


def _nvim(version: str) -> Editor:
    number = _number(version)
    if number is None or number < _NVIM_LEAST:
        return Editor(
            name="nvim",
            version=version,
            fits=False,
            advice=f"install Neovim {'.'.join(map(str, _NVIM_LEAST))} or newer",
        )
    own = number >= _NVIM_OWN
    note = "has inline completion" if own else "our plugin draws suggestions itself"
    return Editor(name="nvim", version=version, fits=True, note=note)


def _code(command: str, version: str) -> Editor:
    number = _number(version)
    # code-server counts as VS Code does since it says which one it holds.
    fits = number is not None and (number >= _CODE_LEAST or command == "code-server")
    advice = "" if fits else f"install VS Code {'.'.join(map(str, _CODE_LEAST))} or newer"
    return Editor(name=command, version=version, fits=fits, advice=advice)


def _version_of(path: str) -> str:
    try:
        ended = subprocess.run(
            [path, "--version"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_LIMIT_S,
            check=False,
        )
    except (OSError, subprocess.SubprocessError):
        return "unknown"
    first = ended.stdout.strip().partition("\n")[0]
    return first.removeprefix("NVIM").strip() or "unknown"


def _number(version: str) -> tuple[int, int] | None:
    found = _VERSION.search(version)
    return (int(found[1]), int(found[2])) if found else None
