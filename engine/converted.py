"""Where the converted form of a model's weights lies, and its tokenizer read ahead.

Free of torch on purpose: a starting engine reads the tokenizer here, on another thread, while torch
is still being imported. Knows files; does not know what tensors are in them.
"""

from __future__ import annotations

import json
import os
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from engine.digest import cache_dir
from engine.tokenizer import Tokenizer

FORMAT = 6
WEIGHTS, TOKENIZER, META = "int8.safetensors", "tokenizer.json", "meta.json"


def converted_folder(sha256: str) -> Path:
    """Where the converted form of the weights of that digest lies."""
    return cache_dir() / "converted" / f"{sha256[:24]}-{FORMAT}"


def outdated(folder: Path) -> list[Path]:
    """Folders of the same weights in formats of earlier versions."""
    stem, _, number = folder.name.rpartition("-")
    found = [each for each in folder.parent.glob(f"{stem}-*") if each.is_dir()]
    return [
        each
        for each in sorted(found)
        if (old := each.name[len(stem) + 1 :]).isdecimal() and int(old) < int(number)
    ]


def is_current(folder: Path) -> bool:
    """Whether the folder holds weights converted to today's format."""
    try:
        meta = json.loads((folder / META).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    known = isinstance(meta, dict) and meta.get("format") == FORMAT
    return known and (folder / WEIGHTS).is_file()


def read_tokenizer(folder: Path) -> Tokenizer:
    """The tokenizer kept beside the weights. Raises OSError, ValueError, LookupError, TypeError or
    WeightsError when its file is damaged."""
    return Tokenizer((folder / TOKENIZER).read_text(encoding="utf-8"))


def read_ahead(folder: Path) -> Future[Tokenizer] | None:
    """Begin to read what opening the folder will need; None if nothing is converted yet."""
    if not is_current(folder):
        return None
    pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix="read-ahead")
    tokenizer = pool.submit(read_tokenizer, folder)
    pool.submit(_warm, folder / WEIGHTS)
    pool.shutdown(wait=False)
    return tokenizer


def _warm(path: Path) -> None:
    """Have the system read the file into its cache, where it can be asked to."""
    if not hasattr(os, "posix_fadvise"):
        return
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except OSError:
        return  # whoever opens it will say so
    try:
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_WILLNEED)
    finally:
        os.close(descriptor)
