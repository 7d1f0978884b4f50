from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor

from engine.canvas import Canvas, Committed
from engine.choice import NEAR_TIE, Chooser, Vocabulary
from engine.hole import Hole
from engine.prompt import style_of
from engine.request import InfillRequest
from engine.tokenizer import Tokenizer
from tests.engine.tiny_base import tokenizer_json


@pytest.fixture(scope="module")
def vocabulary(tmp_path_factory: pytest.TempPathFactory) -> Vocabulary:
    path = Path(tmp_path_factory.mktemp("tokenizer")) / "tokenizer.json"
    path.write_text(tokenizer_json(), encoding="utf-8")
    tokenizer = Tokenizer.from_hub(path)
    return Vocabulary(tokenizer, style_of(tokenizer), tokenizer.size + 24)


def _chooser(
    vocabulary: Vocabulary, prefix: str = "x = ", temperature: float = 0.0, seed: int = 0
) -> Chooser:
    hole = Hole.of(InfillRequest(prefix=prefix))
    return Chooser(vocabulary, hole, temperature, seed)


def _rows(vocabulary: Vocabulary) -> int:
    return len(vocabulary.writable)


def _logits(vocabulary: Vocabulary, seed: int = 0) -> Tensor:
    return torch.randn(_rows(vocabulary), generator=torch.Generator().manual_seed(seed)) * 3


def _single(vocabulary: Vocabulary, spelled: bytes) -> int:
    return vocabulary.tokenizer.token_bytes.index(spelled)


def _commit(canvas: Canvas, token_id: int) -> None:
    canvas.commit(Committed(token_id=token_id, source="base", forward=0, probability=1.0))


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_markers_and_unused_rows_are_never_chosen(
    vocabulary: Vocabulary, temperature: float
) -> None:
    chooser = _chooser(vocabulary, temperature=temperature)
    ends = set(vocabulary.style.end_ids)
    forbidden = [
        i
        for i in range(_rows(vocabulary))
        if i not in ends
        and (i >= vocabulary.tokenizer.size or not vocabulary.tokenizer.token_bytes[i])
    ]
    assert len(forbidden) > 24
    logits = _logits(vocabulary)
    logits[forbidden] = 50.0
    for seed in range(10):
        chooser.seed = seed
        chosen = chooser.choose(logits, Canvas(vocabulary.tokenizer, b""))
        assert chosen.token_id not in forbidden
    assert chooser.probability(logits, Canvas(vocabulary.tokenizer, b""), forbidden[0]) == 0.0


def test_the_middle_may_end_but_not_while_something_must_be_said(vocabulary: Vocabulary) -> None:
    logits = _logits(vocabulary)
    end = vocabulary.style.end_ids[0]
    logits[end] = 50.0
    said = _chooser(vocabulary, prefix="x = ")
    assert said.choose(logits, Canvas(vocabulary.tokenizer, b"")).token_id == end
    assert said.is_end(end)
    blank = _chooser(vocabulary, prefix="if x:\n    ")
    assert blank.choose(logits, Canvas(vocabulary.tokenizer, b"")).token_id != end
    healing = Canvas(vocabulary.tokenizer, b"retur")
    assert said.choose(logits, healing).token_id != end


def test_a_blank_line_is_not_ended_before_it_speaks(vocabulary: Vocabulary) -> None:
    table = vocabulary.tokenizer.token_bytes
    breaks = [i for i, b in enumerate(table) if b"\n" in b and not b.strip()]
    assert len(breaks) > 1
    logits = _logits(vocabulary)
    logits[breaks] = 50.0
    chooser, canvas = _chooser(vocabulary, prefix="if x:\n"), Canvas(vocabulary.tokenizer, b"")
    for position in range(40):
        chosen = chooser.choose(logits, canvas)
        assert chosen.token_id not in breaks, position
        _commit(canvas, chosen.token_id)
        if canvas.text.strip():
            break
    assert canvas.text.strip()
    assert chooser.choose(logits, canvas).token_id in breaks  # now it may


@pytest.mark.parametrize(
    "spell", [b"retur", b" foo", "中文".encode(), "🎉".encode(), b"\n", b"():\n"]
)
@pytest.mark.parametrize("prefix", ["x = ", "def f():\n"])
@pytest.mark.parametrize("temperature", [0.0, 1.5])
def test_healing_spells_what_was_dropped_before_anything_new(
    vocabulary: Vocabulary, spell: bytes, prefix: str, temperature: float
) -> None:
    for seed in range(6):
        canvas = Canvas(vocabulary.tokenizer, spell)
        chooser = _chooser(vocabulary, prefix, temperature, seed)
        while canvas.unspelled:
            before = len(canvas.spelled)
            logits = _logits(vocabulary, seed + 100 * before)
            _commit(canvas, chooser.choose(logits, canvas).token_id)
            assert len(canvas.spelled) > before
            assert canvas.spelled.startswith(spell) or spell.startswith(canvas.spelled)
        rest = canvas.spelled[len(spell) :]
        if prefix.endswith("\n"):  # a blank line: what lies behind the spelled part must speak
            assert not (b"\n" in rest and not rest.strip())


def test_a_banned_token_is_not_chosen_again_there(vocabulary: Vocabulary) -> None:
    logits, chooser = _logits(vocabulary), _chooser(vocabulary)
    canvas = Canvas(vocabulary.tokenizer, b"")
    first = chooser.choose(logits, canvas).token_id
    canvas.ban(0, first)
    second = chooser.choose(logits, canvas).token_id
    assert second != first
    canvas.ban(0, second)
    assert chooser.choose(logits, canvas).token_id not in (first, second)
    assert chooser.probability(logits, canvas, first) == 0.0
    _commit(canvas, second)
    assert chooser.choose(logits, canvas).token_id == first  # elsewhere it is free


def test_the_only_way_to_spell_is_taken_even_if_it_is_banned(vocabulary: Vocabulary) -> None:
    # a byte that no longer token begins with: its own token is the only candidate
    spelled = vocabulary.tokenizer.token_bytes
    lonely = next(
        b
        for b in (bytes([n]) for n in range(256))
        if sum(s.startswith(b) for s in spelled) == 1 and b in spelled
    )
    only = _single(vocabulary, lonely)
    for temperature in (0.0, 1.0):
        canvas = Canvas(vocabulary.tokenizer, lonely)
        canvas.ban(0, only)
        chosen = _chooser(vocabulary, temperature=temperature).choose(_logits(vocabulary), canvas)
        assert (chosen.token_id, chosen.probability) == (only, 1.0)


def test_the_choice_leaves_the_logits_alone(vocabulary: Vocabulary) -> None:
    logits = _logits(vocabulary)
    before = logits.clone()
    canvas = Canvas(vocabulary.tokenizer, b"re")
    canvas.ban(0, 5)
    _chooser(vocabulary).choose(logits, canvas)
    _chooser(vocabulary).choose(logits, Canvas(vocabulary.tokenizer, b""))
    assert torch.equal(logits, before)


def _sampled(vocabulary: Vocabulary, seed: int, length: int = 12) -> list[int]:
    chooser = _chooser(vocabulary, temperature=1.0, seed=seed)
    canvas = Canvas(vocabulary.tokenizer, b"")
    logits = torch.zeros(_rows(vocabulary))
    for _ in range(length):
        _commit(canvas, chooser.choose(logits, canvas).token_id)
    return canvas.ids


def test_sampling_is_fixed_by_seed_and_position(vocabulary: Vocabulary) -> None:
    torch.manual_seed(1)
    first = _sampled(vocabulary, seed=3)
    torch.manual_seed(2)
    assert _sampled(vocabulary, seed=3) == first
    assert _sampled(vocabulary, seed=4) != first
    assert len(set(first)) > 6  # positions do not repeat one draw


@pytest.mark.parametrize("seed", [-1, 0, 2**31, 2**64 + 5, 10**30])
def test_any_seed_will_do(vocabulary: Vocabulary, seed: int) -> None:
    assert _sampled(vocabulary, seed, 3) == _sampled(vocabulary, seed, 3)


def test_sampling_follows_the_distribution(vocabulary: Vocabulary) -> None:
    a, b = _single(vocabulary, b"a"), _single(vocabulary, b"b")
    logits = torch.full((_rows(vocabulary),), -30.0)
    logits[a], logits[b] = 1.0, 0.0
    canvas = Canvas(vocabulary.tokenizer, b"")
    picks = [
        _chooser(vocabulary, temperature=1.0, seed=s).choose(logits, canvas).token_id
        for s in range(300)
    ]
    assert set(picks) == {a, b}
    assert 0.6 < picks.count(a) / 300 < 0.86  # 0.73 is expected
    chosen = _chooser(vocabulary, temperature=1e-30).choose(logits, canvas)
    assert (chosen.token_id, chosen.probability) == (a, 1.0)


def test_near_ties_are_counted(vocabulary: Vocabulary) -> None:
    a, b = _single(vocabulary, b"a"), _single(vocabulary, b"b")
    chooser, canvas = _chooser(vocabulary), Canvas(vocabulary.tokenizer, b"")
    logits = torch.zeros(_rows(vocabulary))
    logits[a], logits[b] = 5.0, 5.0 - NEAR_TIE / 2
    chosen = chooser.choose(logits, canvas)
    assert (chosen.token_id, chosen.near_tie, chooser.near_ties) == (a, True, 1)
    logits[b] = 5.0 - NEAR_TIE * 4
    assert not chooser.choose(logits, canvas).near_tie
    assert chooser.near_ties == 1
    # a tie with something that may not come next is none
    logits[vocabulary.tokenizer.size + 1] = 5.0
    assert not chooser.choose(logits, canvas).near_tie


def test_the_probability_is_among_what_is_allowed(vocabulary: Vocabulary) -> None:
    logits, chooser = _logits(vocabulary), _chooser(vocabulary)
    canvas = Canvas(vocabulary.tokenizer, b"re")
    chosen = chooser.choose(logits, canvas)
    total = sum(
        chooser.probability(logits, canvas, i) for i in vocabulary.tokenizer.spelling(b"re")
    )
    assert total == pytest.approx(1.0, abs=1e-4)
    assert chosen.probability == pytest.approx(
        chooser.probability(logits, canvas, chosen.token_id), abs=1e-6
    )
