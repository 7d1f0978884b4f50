"""Content digests of files, remembered between runs.

This room knows files and where the cache is, not what a model is or where one comes from. Hashing
half a gigabyte takes a second or two, too long for every start: the digest of a file is remembered
under its path, size and time of change, and computed again when any of them differs.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import tempfile
from pathlib import Path

import platformdirs

_CHUNK = 1 << 20


def cache_dir() -> Path:
    """The folder for all that may be deleted and made again; `DLSP_CACHE_DIR` overrides."""
    override = os.environ.get("DLSP_CACHE_DIR")
    return (
        Path(override) if override else Path(platformdirs.user_cache_dir("dlsp", appauthor=False))
    )


def digest_of(path: Path) -> str:
    """The sha256 of a file, from memory while the file has not changed. Raises OSError."""
    path = path.resolve()
    stat = path.stat()
    facts = {"path": str(path), "size": stat.st_size, "mtime_ns": stat.st_mtime_ns}
    memory = cache_dir() / "digests" / f"{hashlib.sha256(os.fsencode(path)).hexdigest()[:32]}.json"
    with contextlib.suppress(OSError, ValueError, AttributeError):
        remembered = json.loads(memory.read_text(encoding="utf-8"))
        if all(remembered.get(key) == value for key, value in facts.items()):
            return str(remembered["sha256"])
    sha256 = fresh_digest(path)
    with contextlib.suppress(OSError):  # a read-only or full cache costs time, never the answer
        _write_atomically(memory, json.dumps({**facts, "sha256": sha256}))
    return sha256


def fresh_digest(path: Path, *, start: int = 0, length: int | None = None) -> str:
    """The sha256 of `length` bytes of a file from `start` on (to its end by default), read now."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        file.seek(start)
        left = length if length is not None else path.stat().st_size
        while left > 0 and (chunk := file.read(min(_CHUNK, left))):
            digest.update(chunk)
            left -= len(chunk)
    return digest.hexdigest()


def fingerprint_of(folder: Path) -> str:
    """A sha256 over the names, sizes and times of a folder's files."""
    digest = hashlib.sha256()
    for file in sorted(item for item in folder.iterdir() if item.is_file()):
        stat = file.stat()
        digest.update(f"{file.name}\0{stat.st_size}\0{stat.st_mtime_ns}\n".encode())
    return digest.hexdigest()


def _write_atomically(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
