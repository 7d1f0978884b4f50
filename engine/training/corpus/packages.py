"""Where files come from: this Python's library and packages, archives, package folders, folders.

Archives are read where they lie and never unpacked, nothing of them is executed. This room knows
metadata and members, not whether a file is worth having (filters.py).
"""

from __future__ import annotations

import sysconfig
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from engine.request import BadRequest
from engine.training.corpus import archives
from engine.training.corpus.languages import SUFFIXES
from engine.training.corpus.licences import claimed_by

#: A folder of the user's own: no licence is asked for.
OWN = "own"
_MOST_BYTES = 4_000_000  # of one file: larger ones are never source

#: (path inside the package, its bytes or None where the file is too large)
Members = Iterator[tuple[str, bytes | None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Package:
    """One package. `registry`: python, pypi, npm, crates or folder; `licence`: as claimed, `OWN`,
    or empty; `names`: its source files, posix paths; `read`: their contents, in that order."""

    registry: str
    name: str
    version: str
    licence: str
    names: tuple[str, ...]
    read: Callable[[], Members]

    @property
    def project(self) -> str:
        """The unit that the split never divides: the package, or the scope of an npm package."""
        return self.name.split("/")[0] if self.name.startswith("@") else self.name

    @property
    def identity(self) -> str:
        """What other versions and forms of this package share."""
        name = self.name.lower()
        return f"{self.registry}:{name.replace('_', '-') if self.registry == 'pypi' else name}"


def standard_library() -> Package:
    """The library of the interpreter that runs this."""
    root = Path(sysconfig.get_path("stdlib"))
    paths = [p for p in _source_files(root) if "site-packages" not in p.parts]
    return _of_paths(
        ("python", "python-standard-library", sysconfig.get_python_version(), "PSF-2.0"),
        [(path.relative_to(root).as_posix(), path) for path in paths],
    )


def installed(site: Path) -> Iterator[Package]:
    """The distributions that are installed in a site-packages folder."""
    if not site.is_dir():
        raise BadRequest(f"{site} is not a folder of installed packages")
    for found in metadata.distributions(path=[str(site)]):
        name = found.metadata["Name"] if found.metadata else None
        if not name:
            continue
        entries = [e for e in found.files or () if e.suffix.lower() in SUFFIXES]
        yield _of_paths(
            ("pypi", name, found.version, claimed_by(found.metadata)),
            sorted((e.as_posix(), Path(str(found.locate_file(e)))) for e in entries),
        )


def in_folder(folder: Path) -> Iterator[Package]:
    """The packages in a folder of packages: archives (wheels, source distributions, npm packages,
    crates) and unpacked ones, as in `node_modules`. Any other folder is one project of the user's.
    """
    if not folder.is_dir():
        raise BadRequest(f"{folder} is not a folder; give folders of sources or of packages")
    packed = [p for p in sorted(folder.iterdir()) if p.is_file() and archives.is_archive(p)]
    roots = _package_folders(folder)
    if not (packed or roots) or _is_project(folder):
        named = [(p.relative_to(folder).as_posix(), p) for p in _source_files(folder)]
        yield _of_paths(("folder", folder.resolve().name, "", OWN), named)
        return
    for path in packed:
        about = archives.describe(path)
        yield Package(
            registry=about.registry,
            name=about.name,
            version=about.version,
            licence=about.licence,
            names=about.names,
            read=_archive_reader(path, about.names),
        )
    for root in roots:
        about = archives.describe_folder(root)
        named = [(p.relative_to(root).as_posix(), p) for p in _source_files(root)]
        yield _of_paths((about.registry, about.name, about.version, about.licence), named)


def _is_project(folder: Path) -> bool:
    """Whether a folder with packages in it is a project itself: sources, or a repository."""
    own = any(p.suffix.lower() in SUFFIXES for p in folder.iterdir() if p.is_file())
    return own or archives.has_manifest(folder) or (folder / ".git").exists()


def newest_of_each(packages: Iterable[Package]) -> list[Package]:
    """One package per identity, the one of the highest version, in the order of their names."""
    best: dict[str, Package] = {}
    for package in packages:
        other = best.get(package.identity)
        if other is None or _version_key(package) > _version_key(other):
            best[package.identity] = package
    return sorted(best.values(), key=lambda package: package.identity)


def _version_key(package: Package) -> tuple[tuple[int, ...], int]:
    numbers = [int(part) for part in package.version.split(".") if part.isdigit()]
    return tuple(numbers), len(package.names)


def _package_folders(folder: Path) -> list[Path]:
    """Its visible subfolders (of npm scopes: theirs) if every one is a package, else nothing."""
    found: list[Path] = []
    for path in sorted(folder.iterdir()):
        if path.is_dir() and not path.name.startswith("."):
            found += sorted(path.iterdir()) if path.name.startswith("@") else [path]
    return found if all(archives.has_manifest(path) for path in found) else []


def _source_files(root: Path) -> Iterator[Path]:
    for path in sorted(root.rglob("*")):
        if path.suffix.lower() in SUFFIXES and path.is_file() and not path.is_symlink():
            yield path


def _of_paths(about: tuple[str, str, str, str], named: list[tuple[str, Path]]) -> Package:
    registry, name, version, licence = about

    def read() -> Members:
        for inside, path in named:
            try:
                small = path.stat().st_size <= _MOST_BYTES
                yield inside, path.read_bytes() if small else None
            except OSError:  # listed, but gone or not ours to read
                continue

    names = tuple(inside for inside, _ in named)
    return Package(
        registry=registry, name=name, version=version, licence=licence, names=names, read=read
    )


def _archive_reader(path: Path, names: tuple[str, ...]) -> Callable[[], Members]:
    def read() -> Members:
        return archives.read(path, frozenset(names), _MOST_BYTES)

    return read
