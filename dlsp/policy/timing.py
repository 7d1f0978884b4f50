"""How long to wait before the engine is asked: until the user is likely to have paused.

A request that the next key makes useless costs the machine and helps nobody; a wait that is longer
than need be is felt. So the wait is a part of this user's own time between two keys, by what kind
of place the cursor is at and by how often suggestions come true. Knows times and rates only.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Final, Literal

#: What stands around the cursor. `line`: nothing on its line; `word`: the end of a word that is
#: being written; `inside`: the middle of one; `edge`: anything else, such as behind a bracket.
Kind = Literal["line", "edge", "word", "inside"]

#: Parts of the time between two keys. Behind a word's first letters the next key is the likeliest.
_SHARE: Final[Mapping[Kind, float]] = MappingProxyType(
    {"line": 0.25, "edge": 0.25, "word": 0.6, "inside": 1.0}
)
#: The weight of the newest key in the running means.
_NEWEST: Final = 0.15
#: A longer gap is a pause to think, and says nothing of how fast somebody types.
_LONGEST_GAP_MS: Final = 1500.0
_SHORTEST_GAP_MS: Final = 20.0
MOST_MS: Final = 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Rhythm:
    """Running means: milliseconds between two keys, and the share of suggestions that came true.

    `last_s`: when the last key came, on the caller's clock; None before the first.
    """

    gap_ms: float = 200.0
    hit_rate: float = 0.5
    last_s: float | None = None

    def key(self, now_s: float) -> Rhythm:
        """After a key at that time."""
        gap_ms = None if self.last_s is None else 1000.0 * (now_s - self.last_s)
        if gap_ms is None or not _SHORTEST_GAP_MS <= gap_ms <= _LONGEST_GAP_MS:
            return replace(self, last_s=now_s)
        mean = self.gap_ms + _NEWEST * (gap_ms - self.gap_ms)
        return replace(self, gap_ms=mean, last_s=now_s)

    def judged(self, came_true: bool) -> Rhythm:
        """After a suggestion that was shown was followed, or departed from."""
        return replace(self, hit_rate=self.hit_rate + _NEWEST * (came_true - self.hit_rate))


def wait_ms(rhythm: Rhythm, kind: Kind, *, invoked: bool, now_s: float) -> float:
    """Milliseconds until the engine should be asked; none for who asks by hand.

    What has gone since the last key counts: an editor may have waited before it asked.
    """
    if invoked:
        return 0.0
    # Where suggestions come true the next key will often agree, and an early one is welcome.
    wait = rhythm.gap_ms * _SHARE[kind] * (1.5 - rhythm.hit_rate)
    gone = 0.0 if rhythm.last_s is None else 1000.0 * (now_s - rhythm.last_s)
    return min(max(wait - gone, 0.0), MOST_MS)


class Pace:
    """The rhythm of one session, and waiting by it."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self.rhythm = Rhythm()
        self._clock = clock

    def key(self) -> None:
        """A document has just changed."""
        self.rhythm = self.rhythm.key(self._clock())

    def judge(self, *, came_true: bool) -> None:
        """The user followed a suggestion that was shown, or departed from it."""
        self.rhythm = self.rhythm.judged(came_true)

    async def wait(self, kind: Kind, *, invoked: bool) -> None:
        """Wait before the engine is asked; a newer request cancels this."""
        ms = wait_ms(self.rhythm, kind, invoked=invoked, now_s=self._clock())
        if ms:
            await asyncio.sleep(ms / 1000.0)
