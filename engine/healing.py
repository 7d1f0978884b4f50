"""Token healing at both edges of the hole.

The cursor is rarely on a token boundary, and a model that must continue from a cut token goes
wrong. Left: the last pre-token of the text before the hole is taken back, and the first canvas
tokens are constrained to spell it. Right: when the cursor splits a word, its right part is taken
into the hole, and the text ends where it has spelled that part.
"""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass

from engine.tokenizer import Tokenizer

#: Longest piece, in characters, that is spelled again; a longer one is cut inside.
_MAX_PIECE = 32
_TAIL = 256
#: After an apostrophe a further letter makes these one piece with it: 'll, 're, 've.
_HALF_ENDINGS = ("l", "r", "v")


@dataclass(frozen=True, slots=True, kw_only=True)
class Healed:
    """`kept` is encoded as it stands; the canvas must begin by spelling `spell` (UTF-8, with `?`
    for what the tokenizer cannot spell)."""

    kept: str
    spell: bytes


def heal_left(tokenizer: Tokenizer, text: str) -> Healed:
    """Cut `text` at its last safe boundary; kept + spell is exactly `text`.

    A boundary is safe where no token can cross it: the start of the last pre-token (only a blank
    line that follows may draw the line end before it into its token). A pre-token
    longer than 32 characters (a run of spaces, a long word) is cut inside instead, before a
    character that combines with nothing before it.
    """
    tail_at = max(0, len(text) - _TAIL)
    starts = tokenizer.pieces(text[tail_at:])
    at = tail_at + starts[-1] if starts else len(text)
    if text[at:] in _HALF_ENDINGS and len(starts) > 1 and text[tail_at + starts[-2] : at] == "'":
        at -= 1
    if len(text) - at > _MAX_PIECE:
        at = len(text) - _MAX_PIECE
        while at < len(text) and unicodedata.combining(text[at]):
            at += 1
    return Healed(kept=text[:at], spell=tokenizer.clean(text[at:]).encode("utf-8"))


def split_word(prefix: str, suffix: str) -> str:
    """The right part of the word that the cursor splits; empty if it splits none."""
    if not prefix or not suffix or not _in_word(prefix[-1]) or not _in_word(suffix[0]):
        return ""
    end = 0
    while end < len(suffix) and _in_word(suffix[end]):
        end += 1
    return suffix[:end]


def closed_word_start(text: str, word: str) -> int | None:
    """Where `word` stands as the end of the first word of `text` that ends with it, and is closed
    by a further character; None while there is no such place."""
    at = text.find(word)
    while at >= 0:
        end = at + len(word)
        if end < len(text) and not _in_word(text[end]):
            return at
        at = text.find(word, at + 1)
    return None


def _in_word(character: str) -> bool:
    # marks are parts of words: accents that stand apart, vowel signs of Indic scripts
    return character == "_" or character.isalnum() or unicodedata.category(character)[0] == "M"
