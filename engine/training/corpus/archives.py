"""Packages as they are published: metadata and members of wheels, sdists, npm packages, crates.

Members are read by name from the archive, in its own order; nothing is written to disk. A damaged
archive is a package without a name, which the caller reports.
"""

from __future__ import annotations

import json
import re
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from email.parser import HeaderParser
from importlib import metadata
from pathlib import Path, PurePosixPath
from typing import IO, cast

from engine.training.corpus.languages import SUFFIXES
from engine.training.corpus.licences import (
    claimed_by,
    claimed_in_cargo_toml,
    claimed_in_package_json,
)

_ZIP, _TAR = (".whl", ".zip"), (".tgz", ".tar.gz", ".tar.bz2", ".tar.xz", ".crate")
_MANIFESTS = ("package.json", "PKG-INFO", "Cargo.toml")
_MANIFEST_BYTES = 2_000_000
_DAMAGED = (OSError, EOFError, zipfile.BadZipFile, tarfile.TarError, zlib.error, ValueError)


@dataclass(frozen=True, slots=True, kw_only=True)
class About:
    """What a package says of itself; `names`: its source files as posix paths."""

    registry: str
    name: str
    version: str
    licence: str
    names: tuple[str, ...] = ()


def is_archive(path: Path) -> bool:
    """Whether a file's name is one of a package archive."""
    return path.name.endswith((*_ZIP, *_TAR))


def has_manifest(folder: Path) -> bool:
    """Whether a folder is an unpacked package."""
    return any((folder / name).is_file() for name in _MANIFESTS)


def describe(path: Path) -> About:
    """Metadata and source files of an archive; without licence or files where it is damaged."""
    names: list[str] = []
    manifests: dict[str, bytes] = {}
    try:
        for name, size, opened in _members(path):
            if PurePosixPath(name).suffix.lower() in SUFFIXES:
                names.append(name)
            elif _is_manifest(name) and size <= _MANIFEST_BYTES:
                manifests[name] = opened.read()
    except _DAMAGED:
        return About(registry="damaged", name=path.name, version="", licence="")
    about = _read_manifests(manifests, path.name)
    return About(
        registry=about.registry,
        name=about.name,
        version=about.version,
        licence=about.licence,
        names=tuple(names),
    )


def describe_folder(folder: Path) -> About:
    """Metadata of an unpacked package."""
    found = {f"{folder.name}/{n}": folder / n for n in _MANIFESTS if (folder / n).is_file()}
    return _read_manifests({n: p.read_bytes() for n, p in found.items()}, folder.name)


def read(path: Path, names: frozenset[str], most: int) -> Iterator[tuple[str, bytes | None]]:
    """The members of those names with their bytes, None for one of more than `most`."""
    try:
        for name, size, opened in _members(path):
            if name in names:
                yield name, opened.read() if size <= most else None
    except _DAMAGED:
        return  # what was readable has been read


def _members(path: Path) -> Iterator[tuple[str, int, IO[bytes]]]:
    """(name, size, open file) of every plain file in an archive."""
    if path.name.endswith(_ZIP):
        with zipfile.ZipFile(path) as archive:
            for info in archive.infolist():
                if not info.is_dir():
                    with archive.open(info) as member:
                        yield info.filename, info.file_size, member
        return
    with tarfile.open(path) as tar:
        for entry in tar:
            opened = tar.extractfile(entry) if entry.isfile() else None
            if opened is not None:
                yield entry.name, entry.size, opened


def _is_manifest(name: str) -> bool:
    """A manifest at the top of an archive (npm and sdists have one folder around everything)."""
    parts = PurePosixPath(name).parts
    if len(parts) != 2:
        return False
    return parts[1] in _MANIFESTS or (parts[0].endswith(".dist-info") and parts[1] == "METADATA")


def _read_manifests(manifests: dict[str, bytes], fallback: str) -> About:
    """The first manifest that can be read, Python's before npm's before Rust's."""
    texts = {
        PurePosixPath(n).name: data.decode("utf-8", "replace") for n, data in manifests.items()
    }
    core = texts.get("METADATA") or texts.get("PKG-INFO")
    if core is not None:
        message = cast(metadata.PackageMetadata, HeaderParser().parsestr(core))
        name, version = str(message["Name"] or fallback), str(message["Version"] or "")
        return About(registry="pypi", name=name, version=version, licence=claimed_by(message))
    if "package.json" in texts:
        return _read_package_json(texts["package.json"], fallback)
    name, version, licence = claimed_in_cargo_toml(texts.get("Cargo.toml", ""))
    registry = "crates" if name else "unknown"
    return About(registry=registry, name=name or fallback, version=version, licence=licence)


def _read_package_json(text: str, fallback: str) -> About:
    try:
        about = json.loads(text)
    except ValueError:
        about = None
    if not isinstance(about, dict):
        return About(registry="npm", name=fallback, version="", licence="")
    name, version = str(about.get("name") or fallback), str(about.get("version") or "")
    name = re.sub(r"\s", "", name)
    return About(registry="npm", name=name, version=version, licence=claimed_in_package_json(about))
