from __future__ import annotations

from pathlib import Path

import pytest

from engine.canvas import Canvas, Committed
from engine.tokenizer import Tokenizer
from tests.engine.tiny_base import tokenizer_json


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    path = Path(tmp_path_factory.mktemp("tokenizer")) / "tokenizer.json"
    path.write_text(tokenizer_json(), encoding="utf-8")
    return Tokenizer.from_hub(path)


def _fill(canvas: Canvas, ids: list[int]) -> Canvas:
    for n, token_id in enumerate(ids):
        canvas.commit(Committed(token_id=token_id, source="base", forward=n, probability=0.5))
    return canvas


def _bytes(tokenizer: Tokenizer, *words: bytes) -> list[int]:
    """One token per byte: every cut is a token edge."""
    single = {spelled: i for i, spelled in enumerate(tokenizer.token_bytes) if len(spelled) == 1}
    return [single[bytes([b])] for word in words for b in word]


def test_what_is_spelled_again_is_not_new(tokenizer: Tokenizer) -> None:
    canvas = Canvas(tokenizer, b"ret")
    assert canvas.unspelled == b"ret"
    _fill(canvas, _bytes(tokenizer, b"re"))
    assert (canvas.unspelled, canvas.text, canvas.fresh) == (b"t", "", 0)
    _fill(canvas, _bytes(tokenizer, b"turn"))
    assert (canvas.unspelled, canvas.text, canvas.fresh) == (b"", "urn", 3)
    assert len(canvas.returned("ur")) == 2
    assert len(canvas.returned("")) == 0


def test_a_token_across_the_cursor_is_new(tokenizer: Tokenizer) -> None:
    whole = tokenizer.encode("return")
    canvas = _fill(Canvas(tokenizer, b"r"), whole)
    assert canvas.text == "eturn"
    assert canvas.fresh == len(whole)
    assert canvas.returned("eturn") == canvas.committed


def test_a_character_cut_at_the_end_waits(tokenizer: Tokenizer) -> None:
    emoji = "é🎉".encode()
    canvas = Canvas(tokenizer, b"")
    seen = []
    for token_id in _bytes(tokenizer, emoji):
        _fill(canvas, [token_id])
        seen.append(canvas.text)
    assert seen == ["", "é", "é", "é", "é", "é🎉"]


def test_special_tokens_spell_nothing(tokenizer: Tokenizer) -> None:
    end = tokenizer.special("<|endoftext|>")
    assert end is not None
    canvas = _fill(Canvas(tokenizer, b""), [*tokenizer.encode("x = 1"), end])
    assert canvas.text == "x = 1"
    assert end not in [t.token_id for t in canvas.returned("x = 1")]


def test_cut_takes_back_text_and_later_bans(tokenizer: Tokenizer) -> None:
    ids = _bytes(tokenizer, b"abcdef")
    canvas = _fill(Canvas(tokenizer, b"a"), ids)
    canvas.ban(2, ids[2])
    canvas.ban(4, ids[4])
    canvas.cut(2)
    assert canvas.text == "b"
    assert canvas.ids == ids[:2]
    assert canvas.banned() == {ids[2]}
    _fill(canvas, ids[2:4])
    assert canvas.banned() == set()  # what stood behind the cut is another text now
    canvas.cut(0)
    assert (canvas.text, canvas.unspelled, len(canvas)) == ("", b"a", 0)


def test_bans_are_kept_per_position_and_add_up(tokenizer: Tokenizer) -> None:
    canvas = Canvas(tokenizer, b"")
    canvas.ban(0, 5)
    canvas.ban(0, 6)
    canvas.ban(1, 7)
    assert canvas.banned() == {5, 6}
    _fill(canvas, _bytes(tokenizer, b"x"))
    assert canvas.banned() == {7}


@pytest.mark.parametrize("text", ["foo(bar)\n", "é中🎉x", "    return x\n", "a"])
@pytest.mark.parametrize("healed", [0, 1])
def test_position_at_names_the_token_that_spells_a_character(
    tokenizer: Tokenizer, text: str, healed: int
) -> None:
    ids = tokenizer.encode(text)
    canvas = _fill(Canvas(tokenizer, text[:healed].encode()), ids)
    assert canvas.text == text[healed:]
    for offset in range(len(canvas.text)):
        position = canvas.position_at(offset)
        before = len(tokenizer.spell(ids[:position]))
        after = len(tokenizer.spell(ids[: position + 1]))
        assert before <= len(text[: healed + offset].encode()) < after
    assert canvas.position_at(len(canvas.text)) == len(ids) - 1


@pytest.mark.parametrize("text", ["foo(bar)", "é中🎉x = 1"])
def test_returned_covers_exactly_the_text(tokenizer: Tokenizer, text: str) -> None:
    canvas = _fill(Canvas(tokenizer, b""), tokenizer.encode(text + "\nmore"))
    for end in range(1, len(text) + 1):
        tokens = canvas.returned(text[:end])
        spelled = tokenizer.spell(t.token_id for t in tokens)
        without_last = tokenizer.spell(t.token_id for t in tokens[:-1])
        assert len(without_last) < len(text[:end].encode()) <= len(spelled)
