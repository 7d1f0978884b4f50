"""What a session knows around its documents: where it must be silent, and what else to show.

Snippets of other places are chosen while nobody waits, and kept until the cursor has moved far: the
engine's cached context begins with them, so a change of them costs an encoding of everything. Owns
that choice and the measured speed of encoding; `snippets` ranks, `privacy` forbids.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from dlsp.config.settings import ContextSource, Settings
from dlsp.context.modules import find_module
from dlsp.context.snippets import Candidate, choose, pieces, words
from dlsp.guard.places import switched_off
from dlsp.guard.privacy import Privacy, holds_secret
from dlsp.text.document import Document, Documents
from dlsp.text.lines import to_lf
from engine.request import InfillResult, Snippet
from engine.syntax import imports, language_for, signatures

#: What encoding the snippets may take, in milliseconds, and the tokens that this is at most.
BUDGET_MS, MOST_TOKENS, LEAST_TOKENS = 1500.0, 1024, 64
#: Milliseconds per token until there is a measurement: a small model on two cores.
_FIRST_MS = 3.0
_CHARACTERS_PER_TOKEN = 3
_LEAST_MEASURED = 16
#: Lines around the cursor whose identifiers count, before and after.
_BEFORE, _AFTER = 24, 8
#: Lines around the cursor that the engine will see anyway.
_SHOWN = 60
_FAR_LINES = 40
_LASTS_S = 60.0
_EDIT_LINES = 5
_MOST_FILES, _MOST_BYTES = 24, 400_000


@dataclass(frozen=True, slots=True, kw_only=True)
class _Text:
    """A document as it stands: a thread may read this while the document changes."""

    path: str | None
    language: str | None
    text: str
    edited: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Chosen:
    sources: tuple[ContextSource, ...]
    line: int
    at: float
    snippets: tuple[Snippet, ...]


class Surroundings:
    """Kept for the whole session."""

    def __init__(self, folders: Sequence[Path] = ()) -> None:
        self._privacy = Privacy(folders)
        self._chosen: dict[str, _Chosen] = {}
        self._ms_per_token = _FIRST_MS

    def open_folders(self, folders: Sequence[Path]) -> None:
        """Take note of the workspace folders that are open now."""
        if tuple(folders) != self._privacy.folders:
            self._privacy = Privacy(folders)

    def silence(self, document: Document, settings: Settings) -> str | None:
        """Why nothing may be suggested in a document, whoever asks; None where it may."""
        names = [document.language_id, document.language or ""]
        return self._privacy.forbids(document.path) or switched_off(
            settings,
            path=document.path,
            languages=[name for name in names if name],
            folders=self._privacy.folders,
        )

    def snippets(self, document: Document, settings: Settings) -> tuple[Snippet, ...]:
        """What was chosen to be shown with a document; nothing until `choose` has been."""
        chosen = self._chosen.get(document.uri)
        return chosen.snippets if chosen and chosen.sources == settings.context else ()

    def learn(self, result: InfillResult) -> None:
        """Note how fast the engine encodes."""
        tokens = result.prompt_tokens - result.cached_tokens
        if tokens >= _LEAST_MEASURED and result.ms.encode > 0:
            self._ms_per_token += 0.2 * (result.ms.encode / tokens - self._ms_per_token)

    @property
    def budget_tokens(self) -> int:
        """How many tokens of snippets an engine of the measured speed can encode at rest."""
        tokens = int(BUDGET_MS / self._ms_per_token)
        return min(tokens, MOST_TOKENS) if tokens >= LEAST_TOKENS else 0

    def forget(self, uri: str) -> None:
        """A document was closed."""
        self._chosen.pop(uri, None)

    async def choose(
        self, document: Document, line: int, documents: Documents, settings: Settings
    ) -> None:
        """Choose anew what to show with a cursor at `line`, if that may have changed."""
        last, now = self._chosen.get(document.uri), time.monotonic()
        near = last is not None and abs(line - last.line) <= _FAR_LINES
        if (
            last is not None
            and near
            and now - last.at < _LASTS_S
            and last.sources == settings.context
        ):
            return
        found: tuple[Snippet, ...] = ()
        if settings.context and self.budget_tokens:
            others = [_text_of(each) for each in documents.opened() if each is not document]
            found = await asyncio.to_thread(
                self._choose, _text_of(document), line, others, settings.context
            )
        if last is not None and last.sources == settings.context and near:
            # what only changed its order, or a little, is not worth an encoding
            kept = set(found) & set(last.snippets)
            found = last.snippets if 2 * len(kept) > len(found) else found
        if documents.find(document.uri) is document:
            self._chosen[document.uri] = _Chosen(
                sources=settings.context, line=line, at=now, snippets=found
            )

    def _choose(
        self, here: _Text, line: int, others: list[_Text], sources: tuple[ContextSource, ...]
    ) -> tuple[Snippet, ...]:
        lines = here.text.split("\n")
        query = "\n".join(lines[max(line - _BEFORE, 0) : line + _AFTER])
        beside = "\n".join(lines[max(line - _SHOWN, 0) : line + _SHOWN])
        readable = [each for each in others if self._readable(each.path)]
        candidates: list[Candidate] = []
        if "open" in sources:
            candidates += self._pieces(here, readable)
        if "edits" in sources:
            candidates += self._edited(readable)
        if "imports" in sources:
            candidates += self._imported(here, query, {each.path: each for each in readable})
        safe = [each for each in candidates if not holds_secret(each.text)]
        budget = self.budget_tokens * _CHARACTERS_PER_TOKEN
        return choose(safe, query, characters=budget, beside=beside)

    def _readable(self, path: str | None) -> bool:
        return path is not None and self._privacy.forbids_reading(Path(path)) is None

    def _pieces(self, here: _Text, others: list[_Text]) -> Iterator[Candidate]:
        for each in others[:_MOST_FILES]:
            if each.language == here.language and len(each.text) <= _MOST_BYTES:
                for piece in pieces(each.text):
                    yield Candidate(path=self._shown(each.path), text=piece)

    def _edited(self, others: list[_Text]) -> Iterator[Candidate]:
        for each in others:
            lines = each.text.split("\n")
            for line in each.edited[-3:]:
                text = "\n".join(lines[max(line - _EDIT_LINES, 0) : line + _EDIT_LINES + 1])
                yield Candidate(path=self._shown(each.path), text=text.strip("\n"), weight=1.5)

    def _imported(
        self, here: _Text, query: str, opened: dict[str | None, _Text]
    ) -> Iterator[Candidate]:
        """Of each module of the open folders that is imported: the declarations that are named
        near the cursor, or taken by name."""
        if here.path is None:
            return
        near = words(query)
        for wanted in imports(here.text, here.language)[:_MOST_FILES]:
            file = find_module(wanted, Path(here.path), self._privacy.folders)
            if file is None or not self._readable(str(file)):
                continue
            buffer = opened.get(str(file))
            text = buffer.text if buffer else _read(file)
            for found in signatures(text, language_for(str(file), None)):
                if found.name in wanted.names or found.name.lower() in near:
                    weight = 2.0 if found.name.lower() in near else 1.0
                    yield Candidate(path=self._shown(str(file)), text=found.text, weight=weight)

    def _shown(self, path: str | None) -> str:
        """The path below its folder: what lies above is nobody's business."""
        file = Path(path or "")
        for folder in self._privacy.folders:
            if file.is_relative_to(folder):
                return file.relative_to(folder).as_posix()
        return file.name


def _text_of(document: Document) -> _Text:
    return _Text(
        path=document.path,
        language=document.language,
        text=to_lf(document.text),
        edited=document.edits.lines,
    )


def _read(file: Path) -> str:
    try:
        with file.open("rb") as opened:
            return opened.read(_MOST_BYTES).decode("utf-8", "replace")
    except OSError:
        return ""
