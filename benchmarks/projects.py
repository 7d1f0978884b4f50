"""Real source files for holes: of projects that training never saw.

A training manifest says what was held out; what it does not list is taken where its name alone
would be held out (`engine.training.split`). So two models trained by the same split have the same
files. Knows packages and names, not holes.
"""

from __future__ import annotations

import json
import sysconfig
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import engine
from benchmarks.report import BenchmarkError
from engine.training.corpus.filters import reason_by_name, reason_by_size, reason_by_text
from engine.training.corpus.languages import language_of, refined
from engine.training.corpus.licences import is_permissive
from engine.training.corpus.packages import OWN, Package, in_folder, installed, newest_of_each
from engine.training.split import is_held_out


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceFile:
    """One file as an editor holds it; `name` is its path inside the project."""

    project: str
    name: str
    language: str
    text: str


def packages(folders: Sequence[Path], sites: Sequence[Path]) -> list[Package]:
    """The permissively licensed packages of these site folders (default: this interpreter's) and
    of these folders of sources, archives or packages; raises BadRequest."""
    found = [one for path in folders for one in in_folder(path)]
    for site in sites or [Path(sysconfig.get_path("purelib"))]:
        found += installed(site)
    return newest_of_each(one for one in found if one.licence == OWN or is_permissive(one.licence))


def manifest_of(model: str) -> Path | None:
    """The manifest that is shipped with a model's denoiser, if it has one."""
    path = Path(engine.__file__).parent / "data" / "denoisers" / f"{model}.manifest.json"
    return path if path.is_file() else None


def held_out_by(manifest: Path) -> dict[str, bool]:
    """name -> whether it was held out, of all that a manifest lists; raises BenchmarkError."""
    try:
        data = json.loads(manifest.read_text(encoding="utf-8"))
        listed = data["packages"] if isinstance(data, dict) else data
        found: dict[str, bool] = {}
        for entry in listed:
            name = str(entry["name"])
            found[name] = bool(entry["held_out"]) and found.get(name, True)
        return found
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise BenchmarkError(f"{manifest} is not a training manifest: {error!r}") from None


def unseen(found: Iterable[Package], manifest: Path | None) -> list[Package]:
    """Those that training never saw."""
    listed = held_out_by(manifest) if manifest else {}
    return [one for one in found if listed.get(one.name, is_held_out(one.project))]


def source_files(found: Iterable[Package], languages: Sequence[str]) -> list[SourceFile]:
    """The files of these languages that are worth a hole: no generated, vendored or huge ones."""
    files: list[SourceFile] = []
    seen: set[str] = set()
    for package in found:
        for name, data in package.read():
            language, text = language_of(name), _text(name, data)
            if language is None or text is None or text in seen:
                continue
            language = refined(language, text)
            if language in languages:
                seen.add(text)
                files.append(
                    SourceFile(project=package.name, name=name, language=language, text=text)
                )
    return files


def _text(name: str, data: bytes | None) -> str | None:
    """A file's text, if its name, size and content rule nothing out."""
    if data is None or reason_by_name(name) or reason_by_size(len(data)):
        return None
    try:
        text = data.decode("utf-8-sig").replace("\r\n", "\n").replace("\r", "\n")
    except UnicodeDecodeError:
        return None
    return None if reason_by_text(text) else text
