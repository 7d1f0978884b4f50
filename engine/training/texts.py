"""The texts of a training, whatever they come from, and how one is drawn.

Knows folders, packages and shards; not what is done with a text.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from engine.request import BadRequest
from engine.tokenizer import Tokenizer
from engine.training import data
from engine.training.corpus import manifest
from engine.training.corpus.languages import LANGUAGES
from engine.training.corpus.shards import ShardTexts
from engine.training.data import Project, SourceText


class Texts(Protocol):
    """Some texts and, index for index, their languages."""

    languages: list[str]

    def __len__(self) -> int: ...

    def __getitem__(self, index: int) -> str: ...


class ListedTexts:
    """Texts in memory."""

    def __init__(self, found: Iterable[SourceText]) -> None:
        kept = list(found)
        self.languages = [each.language for each in kept]
        self._texts = [each.text for each in kept]

    def __len__(self) -> int:
        return len(self._texts)

    def __getitem__(self, index: int) -> str:
        return self._texts[index]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """Texts to learn from and texts held out; `manifest`: what they are, as JSON;
    `memory_bytes`: what they take."""

    train: Texts
    valid: Texts
    manifest: Any
    memory_bytes: int


def from_folders(
    folders: Iterable[Path], sites: Iterable[Path], exclude: Iterable[Path]
) -> Sources:
    """Folders of the user's, or else this Python's library and packages. Raises BadRequest."""
    projects: list[Project] = [data.folder_project(path) for path in folders]
    projects = projects or data.installed_projects(sites)
    found = list(data.read_texts(projects, exclude))
    train = [text for project, text in found if not project.held_out]
    valid = [text for project, text in found if project.held_out]
    if not train or not valid:  # one project only: hold out every twelfth file
        texts = train or valid
        train, valid = [t for i, t in enumerate(texts) if i % 12], texts[::12]
    if not train or not valid:
        raise BadRequest("no source files to train on; give folders with --data")
    about = [
        {
            "name": p.name,
            "version": p.version,
            "licence": p.licence,
            "files": len(p.files),
            "held_out": p.held_out,
        }
        for p in projects
    ]
    return Sources(
        train=ListedTexts(train),
        valid=ListedTexts(valid),
        manifest=about,
        memory_bytes=sum(len(text.text) for _, text in found),
    )


def from_shards(folder: Path, tokenizer: Tokenizer) -> Sources:
    """What `dlsp-engine corpus build` wrote. Raises BadRequest."""
    try:
        about = json.loads((folder / manifest.NAME).read_text(encoding="utf-8"))
        files = [folder / shard["file"] for shard in about["shards"]]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise BadRequest(
            f"{folder} holds no corpus ({error}); make one with `dlsp-engine corpus build`"
        ) from error
    train = ShardTexts([f for f in files if f.name.startswith("train-")], tokenizer)
    valid = ShardTexts([f for f in files if f.name.startswith("held-out-")], tokenizer)
    if not len(train) or not len(valid):
        raise BadRequest(f"the corpus in {folder} is too small: one side of its split is empty")
    return Sources(train=train, valid=valid, manifest=about, memory_bytes=0)


class Picker:
    """Draws texts: all alike, or by a share for each language and then all of it alike."""

    def __init__(self, texts: Texts, shares: Mapping[str, float]) -> None:
        """`shares`: weights of languages, empty for none. Raises BadRequest."""
        self._texts = texts
        self._of: dict[str, list[int]] = {}
        for index, language in enumerate(texts.languages):
            if shares.get(language, 0.0) > 0:
                self._of.setdefault(language, []).append(index)
        self._names = list(self._of)
        self._weights = [shares[name] for name in self._names]
        if shares and not self._of:
            raise BadRequest("no text is in a language that --mix names")

    def pick(self, rng: random.Random) -> str:
        """One text."""
        if not self._names:
            return self._texts[rng.randrange(len(self._texts))]
        indices = self._of[rng.choices(self._names, self._weights)[0]]
        return self._texts[indices[rng.randrange(len(indices))]]


def read_mix(given: Iterable[str]) -> dict[str, float]:
    """`python=4 go=1` as weights. Raises BadRequest."""
    shares: dict[str, float] = {}
    for each in given:
        name, _, value = each.partition("=")
        try:
            shares[name] = float(value)
        except ValueError:
            shares[name] = -1.0
        if name not in LANGUAGES or not 0 <= shares[name] < float("inf"):
            known = ", ".join(LANGUAGES)
            raise BadRequest(f"--mix takes LANGUAGE=WEIGHT, not {each!r}; languages are {known}")
    return shares
