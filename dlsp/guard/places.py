"""Which languages and files the user has switched off. Pure functions of settings and names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path, PurePath

import pathspec

from dlsp.config.settings import Settings

#: The entry that stands for every language without one of its own.
ANY = "*"


def switched_off(
    settings: Settings, *, path: str | None, languages: Sequence[str], folders: Sequence[Path]
) -> str | None:
    """Why there is silence in a document by the user's own settings, or None.

    `languages`: the names of the document's language, the editor's first. Patterns are matched
    below the open folder that the file lies in.
    """
    known = [name for name in languages if name in settings.languages]
    deciding = known[0] if known else ANY
    if not settings.languages.get(deciding, True):
        return f"switched off for {languages[0] if languages else 'this'} files by 'languages'"
    pattern = path and _last_match(settings.paths, _below(path, folders))
    if pattern and not settings.paths[pattern]:
        return f"switched off by {pattern!r} in 'paths'"
    return None


def _last_match(paths: Mapping[str, bool], relative: str) -> str | None:
    matching = [pattern for pattern in paths if _compiled(pattern).match_file(relative)]
    return matching[-1] if matching else None


@lru_cache(maxsize=256)
def _compiled(pattern: str) -> pathspec.GitIgnoreSpec:
    return pathspec.GitIgnoreSpec.from_lines([pattern])


def _below(path: str, folders: Sequence[Path]) -> str:
    file = PurePath(path)
    for folder in folders:
        if file.is_relative_to(folder):
            return file.relative_to(folder).as_posix()
    return file.relative_to(file.anchor).as_posix() if file.anchor else file.as_posix()
