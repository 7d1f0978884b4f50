"""Source files to train on straight from folders and installed packages, split by project.

Knows licences and files, not tokens. For more than a quick try, `dlsp-engine corpus` does it with
every filter and packs the result (engine/training/corpus).
"""

from __future__ import annotations

import re
import sysconfig
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from engine.request import BadRequest
from engine.training.corpus.benchmarks import Benchmarks
from engine.training.corpus.filters import reason_by_name, reason_by_text
from engine.training.corpus.languages import SUFFIXES, language_of, refined
from engine.training.corpus.licences import licence_of
from engine.training.corpus.words import Words
from engine.training.split import is_held_out

_SKIP = re.compile(r"(^|/)(_?vendor(ed)?|third_party|node_modules|generated)(/|$)|_pb2\.py$")
_MAX_BYTES, _MIN_BYTES = 120_000, 400


@dataclass(frozen=True, slots=True, kw_only=True)
class Project:
    """One package or folder: the unit that the split never divides."""

    name: str
    version: str
    licence: str
    files: tuple[Path, ...]

    @property
    def held_out(self) -> bool:
        """Whether this project is for validation (one in twelve, by a hash of its name)."""
        return is_held_out(self.name)


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceText:
    """One file's text."""

    language: str
    text: str


def installed_projects(paths: Iterable[Path] = ()) -> list[Project]:
    """The standard library and every permissively licensed package of the given site folders
    (default: those of this interpreter)."""
    found = [
        Project(
            name="python-standard-library",
            version=sysconfig.get_python_version(),
            licence="PSF-2.0",
            files=tuple(_python_files(Path(sysconfig.get_path("stdlib")))),
        )
    ]
    where = [str(p) for p in paths] or [sysconfig.get_path("purelib")]
    for package in metadata.distributions(path=where):
        licence = licence_of(package)
        if licence is None:
            continue
        files = tuple(
            path
            for entry in package.files or ()
            if entry.suffix == ".py" and _usable(path := Path(str(package.locate_file(entry))))
        )
        if files:
            name = package.metadata["Name"]
            found.append(Project(name=name, version=package.version, licence=licence, files=files))
    return sorted(found, key=lambda p: p.name.lower())


def folder_project(path: Path) -> Project:
    """A directory of the user's own, in any language, as one project whatever its licence."""
    if not path.is_dir():
        raise BadRequest(f"{path} is not a folder; give folders of source files with --data")
    files = tuple(
        file
        for file in sorted(path.rglob("*"))
        if file.suffix.lower() in SUFFIXES
        and _usable(file)
        and reason_by_name(file.relative_to(path).as_posix()) is None
    )
    return Project(name=path.resolve().name, version="", licence="own", files=files)


def read_texts(
    projects: Iterable[Project], exclude: Iterable[Path] = ()
) -> Iterator[tuple[Project, SourceText]]:
    """Each file that is UTF-8 and source, without those that hold tasks of the benchmarks in
    `exclude` (JSON lines, gzipped or not)."""
    words = Words()
    banned = Benchmarks(exclude, words)
    for project in projects:
        for path in project.files:
            try:
                text = path.read_text(encoding="utf-8").replace("\r\n", "\n")
            except (OSError, UnicodeDecodeError):
                continue
            language = refined(language_of(path.name) or "python", text)
            if project.licence == "own" and reason_by_text(text):
                continue
            if banned.defines(language, text):
                continue
            if not (banned.present and banned.overlaps(words(text))):
                yield project, SourceText(language=language, text=text)


def _python_files(root: Path) -> Iterator[Path]:
    for path in sorted(root.rglob("*.py")):
        if _usable(path) and "site-packages" not in path.parts:
            yield path


def _usable(path: Path) -> bool:
    try:
        return not _SKIP.search(path.as_posix()) and _MIN_BYTES <= path.stat().st_size <= _MAX_BYTES
    except OSError:
        return False
