"""Where the user wants silence for now: everywhere, in a language, or in a document.

Lasts as long as the session. Knows names only; lasting choices are settings.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal
from urllib.parse import unquote

Scope = Literal["all", "language", "document"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A document and the language that it is in."""

    uri: str
    language: str


class Pauses:
    """What is paused now. A paused document or language stays so when all else goes on."""

    def __init__(self) -> None:
        self.everywhere = False
        self._languages: set[str] = set()
        self._documents: set[str] = set()

    def set(self, scope: Scope, place: Place | None, *, paused: bool) -> None:
        """Pause or go on; any scope but `all` needs a place."""
        if scope == "all":
            self.everywhere = paused
            return
        assert place is not None
        names, name = (
            (self._languages, place.language)
            if scope == "language"
            else (self._documents, unquote(place.uri))
        )
        (names.add if paused else names.discard)(name)

    def reason(self, place: Place) -> str | None:
        """Why there is silence at this place; None where there is not."""
        if self.everywhere:
            return "paused"
        if place.language in self._languages:
            return f"paused for {place.language}"
        if unquote(place.uri) in self._documents:
            return "paused in this document"
        return None
