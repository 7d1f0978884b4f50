"""The models one can name: what they are, their licence, and where their weights come from.

This room is look-up; the entries are in catalog_entries.py. It does not know how weights are
fetched (download.py, hub_folder.py) or read (weights.py).
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path

from engine import tokenizer_files
from engine.catalog_entries import DEFAULT_MODEL, ENTRIES, CatalogEntry, PromptStyle
from engine.digest import digest_of, fingerprint_of
from engine.download import Asset, Progress, fetch, find_cached, silent
from engine.habits import Habits
from engine.hub_folder import cached_folder, fetch_folder
from engine.model.traits import Traits
from engine.request import UnknownModel, WeightsError

__all__ = ["DEFAULT_MODEL", "CatalogEntry", "ModelFiles", "find", "is_cached", "known", "resolve"]

_WANTED = "a .gguf file, or a folder with config.json, tokenizer.json and *.safetensors"
#: The catalogue, the default first.
_ENTRIES = ENTRIES


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFiles:
    """Weights on this disk: `path` is a .gguf file or a folder in the hub's layout.

    `sha256` is a key for what derives from them: a file's digest or a folder's fingerprint, and the
    traits where there are any. `traits`: what is known of the model where its files do not say it;
    `habits`: what suits it, where that was measured.
    """

    name: str
    path: Path
    prompt: PromptStyle
    sha256: str
    traits: Traits | None = None
    habits: Habits | None = None


def known() -> tuple[CatalogEntry, ...]:
    """All models of the catalogue, the default first."""
    return _ENTRIES


def default_model() -> str:
    """The model to use when none is named: `DLSP_MODEL`, else the catalogue's default."""
    return os.environ.get("DLSP_MODEL") or DEFAULT_MODEL


def find(name: str) -> CatalogEntry:
    """The entry of that name. Raises UnknownModel."""
    for entry in _ENTRIES:
        if entry.name == name:
            return entry
    names = ", ".join(entry.name for entry in _ENTRIES)
    raise UnknownModel(
        f"unknown model {name!r}: use one of {names}, a folder or .gguf file, or --weights FILE"
    )


def is_cached(entry: CatalogEntry) -> bool:
    """Whether the model can be used without fetching anything."""
    return _cached(entry) is not None


def _cached(entry: CatalogEntry) -> Path | None:
    source = entry.asset
    return find_cached(source) if isinstance(source, Asset) else cached_folder(source)


def resolve(
    model: str, weights: Path | None = None, progress: Progress | None = None
) -> ModelFiles:
    """The weights to load, fetched first if needed; blocks.

    `weights` wins whatever the model is called; `model` may itself be a path. Raises UnknownModel,
    WeightsError, DownloadError.
    """
    if weights is not None:
        return _local(model, weights)
    if _looks_like_path(model):
        return _local(model, Path(model))
    entry = find(model)
    report = progress or silent
    if isinstance(entry.asset, Asset):
        return _files(entry, fetch(entry.asset, report), entry.asset.sha256)
    path = fetch_folder(entry.name, entry.asset, report)
    return _files(entry, path, fingerprint_of(path))


def _files(entry: CatalogEntry, path: Path, sha256: str) -> ModelFiles:
    return ModelFiles(
        name=entry.name,
        path=path,
        prompt=entry.prompt,
        sha256=_key(sha256, entry.traits),
        traits=entry.traits,
        habits=entry.habits,
    )


def _key(sha256: str, traits: Traits | None) -> str:
    if traits is None:
        return sha256
    return hashlib.sha256(f"{sha256} {traits}".encode()).hexdigest()


def _looks_like_path(model: str) -> bool:
    if any(entry.name == model for entry in _ENTRIES):
        return False
    return os.sep in model or model.endswith(".gguf") or Path(model).is_dir()


def _local(model: str, path: Path) -> ModelFiles:
    """Weights that the user points at; recognised by content if they are a catalogue model's."""
    path = path.expanduser()
    try:
        sha256 = _checked_folder(path) if path.is_dir() else _checked_file(path)
    except OSError as error:
        reason = (
            "no such file or folder" if isinstance(error, FileNotFoundError) else error.strerror
        )
        raise WeightsError(f"cannot read the weights {path} ({reason}): give {_WANTED}") from error
    for entry in _ENTRIES:
        if isinstance(entry.asset, Asset) and entry.asset.sha256 == sha256:
            return _files(entry, path.resolve(), sha256)
    named = next((entry for entry in _ENTRIES if entry.name == model and entry.traits), None)
    if named:
        return _files(named, path.resolve(), sha256)
    name = path.stem if _looks_like_path(model) else model
    return ModelFiles(name=name, path=path.resolve(), prompt="auto", sha256=sha256)


def _checked_file(path: Path) -> str:
    with path.open("rb") as file:
        magic = file.read(4)
    if magic != b"GGUF":
        raise WeightsError(f"{path} is not a GGUF file: give {_WANTED}")
    return digest_of(path)


def _checked_folder(path: Path) -> str:
    missing = [] if (path / "config.json").is_file() else ["config.json"]
    if tokenizer_files.find(path) is None:
        missing.append("tokenizer.json")
    if not any(path.glob("*.safetensors")):
        missing.append("*.safetensors")
    if missing:
        raise WeightsError(f"the weights folder {path} lacks {', '.join(missing)}")
    return fingerprint_of(path)
