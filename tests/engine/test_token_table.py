"""The kept table of what tokens spell equals one made anew; a damaged one is not used."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.token_table import TokenTable
from engine.tokenizer import Tokenizer
from tests.engine.test_tokenizer import BOTH, tiny

WORDS = st.lists(st.binary(max_size=6), max_size=40)


@settings(max_examples=150, deadline=None)
@given(words=WORDS)
def test_it_comes_back_as_it_was(words: list[bytes]) -> None:
    table = TokenTable.of(words)
    again = TokenTable.from_text(table.to_text(), len(words))
    if words:
        assert again == table
    assert sorted(table.order) == [i for i, word in enumerate(words) if word]
    spelled = [words[i] for i in table.order]
    assert spelled == sorted(spelled)


@settings(max_examples=150, deadline=None)
@given(words=WORDS.filter(bool), data=st.data())
def test_a_damaged_one_is_refused(words: list[bytes], data: st.DataObject) -> None:
    text = TokenTable.of(words).to_text()
    at = data.draw(st.integers(0, len(text) - 1))
    other = data.draw(st.sampled_from("Aab+/=\x00é").filter(lambda c: c != text[at]))
    damaged = text[:at] + other + text[at + 1 :]
    found = TokenTable.from_text(damaged, len(words))
    # the unused bits of the last character may differ without a meaning
    assert found is None or found == TokenTable.of(words)
    assert TokenTable.from_text(text[: len(text) // 2], len(words)) is None
    assert TokenTable.from_text(text, len(words) + 1) is None
    assert TokenTable.from_text("", len(words)) is None


@BOTH
def test_a_tokenizer_keeps_its_table(pre_tokenizer: str, monkeypatch: pytest.MonkeyPatch) -> None:
    made = tiny(pre_tokenizer)
    definition = made.to_json()
    monkeypatch.setattr(Tokenizer, "_fresh_table", lambda self: pytest.fail("made anew"))
    kept = Tokenizer(definition)
    assert kept.token_bytes == made.token_bytes
    assert kept.spelling(b"re") == made.spelling(b"re")
    assert kept.to_json() == definition


@pytest.mark.parametrize("table", ["", "nonsense", "AAAA"])
def test_a_damaged_table_is_made_again(table: str) -> None:
    made = tiny()
    header, _, rest = made.to_json().split("\n", 2)
    again = Tokenizer(f"{header}\n{table}\n{rest}")
    assert again.token_bytes == made.token_bytes
    assert again.to_json() == made.to_json()


def test_a_definition_from_before_the_table_is_read() -> None:
    made = tiny()
    header, _, rest = made.to_json().split("\n", 2)
    old = json.dumps({**json.loads(header), "format": "dlsp-tokenizer-2"})
    assert Tokenizer(f"{old}\n{rest}").to_json() == made.to_json()
