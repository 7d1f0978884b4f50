"""A model of many files: a folder of the hub, fetched into the cache, resumable and checked.

Lies under `hub/<owner>--<name>/<commit>/`; what belongs to it, with sizes and digests as the hub
gave them, stands in `files.json`, written last: a folder without it is not complete. Only
configuration, tokenizer and safetensors are fetched, never code and never a pickle. Knows the hub's
listing; how a file is fetched is in sources.py. HF_TOKEN and HF_ENDPOINT are the hub's own.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from engine import tokenizer_files
from engine.digest import cache_dir, fresh_digest
from engine.download import Progress, explain, locked, require_space, silent
from engine.request import DownloadError
from engine.sources import HUB_PATIENCE_S, HubFile, SourceUnavailable

_WANTED = (
    "config.json",
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
    "*.safetensors",
    "*.safetensors.index.json",
)
_LIST = "files.json"
_ATTEMPTS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class HubFolder:
    """A repository of the hub. `size`: about how many bytes are fetched, for lists."""

    repo: str
    size: int
    revision: str = "main"


@dataclass(frozen=True, slots=True, kw_only=True)
class _File:
    """One file as the hub lists it: `sha256` of a large one, else `git` (a blob's sha1)."""

    name: str
    size: int
    sha256: str | None
    git: str | None


def cached_folder(source: HubFolder) -> Path | None:
    """The newest complete copy in our cache, or one that another program has fetched; else None."""
    for folder in _complete(source):
        return folder
    from huggingface_hub import try_to_load_from_cache

    config = try_to_load_from_cache(source.repo, "config.json", revision=source.revision)
    if not isinstance(config, str):
        return None
    theirs = Path(config).parent
    return theirs if _is_whole(theirs) else None


def fetch_folder(name: str, source: HubFolder, progress: Progress = silent) -> Path:
    """The folder, from the cache or else from the hub; blocks. Raises DownloadError.

    Of two processes one works and the other waits. What an interrupted attempt has fetched stays.
    """
    if folder := cached_folder(source):
        return folder
    commit, files = _listing(name, source)
    total = sum(file.size for file in files)
    folder = _home(source) / commit
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with locked(folder, name, lambda: _have(folder, files), total, progress):
            if folder in _complete(source):
                return folder
            require_space(total - _have(folder, files), folder)
            for file in files:
                origin = HubFile(
                    repo=source.repo, revision=commit, filename=file.name, with_token=True
                )
                _fetch_file(name, origin, file, folder, progress)
            listed = json.dumps([asdict(file) for file in files], indent=1)
            (folder / f"{_LIST}.part").write_text(listed, encoding="utf-8")
            os.replace(folder / f"{_LIST}.part", folder / _LIST)
    except OSError as error:
        raise explain(error, name, total, folder) from error
    return folder


def _home(source: HubFolder) -> Path:
    return cache_dir() / "hub" / source.repo.replace("/", "--")


def _complete(source: HubFolder) -> Iterator[Path]:
    """Folders whose files are all there, the newest first."""
    lists = _home(source).glob(f"*/{_LIST}")
    for listed in sorted(lists, key=lambda path: path.stat().st_mtime_ns, reverse=True):
        with contextlib.suppress(OSError, ValueError, TypeError):
            files = [_File(**entry) for entry in json.loads(listed.read_text(encoding="utf-8"))]
            if all((listed.parent / f.name).stat().st_size == f.size for f in files):
                yield listed.parent


def _is_whole(folder: Path) -> bool:
    """Whether a folder that we have no list of holds a tokenizer and every shard of the weights."""
    if tokenizer_files.find(folder) is None:
        return False
    index = folder / "model.safetensors.index.json"
    with contextlib.suppress(OSError, ValueError, LookupError, AttributeError):
        if not index.is_file():
            return (folder / "model.safetensors").is_file()
        placed = json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()
        return all((folder / shard).is_file() for shard in set(placed))
    return False


def _listing(name: str, source: HubFolder) -> tuple[str, list[_File]]:
    """The commit that the revision stands for, and its files that we want."""
    from huggingface_hub import HfApi, constants
    from huggingface_hub.errors import GatedRepoError, HfHubHTTPError, RepositoryNotFoundError

    if constants.HF_HUB_OFFLINE:
        raise DownloadError(_failed(name, "HF_HUB_OFFLINE is set"))
    try:
        info = HfApi(endpoint=constants.ENDPOINT).model_info(
            source.repo, revision=source.revision, files_metadata=True, timeout=5 * HUB_PATIENCE_S
        )
    except GatedRepoError as error:
        raise DownloadError(_agree(name, source)) from error
    except RepositoryNotFoundError as error:
        raise DownloadError(
            _failed(name, f"the hub has no {source.repo}, or not for you")
        ) from error
    except HfHubHTTPError as error:
        raise DownloadError(_failed(name, f"HTTP status {error.response.status_code}")) from error
    except Exception as error:  # of the HTTP library, which is the hub library's own affair
        reason = f"the hub cannot be reached ({type(error).__name__})"
        raise DownloadError(_failed(name, reason)) from error
    files = [_file(sibling) for sibling in info.siblings or () if _wanted(sibling.rfilename)]
    names = {file.name for file in files}
    if "config.json" not in names or not any(n.endswith(".safetensors") for n in names):
        raise DownloadError(f"{source.repo} has no config.json with safetensors; use another model")
    return str(info.sha), files


def _wanted(name: str) -> bool:
    return "/" not in name and any(fnmatch(name, pattern) for pattern in _WANTED)


def _file(sibling: Any) -> _File:
    sha256 = sibling.lfs.sha256 if sibling.lfs else None
    return _File(name=sibling.rfilename, size=sibling.size or 0, sha256=sha256, git=sibling.blob_id)


def _fetch_file(name: str, origin: HubFile, file: _File, folder: Path, progress: Progress) -> None:
    """Put one file in place, unless it is there. Raises DownloadError, OSError."""
    target, part = folder / file.name, folder / f"{file.name}.part"
    if target.exists():
        return
    label, reason = f"downloading {name}: {file.name}", ""
    for _ in range(_ATTEMPTS):
        try:
            origin.append_missing(part, file.size, lambda done: progress(label, done, file.size))
        except SourceUnavailable as error:
            if "401" in str(error) or "403" in str(error):
                raise DownloadError(f"{_failed(name, str(error))}; or set HF_TOKEN") from error
            reason = str(error)
            continue
        if not file.size:
            part.touch()
        if _is_right(part, file):
            os.replace(part, target)
            return
        part.unlink()
        reason = f"{file.name} arrived corrupt"
        progress(f"{name}: {reason}", 0, 0)
    raise DownloadError(_failed(name, reason))


def _is_right(path: Path, file: _File) -> bool:
    if file.sha256:
        return fresh_digest(path) == file.sha256
    if not file.git:
        return path.stat().st_size == file.size
    content = path.read_bytes()  # a small file: git's name for it
    blob = b"blob %d\0" % len(content) + content
    return hashlib.sha1(blob, usedforsecurity=False).hexdigest() == file.git


def _have(folder: Path, files: list[_File]) -> int:
    """Bytes on disk already, partial files included."""
    found = 0
    for file in files:
        for path in (folder / file.name, folder / f"{file.name}.part"):
            with contextlib.suppress(OSError):
                found += path.stat().st_size
    return found


def _failed(name: str, reason: str) -> str:
    return (
        f"cannot fetch {name} ({reason}): connect to the network and try again (what was fetched "
        f"is kept), or give a local folder with --weights FOLDER"
    )


def _agree(name: str, source: HubFolder) -> str:
    return (
        f"{name} asks for agreement: accept its licence on the hub's page of {source.repo}, then "
        f"set HF_TOKEN to a token of yours and try again"
    )
