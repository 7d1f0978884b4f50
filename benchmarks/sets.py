"""Where the HumanEval-Infilling data lies: a file, a folder, or the model hub.

Knows names, digests and places; not what a task means. The tests in the data are run as programs,
so what arrives from the hub must be the published rows, by content.
"""

from __future__ import annotations

import gzip
import hashlib
import json
from collections.abc import Sequence
from pathlib import Path

from benchmarks.report import BenchmarkError

SETS = {
    "single-line": "HumanEval-SingleLineInfilling",
    "multi-line": "HumanEval-MultiLineInfilling",
    "random-span-light": "HumanEval-RandomSpanInfillingLight",
}
HUB_DATASET = "loubnabnl/humaneval_infilling"
#: sha256 over the rows of the published files, see `digest`.
DIGESTS = {
    "single-line": "413d3565bbc69561a9df481ab507d89bd5fbbcd3a49bf2440d2ca6616526b674",
    "multi-line": "fc62d75a8b33a63cb90e3aa781bc1730b831589f467a2f91d84ddb2d840f5a2a",
    "random-span-light": "6d3487fb565a797f1873ed0a6a1b15b59de2f7a245c56fe681b5f40dc89bf0a1",
}
_ENDINGS = (".jsonl.gz", ".jsonl")


def locate(data: Path | None, names: Sequence[str]) -> list[Path]:
    """The files of the named sets: `data` itself if it is a file, else in that folder, else from
    the hub; raises BenchmarkError."""
    if data is None:
        return [_from_hub(name) for name in names]
    if not data.is_dir():
        return [data]
    return [_in_folder(data, name) for name in names]


def _in_folder(folder: Path, name: str) -> Path:
    for ending in _ENDINGS:
        path = folder / f"{SETS[name]}{ending}"
        if path.is_file():
            return path
    raise BenchmarkError(f"{folder} holds no {SETS[name]}.jsonl.gz; give the data's folder")


def read_rows(path: Path) -> list[dict[str, str]]:
    """The rows of a .jsonl or .jsonl.gz file; raises OSError, ValueError."""
    opened = gzip.open if path.name.endswith(".gz") else open
    with opened(path, "rt", encoding="utf-8") as file:
        return [json.loads(line) for line in file if line.strip()]


def digest(rows: Sequence[dict[str, str]]) -> str:
    """A sha256 of the rows that does not depend on how the file packs them."""
    lines = (json.dumps(row, sort_keys=True) for row in rows)
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def _from_hub(name: str) -> Path:
    """The set out of the hub's cache or the hub; its content is checked."""
    from huggingface_hub import HfApi, hf_hub_download  # slow to import, and seldom needed

    advice = "download HumanEval-Infilling's data and give its folder with --data"
    try:
        files = HfApi().list_repo_files(HUB_DATASET, repo_type="dataset")
        wanted = {f"{SETS[name]}{ending}" for ending in _ENDINGS}
        found = next((file for file in files if file.rpartition("/")[2] in wanted), None)
        if found is None:
            raise BenchmarkError(f"the hub's {HUB_DATASET} has no {SETS[name]}; {advice}")
        path = Path(hf_hub_download(HUB_DATASET, found, repo_type="dataset"))
        rows = read_rows(path)
    except BenchmarkError:
        raise
    except Exception as error:  # the hub's client has no common error of its own
        reason = type(error).__name__
        raise BenchmarkError(f"the hub cannot be reached ({reason}); {advice}") from None
    if digest(rows) != DIGESTS[name]:
        raise BenchmarkError(f"the hub's {found} is not the published data; {advice}")
    return path
