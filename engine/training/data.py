"""Source files to train on: permissively licensed Python of this machine, split by project.

Knows licences and files, not tokens. The corpus is never stored; a manifest of it can be.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import re
import sysconfig
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

_PERMISSIVE = re.compile(
    r"\b(MIT|BSD|Apache|ISC|PSF|Python Software Foundation|Zlib|Unlicense)", re.I
)
_COPYLEFT = re.compile(r"\b[AL]?GPL|General Public|Mozilla|\b(MPL|EPL|CDDL|EUPL)|Proprietary", re.I)
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
        return int(hashlib.sha256(self.name.encode()).hexdigest(), 16) % 12 == 0


def installed_projects(paths: Iterable[Path] = ()) -> list[Project]:
    """The standard library and every permissively licensed package of the given site folders
    (default: those of this interpreter)."""
    found = [
        Project(
            name="python-standard-library",
            version=sysconfig.get_python_version(),
            licence="PSF-2.0",
            files=tuple(_python_files(Path(sysconfig.get_path("stdlib")), skip="site-packages")),
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
    """A directory of the user's own, taken as one project whatever its licence."""
    return Project(name=path.name, version="", licence="own", files=tuple(_python_files(path)))


def licence_of(package: metadata.Distribution) -> str | None:
    """The package's licence if its metadata says that it is permissive, else None."""
    about = package.metadata
    classifiers = [c for c in about.get_all("Classifier") or () if c.startswith("License ::")]
    claimed = (
        _first(about, "License-Expression") or " ".join(classifiers) or _first(about, "License")
    )
    claimed = claimed[:200].replace("\n", " ")
    if _COPYLEFT.search(claimed) or not _PERMISSIVE.search(claimed):
        return None
    return claimed


def _first(about: metadata.PackageMetadata, key: str) -> str:
    return next(iter(about.get_all(key) or ()), "")


def read_texts(projects: Iterable[Project], banned: frozenset[str]) -> Iterator[str]:
    """The text of each file that is UTF-8 and defines none of the banned function names."""
    for project in projects:
        for path in project.files:
            try:
                text = path.read_text(encoding="utf-8").replace("\r\n", "\n")
            except (OSError, UnicodeDecodeError):
                continue
            if banned and banned & set(re.findall(r"def (\w+)\(", text)):
                continue
            yield text


def benchmark_functions(path: Path) -> frozenset[str]:
    """Function names of a benchmark's tasks (JSON lines, gzipped, with `entry_point`)."""
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        return frozenset(json.loads(line)["entry_point"] for line in lines)


def _python_files(root: Path, skip: str | None = None) -> Iterator[Path]:
    for path in sorted(root.rglob("*.py")):
        if _usable(path) and not (skip and skip in path.parts):
            yield path


def _usable(path: Path) -> bool:
    try:
        return not _SKIP.search(path.as_posix()) and _MIN_BYTES <= path.stat().st_size <= _MAX_BYTES
    except OSError:
        return False
