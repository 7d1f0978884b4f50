"""Where a cursor stands among the tokens, how long a hole is in them, and cuts inside tokens.

Knows a tokenizer by two methods, and infilling tasks; nothing of models.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate
from typing import Protocol

from benchmarks.report import BenchmarkError
from benchmarks.tasks import CursorKind, Task

#: The longest hole of each class, in tokens; the last class has no end.
LENGTHS = (4, 8, 16, 32, 64)


class Tokens(Protocol):
    """What is asked of `engine.tokenizer.Tokenizer`."""

    def encode(self, text: str) -> list[int]: ...
    def spell(self, ids: list[int]) -> bytes: ...


def boundaries(tokens: Tokens, text: str) -> frozenset[int]:
    """The offsets, in bytes, at which a token of `text` ends."""
    return frozenset(accumulate(len(tokens.spell([i])) for i in tokens.encode(text)))


def cursor_kind(tokens: Tokens, prefix: str, rest: str) -> CursorKind:
    """Where the cursor between `prefix` and the file's original `rest` stands."""
    left = prefix[prefix.rfind("\n") + 1 :]
    if not left.strip():
        return "line_start"
    line = left + rest.partition("\n")[0]
    return "mid_line" if len(left.encode()) in boundaries(tokens, line) else "mid_token"


def describe(tokens: Tokens, prefix: str, canonical: str, suffix: str) -> dict[str, object]:
    """What the tables are split by: tokens of the original text, and the kind of cursor."""
    return {
        "hole_tokens": len(tokens.encode(canonical)),
        "cursor": cursor_kind(tokens, prefix, canonical + suffix),
    }


def length_class(count: int) -> str:
    """The class of a hole of `count` tokens: 1-4, 5-8, …, 65+."""
    low = 1
    for high in LENGTHS:
        if count <= high:
            return f"{low}-{high}"
        low = high + 1
    return f"{low}+"


def length_classes() -> list[str]:
    """All classes, the shortest first."""
    return [length_class(high) for high in (*LENGTHS, LENGTHS[-1] + 1)]


def cuts_inside(tokens: Tokens, task: Task) -> list[int]:
    """The offsets in the task's text that lie inside a token and inside a word."""
    left = task.prefix[task.prefix.rfind("\n") + 1 :]
    line = task.canonical.partition("\n")[0]
    ends = boundaries(tokens, left + line)
    return [
        at
        for at in range(1, len(line))
        if _in_word(line[at - 1])
        and _in_word(line[at])
        and len((left + line[:at]).encode()) not in ends
    ]


def recut(tokens: Tokens, tasks: Sequence[Task], count: int, seed: int) -> list[tuple[Task, Task]]:
    """`count` (task, the same with its cursor inside a token), spread evenly over the tasks.

    What stood left of the new cursor is typed already. Raises BenchmarkError if there are fewer.
    """
    found: list[tuple[Task, Task]] = []
    for task in tasks:
        places = cuts_inside(tokens, task)
        if not places:
            continue
        at = random.Random(f"{seed} {task.task_id}").choice(places)
        cut = replace(
            task,
            task_id=f"{task.task_id}@{at}",
            prefix=task.prefix + task.canonical[:at],
            canonical=task.canonical[at:],
        )
        found.append((task, cut))
    if not 1 <= count <= len(found):
        raise BenchmarkError(f"--recut takes 1 to {len(found)}: so many tasks have a word to cut")
    return [found[number * len(found) // count] for number in range(count)]


def _in_word(character: str) -> bool:
    return character == "_" or character.isalnum()
