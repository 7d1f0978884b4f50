"""Whether to ask the engine here at all, for a line or a block, and how sure it must be.

Knows the text on both sides of the cursor, the last change, and what the user asked for. Knows
nothing of the engine, the client or past requests.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from dlsp.config.settings import Mode, Mood
from dlsp.policy.timing import Kind
from dlsp.text.edits import EditKind
from dlsp.text.lexical import inside
from dlsp.text.overlap import head_of, tail_of
from engine.request import Want

#: A longer document is data or generated code: its context is not worth a request per keystroke.
MAX_CHARACTERS: Final = 2_000_000
_BINARY_PROBE: Final = 8_000
_WORD: Final = re.compile(r"\w")

#: The least confidence at which a suggestion is shown unasked: the geometric mean of what the base
#: gives its tokens. Rows: the kind of place; columns: the user's mood. `inside` a word nearly any
#: suggestion is in the way, so it must be near certain; chosen by hand. The others were read off
#: what `benchmarks.calibration` said of the default model, on 60 holes of each kind in Python of
#: projects that the denoiser never saw: from these on, in a line's middle 73, 58 and 48 % of what
#: is shown are right to the end of the line; of whole lines 53, 26 and 20 %, and of their
#: characters 57, 41 and 32 % come before the first wrong one.
LEAST_CONFIDENCE: Final[Mapping[Kind, Mapping[Mood, float]]] = MappingProxyType(
    {
        "line": MappingProxyType({"quiet": 0.90, "balanced": 0.70, "eager": 0.50}),
        "edge": MappingProxyType({"quiet": 0.85, "balanced": 0.65, "eager": 0.45}),
        "word": MappingProxyType({"quiet": 0.85, "balanced": 0.65, "eager": 0.45}),
        "inside": MappingProxyType({"quiet": 0.98, "balanced": 0.95, "eager": 0.90}),
    }
)

_AFTER: Final[Mapping[EditKind, str]] = MappingProxyType(
    {
        "deleted": "after a deletion",
        "undone": "after an undo",
        "composed": "an input method composes",
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """What the gate looks at: the text around the cursor (on LF) and how it came about.

    `whole`: the prefix begins where the document does.
    """

    prefix: str
    suffix: str
    language: str | None
    whole: bool = True
    last_edit: EditKind = "other"


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate:
    """`ask` is False where silence is right; `reason` says why, for the log.

    A reply that is less sure than `least_confidence` is not shown.
    """

    ask: bool
    want: Want
    kind: Kind
    reason: str
    least_confidence: float = 0.0

    def shows(self, confidence: float) -> bool:
        """Whether a reply is sure enough; engines that say nothing of it (0) are believed."""
        return confidence == 0.0 or confidence >= self.least_confidence


def decide(scene: Scene, *, mode: Mode, mood: Mood, invoked: bool) -> Gate:
    """Decide for one cursor; a manual invocation is always answered."""
    want, kind = _want(scene), kind_of(scene.prefix, scene.suffix)
    if invoked:
        return Gate(ask=True, want=want, kind=kind, reason="invoked")
    silence = "mode is manual" if mode == "manual" else _silence(scene)
    return Gate(
        ask=silence is None,
        want=want,
        kind=kind,
        reason=silence or want,
        least_confidence=LEAST_CONFIDENCE[kind][mood],
    )


def kind_of(prefix: str, suffix: str) -> Kind:
    """What kind of place a cursor is at."""
    if _WORD.match(suffix):
        return "inside"
    if _WORD.match(prefix[-1:]):
        return "word"
    return "edge" if head_of(prefix).strip() or tail_of(suffix).strip() else "line"


def _want(scene: Scene) -> Want:
    """A block only where one may start: an empty line with nothing right of the cursor."""
    if head_of(scene.prefix).strip() or tail_of(scene.suffix).strip():
        return "line"
    return "block"


def _silence(scene: Scene) -> str | None:
    prefix, suffix = scene.prefix, scene.suffix
    if "\0" in prefix[-_BINARY_PROBE:] or "\0" in suffix[:_BINARY_PROBE]:
        return "binary"
    if "\0" in prefix[:_BINARY_PROBE]:
        return "binary"
    if len(prefix) + len(suffix) > MAX_CHARACTERS:
        return "huge file"
    if (reason := _AFTER.get(scene.last_edit)) is not None:
        return reason
    # Where the document's start is not in sight, only its line tells what the cursor stands in.
    found = inside(prefix if scene.whole else head_of(prefix), scene.language)
    return f"in a {found}" if found else None
