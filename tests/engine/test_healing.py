"""Any cut of any file can be healed: the tokens spell exactly what was taken back."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.healing import closed_word_start, heal_left, split_word
from engine.store import load_tokenizer
from engine.tokenizer import Tokenizer
from engine.weights import open_checkpoint
from tests.engine.healing_texts import TEXTS
from tests.engine.test_tokenizer import poor, tiny
from tests.engine.tiny_base import SMOLLM

MAKERS: dict[str, Callable[[], Tokenizer]] = {
    "qwen": tiny,
    "smollm": lambda: tiny(SMOLLM),
    "poor": poor,
}
TOKENIZERS = pytest.mark.parametrize("maker", MAKERS)
FILES = pytest.mark.parametrize("name", TEXTS)


@FILES
@TOKENIZERS
def test_every_cut_of_a_file_is_healed(maker: str, name: str) -> None:
    heal_everywhere(MAKERS[maker](), TEXTS[name], random.Random(name), stride=4)


@TOKENIZERS
@settings(max_examples=60, deadline=None)
@given(
    text=st.text(st.characters(exclude_categories=[]), max_size=80)
    | st.text(" \t\r\n'ae\u03010_中🎉\u200d", max_size=400),
    seed=st.integers(0, 9),
)
def test_any_text_is_healed(maker: str, text: str, seed: int) -> None:
    heal_everywhere(MAKERS[maker](), text, random.Random(seed), stride=7)


@pytest.mark.parametrize("run", [" ", "x", "=", "1", "中", "\u0301", "e\u0301", "🎉", "\n", "\r\n"])
@TOKENIZERS
def test_long_runs_are_cut_inside(maker: str, run: str) -> None:
    text = "head " + run * 700
    heal_everywhere(MAKERS[maker](), text, random.Random(3), stride=61)
    assert len(heal_left(MAKERS[maker](), text).spell) <= 32 * 4


@pytest.mark.model
@pytest.mark.parametrize("model", ["qwen", "smollm2"])
def test_every_cut_is_healed_with_published_tokenizers(
    request: pytest.FixtureRequest, model: str
) -> None:
    tokenizer = published(request.getfixturevalue(model))
    for name, text in TEXTS.items():
        heal_everywhere(tokenizer, text, random.Random(name), stride=23)


@cache
def published(path: Path) -> Tokenizer:
    return load_tokenizer(open_checkpoint(path))


def heal_everywhere(
    tokenizer: Tokenizer, text: str, chooser: random.Random, stride: int = 1
) -> None:
    for offset in range(chooser.randrange(stride), len(text) + 1, stride):
        before = text[:offset]
        healed = heal_left(tokenizer, before)
        assert before.startswith(healed.kept)
        taken = before[len(healed.kept) :]
        assert healed.spell == tokenizer.clean(taken).encode()
        assert len(taken) <= 32
        crosses_nothing(tokenizer, text, offset, len(healed.kept))
        for pick in (greedy, lambda t, ids: chooser.choice(ids), shortest):
            spells(tokenizer, healed.spell, pick)


def crosses_nothing(tokenizer: Tokenizer, text: str, offset: int, kept: int) -> None:
    """What is taken back lies in one piece; and the boundary stays one whatever is typed next."""
    start = max(0, offset - 200)
    if kept == offset:
        return
    window = text[start:offset]
    pieces = tokenizer.pieces(window)
    if window[kept - start :] in ("'l", "'r", "'v"):
        pieces = [p for p in pieces if p <= kept - start]
    assert pieces[-1] <= kept - start
    if kept - start != pieces[-1]:
        assert len(window) - pieces[-1] > 32, "cut inside a piece that is not long"
        return
    for more in (text[offset : offset + 12], "x", " ", "\n", "é", "'s", "=", "1"):
        run = window[kept - start :] + more
        if "\n" in run[: len(run) - len(run.lstrip())]:
            continue  # a blank line draws the line end before it into its token
        assert kept - start in tokenizer.pieces(window + more), (window, more)


Pick = Callable[[Tokenizer, list[int]], int]


def greedy(tokenizer: Tokenizer, ids: list[int]) -> int:
    return max(ids, key=lambda i: len(tokenizer.token_bytes[i]))


def shortest(tokenizer: Tokenizer, ids: list[int]) -> int:
    return min(ids, key=lambda i: len(tokenizer.token_bytes[i]))


def spells(tokenizer: Tokenizer, wanted: bytes, pick: Pick) -> None:
    """Whatever is picked of what may come next, the walk ends and has spelled `wanted`."""
    spelled = b""
    while len(spelled) < len(wanted):
        candidates = tokenizer.spelling(wanted[len(spelled) :])
        assert candidates, (wanted, spelled)
        spelled += tokenizer.token_bytes[pick(tokenizer, candidates)]
        assert spelled.startswith(wanted) or wanted.startswith(spelled)
    assert spelled.startswith(wanted)
    # and the model's own tokens for it are among what may come next
    rest = wanted
    for token in tokenizer.encode(wanted.decode()):
        assert token in tokenizer.spelling(rest)
        rest = rest[len(tokenizer.token_bytes[token]) :]
    assert rest == b""


@pytest.mark.parametrize(
    ("text", "spell"),
    [
        ("", b""),
        ("import os\nos.pa", b".pa"),
        ("x = fo", b" fo"),
        ("x = ", b" "),
        ("def f():\n    ", b"    "),
        ("def f():\n", b"():\n"),
        ("s = '中文", "中文".encode()),
        ("s = 中'v", b"'v"),
        ("🎉", "🎉".encode()),
        ("x\ud83d", b"?"),
    ],
)
def test_what_is_taken_back(text: str, spell: bytes) -> None:
    healed = heal_left(tiny(), text)
    assert healed.spell == spell
    assert healed.kept + text[len(healed.kept) :] == text


@pytest.mark.parametrize(
    ("prefix", "suffix", "word"),
    [
        ("foo", "bar(1)", "bar"),
        ("foo ", "bar", ""),
        ("foo", " bar", ""),
        ("foo", "", ""),
        ("", "bar", ""),
        ("sel", "f.x", "f"),
        ("_", "_init__(", "_init__"),
        ("x1", "23 + 4", "23"),
        ("(", "a", ""),
        ("a", ")", ""),
        ("中", "文, x", "文"),
        ("na", "i\u0308ve = 1", "i\u0308ve"),
        ("नम", "स्ते()", "स्ते"),
        ("при", "вет мир", "вет"),
        ("🎉", "a", ""),
        ("a", "🎉", ""),
    ],
)
def test_the_right_part_of_a_split_word(prefix: str, suffix: str, word: str) -> None:
    assert split_word(prefix, suffix) == word


@pytest.mark.parametrize(
    ("text", "word", "start"),
    [
        ("", "bar", None),
        ("ba", "bar", None),
        ("bar", "bar", None),
        ("bar(", "bar", 0),
        ("foobar ", "bar", 3),
        ("bars ", "bar", None),
        ("bars bar\n", "bar", 5),
        ("barbar)", "bar", 3),
        ("aaa.", "aa", 1),
        ("x.bar, y.bar)", "bar", 2),
        ("वस्ते ", "स्ते", 1),
        ("na\u0308 ", "na", None),
    ],
)
def test_where_the_word_is_closed(text: str, word: str, start: int | None) -> None:
    assert closed_word_start(text, word) == start


@given(st.text("ab_ .", max_size=12), st.text("ab_", min_size=1, max_size=3))
def test_a_closed_word_is_the_first_end_of_a_word(text: str, word: str) -> None:
    ends = [
        n
        for n in range(len(text) - len(word))
        if text[n : n + len(word)] == word and text[n + len(word)] in " ."
    ]
    assert closed_word_start(text, word) == (ends[0] if ends else None)
