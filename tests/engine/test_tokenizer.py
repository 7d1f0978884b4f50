"""Any text is spelled byte for byte; special tokens are never read out of it."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.prompt import style_of
from engine.request import WeightsError
from engine.store import load_tokenizer
from engine.tokenizer import Tokenizer
from engine.weights import open_checkpoint
from tests.engine.tiny_base import QWEN, SMOLLM, SPECIALS, make_folder, make_gguf, tokenizer_json


@cache
def tiny(pre_tokenizer: str = QWEN) -> Tokenizer:
    return _built(tokenizer_json(pre_tokenizer))


def _built(definition: str) -> Tokenizer:
    with TemporaryDirectory() as place:
        path = Path(place) / "tokenizer.json"
        path.write_text(definition, encoding="utf-8")
        return Tokenizer.from_hub(path)


@cache
def poor() -> Tokenizer:
    """A vocabulary without tokens for some control characters, as SmolLM2's is, and for `é`."""
    data = json.loads(tokenizer_json(SMOLLM))
    # byte-level BPE's stand-ins of the bytes 0x04, 0x1d, 0xc3 and 0xf1
    for stand_in in (chr(256 + 0x04), chr(256 + 0x1D), "\u00c3", "\u00f1"):
        holes = [token for token in data["model"]["vocab"] if stand_in in token]
        for token in holes:
            del data["model"]["vocab"][token]
    vocab = data["model"]["vocab"]
    data["model"]["merges"] = [
        (a, b) for a, b in data["model"]["merges"] if {a, b, a + b} <= vocab.keys()
    ]
    return _built(json.dumps(data))


BOTH = pytest.mark.parametrize("pre_tokenizer", [QWEN, SMOLLM])
ANY_TEXT = st.text(st.characters(exclude_categories=[]), max_size=60)
_SCRAPS = (
    "def ",
    "\r\n",
    "\n",
    "    ",
    "\t",
    "é",
    "e\u0301",
    "中文",
    "🎉",
    "👩\u200d💻",
    "１２",
    "'re",
    "x",
)
CODE_TEXT = st.lists(st.sampled_from([*_SCRAPS, *SPECIALS[:3]]), max_size=25).map("".join)


@BOTH
@settings(max_examples=150, deadline=None)
@given(text=ANY_TEXT | CODE_TEXT)
def test_round_trip_is_exact(pre_tokenizer: str, text: str) -> None:
    tokenizer = tiny(pre_tokenizer)
    expected = text.encode("utf-8", "replace")
    ids = tokenizer.encode(text)
    assert tokenizer.spell(ids) == expected
    assert tokenizer.decode(ids) == expected.decode()
    assert not set(ids) & set(tokenizer.special_ids.values())


@settings(max_examples=150, deadline=None)
@given(text=ANY_TEXT | CODE_TEXT)
def test_what_has_no_token_becomes_one_question_mark(text: str) -> None:
    tokenizer = poor()
    clean = tokenizer.clean(text)
    assert len(clean) == len(text) and tokenizer.clean(clean) == clean
    assert tokenizer.spell(tokenizer.encode(text)) == clean.encode()
    missing = {0x04, 0x1D, 0xC3, 0xF1}
    for before, after in zip(text, clean, strict=True):
        lost = "\ud800" <= before <= "\udfff" or missing & set(before.encode("utf-8"))
        assert after == ("?" if lost else before)


def test_lone_surrogates_keep_offsets() -> None:
    tokenizer = tiny()
    assert tokenizer.clean("a\ud83db\udc00\U0001f389") == "a?b?🎉"
    assert tokenizer.decode(tokenizer.encode("a\ud83d")) == "a?"


@pytest.mark.parametrize("special", SPECIALS)
def test_a_special_token_in_user_text_is_plain_text(special: str) -> None:
    tokenizer = tiny()
    number = tokenizer.special(special)
    assert number is not None and tokenizer.token_bytes[number] == b""
    ids = tokenizer.encode(f"x = '{special}'")
    assert number not in ids and tokenizer.decode(ids) == f"x = '{special}'"
    assert tokenizer.spell([number, *tokenizer.encode("a"), number]) == b"a"


@BOTH
@settings(max_examples=60, deadline=None)
@given(text=ANY_TEXT | CODE_TEXT)
def test_no_token_crosses_a_piece(pre_tokenizer: str, text: str) -> None:
    tokenizer = tiny(pre_tokenizer)
    starts = tokenizer.pieces(text)
    assert starts == sorted(set(starts)) and (starts[:1] == [0] or not text)
    clean = tokenizer.clean(text)
    edges, at = set(), 0
    for token in tokenizer.encode(text):
        edges.add(at)
        at += len(tokenizer.token_bytes[token])
    assert {len(clean[:start].encode()) for start in starts} <= edges


def brute_force(tokenizer: Tokenizer, wanted: bytes) -> list[int]:
    return [
        number
        for number, spelled in enumerate(tokenizer.token_bytes)
        if spelled and (spelled.startswith(wanted) or wanted.startswith(spelled))
    ]


@pytest.mark.parametrize("make", [tiny, poor])
def test_spelling_is_complete(make: Callable[[], Tokenizer]) -> None:
    tokenizer = make()
    words = [word for word in tokenizer.token_bytes if word]
    chooser = random.Random(1)
    wanted = [b"", b"\xff", b"\xff" * 9, b"\x00", b"    ", b"zzzz", "中文字".encode(), *words]
    wanted += [word[: chooser.randint(1, len(word))] for word in words]
    wanted += [chooser.choice(words) + chooser.choice(words)[:2] for _ in range(200)]
    for target in wanted:
        found = tokenizer.spelling(target)
        assert sorted(found) == brute_force(tokenizer, target), target


def test_decode_leaves_out_a_character_cut_at_an_edge() -> None:
    tokenizer = tiny()
    single = {word: n for n, word in enumerate(tokenizer.token_bytes) if len(word) == 1}
    ids = [single[bytes([b])] for b in "é中x".encode()]
    assert tokenizer.decode(ids[1:]) == "中x"
    assert tokenizer.decode(ids[:4]) == "é"
    assert tokenizer.decode([]) == ""


@BOTH
def test_gguf_and_hub_give_one_tokenizer(tmp_path: Path, pre_tokenizer: str) -> None:
    folder = make_folder(tmp_path / "model", layers=1, pre_tokenizer=pre_tokenizer)
    one = load_tokenizer(open_checkpoint(folder))
    other = load_tokenizer(open_checkpoint(make_gguf(tmp_path / "model.gguf", folder)))
    again = Tokenizer(other.to_json())
    for text in ("don't  stop\r\n\tx1234 = '中文🎉'\n\n", Path(__file__).read_text()[:4000]):
        assert one.encode(text) == other.encode(text) == again.encode(text)
        assert one.pieces(text) == other.pieces(text)
    assert one.special_ids == other.special_ids == again.special_ids
    assert one.token_bytes == other.token_bytes == again.token_bytes


def test_the_prompt_style_follows_from_the_special_tokens() -> None:
    style, known = style_of(tiny()), tiny().special_ids
    before, between, middle = (known[f"<|fim_{x}|>"] for x in ("prefix", "suffix", "middle"))
    assert style.trained and style.start_ids == ()
    assert style.order([1, 2], [3]) == [before, 1, 2, between, 3, middle]
    assert set(style.end_ids) == set(known.values()) - {before, between, middle}
    data = json.loads(tokenizer_json())
    data["added_tokens"] = [t for t in data["added_tokens"] if "fim" not in t["content"]]
    plain = style_of(_built(json.dumps(data)))
    assert not plain.trained
    assert plain.order([1, 2], [3]) == [known["<|endoftext|>"], 1, 2]


def _without(key: str) -> str:
    data = json.loads(tokenizer_json())
    del data[key]
    return json.dumps(data)


def _with_model(**changes: object) -> str:
    data = json.loads(tokenizer_json())
    data["model"] |= changes
    return json.dumps(data)


def _with_prefix_space() -> str:
    data = json.loads(tokenizer_json(SMOLLM))
    data["pre_tokenizer"]["pretokenizers"][1]["add_prefix_space"] = True
    return json.dumps(data)


@pytest.mark.parametrize(
    ("definition", "named"),
    [
        (lambda: "{", "not a tokenizer definition"),
        (lambda: "[]", "not a tokenizer definition"),
        (lambda: _without("model"), "not a tokenizer definition"),
        (lambda: _without("pre_tokenizer"), "not a tokenizer definition"),
        (lambda: _with_model(type="Unigram"), "Unigram"),
        (lambda: _with_model(vocab={"▁the": 0}), "byte-level"),
        (lambda: _with_model(merges=[["no", "such"]]), "not usable"),
        (_with_prefix_space, "changes text"),
    ],
)
def test_another_kind_of_tokenizer_is_refused(definition: Callable[[], str], named: str) -> None:
    with pytest.raises(WeightsError, match=named) as caught:
        _built(definition())
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"tokenizer.ggml.model": "llama"}, "llama"),
        ({"tokenizer.ggml.pre": "exotic"}, "exotic"),
        ({"tokenizer.ggml.merges": None}, "incomplete"),
        ({"tokenizer.ggml.token_type": [1]}, "incomplete"),
    ],
)
def test_another_gguf_tokenizer_is_refused(
    tmp_path: Path, changes: dict[str, object], named: str
) -> None:
    folder = make_folder(tmp_path / "model", layers=1)
    meta = open_checkpoint(make_gguf(tmp_path / "model.gguf", folder)).tokenizer
    assert isinstance(meta, dict)
    with pytest.raises(WeightsError, match=named):
        Tokenizer.from_gguf(meta | changes)
