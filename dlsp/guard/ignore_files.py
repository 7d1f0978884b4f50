"""The `.gitignore` and `.dlspignore` files above a file, and whether one of them matches it.

Git's own rules: the deepest folder's last matching pattern decides, and what lies in an ignored
folder cannot be taken back. `.dlspignore` is read as if it stood at the end of the `.gitignore`
beside it. Files are looked at again when their time or size has changed. Knows paths only.
"""

from __future__ import annotations

import stat
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pathspec
from pathspec.patterns.gitignore.spec import GitIgnoreSpecPattern

_NAMES = (".gitignore", ".dlspignore")
_MAX_BYTES = 1_000_000

_Stamp = tuple[int, int] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rules:
    """The patterns of one folder, and where each came from: a file's name, by pattern number."""

    stamps: tuple[_Stamp, ...]
    patterns: pathspec.GitIgnoreSpec
    origins: tuple[str, ...]


class IgnoreFiles:
    """The ignore files of the folders that files are asked about."""

    def __init__(self, folders: Sequence[Path] = ()) -> None:
        """`folders`: open folders; above the outermost of them, and above a repository, none is
        looked at."""
        self._folders = frozenset(folders)
        self._rules: dict[Path, _Rules] = {}

    def rule_for(self, path: Path) -> str | None:
        """The ignore file that leaves out `path` or a folder it lies in, or None."""
        top = self._top(path)
        between = [*reversed(path.parents), path]
        below = between[between.index(top) + 1 :]
        for each in below:
            if rule := self._verdict(each, top, is_folder=each != path):
                return rule
        return None

    def _top(self, path: Path) -> Path:
        """The repository's folder, or the outermost open one, or the file's own."""
        for folder in path.parents:
            if _exists(folder / ".git"):
                return folder
        opened = [folder for folder in path.parents if folder in self._folders]
        return opened[-1] if opened else path.parent

    def _verdict(self, path: Path, top: Path, *, is_folder: bool) -> str | None:
        """What the folders from the file's own up to `top` say; the deepest that says, decides."""
        for folder in path.parents:
            rules = self._rules_of(folder)
            relative = path.relative_to(folder).as_posix() + ("/" if is_folder else "")
            found = rules.patterns.check_file(relative)
            if found.include is not None and found.index is not None:
                return str(folder / rules.origins[found.index]) if found.include else None
            if folder == top:
                break
        return None

    def _rules_of(self, folder: Path) -> _Rules:
        stamps = tuple(_stamp(folder / name) for name in _NAMES)
        known = self._rules.get(folder)
        if known is None or known.stamps != stamps:
            known = self._rules[folder] = _read(folder, stamps)
        return known


def _read(folder: Path, stamps: tuple[_Stamp, ...]) -> _Rules:
    patterns: list[GitIgnoreSpecPattern] = []
    origins: list[str] = []
    for name, stamp in zip(_NAMES, stamps, strict=True):
        for line in _lines(folder / name) if stamp else ():
            try:
                compiled = pathspec.GitIgnoreSpec.from_lines([line]).patterns
            except ValueError:
                continue  # git leaves out what it cannot read, too
            patterns.extend(compiled)
            origins.extend(name for _ in compiled)
    return _Rules(stamps=stamps, patterns=pathspec.GitIgnoreSpec(patterns), origins=tuple(origins))


def _lines(file: Path) -> list[str]:
    try:
        with file.open("rb") as opened:
            return opened.read(_MAX_BYTES).decode("utf-8", "replace").splitlines()
    except OSError:
        return []


def _exists(path: Path) -> bool:
    """`Path.exists` raises where a folder may not be searched or a name is too long."""
    try:
        path.stat()
    except (OSError, ValueError):
        return False
    return True


def _stamp(file: Path) -> _Stamp:
    """None where there is no plain file: reading a pipe would never end."""
    try:
        found = file.stat()
    except (OSError, ValueError):
        return None
    return (found.st_mtime_ns, found.st_size) if stat.S_ISREG(found.st_mode) else None
