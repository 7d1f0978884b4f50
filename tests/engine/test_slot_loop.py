"""The denoising loop on a toy model: what holds for every canvas, and each rule by itself.

`CANVASES=10000 pytest tests/engine/test_slot_loop.py -k random` runs so many through every policy;
by default it is a few hundred.
"""

from __future__ import annotations

import os
import random
from typing import get_args

import pytest
import torch

from engine import lengths
from engine.lengths import Length
from engine.policy import POLICIES
from engine.request import InfillRequest, RemaskName
from engine.sampling import gumbel
from engine.slot_canvas import SlotCanvas
from engine.slot_loop import MOST_AGAIN, REMASKS, Denoising, SlotLoop
from engine.slot_rules import SlotVocabulary
from tests.engine.toy_denoiser import MOST, ToyModel, rules, vocabulary

CANVASES = int(os.environ.get("CANVASES", "150"))
KINDS = ("plain", "ends", "grow", "edits")


def never() -> None:
    """Nothing stops the loop but the canvas."""


class Case:
    """A random canvas: its kind of length, some pinned slots, and a model of its own."""

    def __init__(self, seed: int) -> None:
        rng = random.Random(seed)
        self.kind = KINDS[seed % len(KINDS)]
        self.words = vocabulary(edits=self.kind == "edits")
        self.slots, self.most = rng.randint(1, 5), rng.randint(1, 8)
        grow = rng.randint(1, 3) if self.kind == "grow" else 0
        ends = self.kind in ("ends", "grow")
        self.length = Length(slots=self.slots, ends=ends, edits=self.kind == "edits", grow=grow)
        text = self.words.line.nonzero()[:, 0].tolist()
        self.pins = {n: rng.choice(text) for n in range(self.slots) if rng.random() < 0.25}
        family = self.words.family
        controls = (*family.end_ids, *((family.expand_id,) if family.expand_id else ()))
        self.model = ToyModel(self.words, seed % 97, likes=controls)
        self.how = Denoising(
            strength=rng.choice((None, rng.random() * 3)),
            left_bias=rng.choice((0.0, 0.5)),
            remask=rng.choice(get_args(RemaskName)),
            temperature=rng.choice((0.0, 0.9)),
            seed=seed,
        )

    def canvas(self) -> SlotCanvas:
        mask_id = self.words.family.mask_id
        assert mask_id is not None
        canvas = SlotCanvas(self.slots, mask_id, self.most)
        for slot, token_id in self.pins.items():
            canvas.pin(slot, token_id)
        return canvas

    def run(self, how: Denoising) -> tuple[SlotCanvas, SlotLoop, str]:
        canvas = self.canvas()
        loop = SlotLoop(self.model, rules(self.words, self.length), how)
        return canvas, loop, loop.run(canvas, never)


def with_policy(how: Denoising, policy: str) -> Denoising:
    return Denoising(
        policy=policy,
        strength=how.strength,
        left_bias=how.left_bias,
        remask="none" if policy == "speculative" else how.remask,
        temperature=how.temperature,
        seed=how.seed,
    )


@pytest.mark.timeout(7200)
@pytest.mark.parametrize("policy", POLICIES)
def test_random_canvases(policy: str) -> None:
    ended = grown = 0
    for seed in range(CANVASES):
        case = Case(seed)
        how = with_policy(case.how, policy)
        case.model.seen.clear()
        canvas, loop, reason = case.run(how)
        assert canvas.closed, seed
        assert reason in ("stop", "length")
        text, mask = case.words.text, canvas.mask_id
        assert bool(text[canvas.ids].all()), seed  # no special token in the end
        for ids in case.model.seen:  # nor ever on the way
            assert all(i == mask or bool(text[i]) for i in ids), seed
        assert canvas.ids[canvas.pinned].tolist() == list(case.pins.values()), seed
        # every slot at most once and as often again as it is masked again
        bound = (max(case.most, case.slots) + case.slots) * (1 + MOST_AGAIN)
        assert loop.steps <= 2 * bound, seed
        assert len(canvas) <= max(case.most, case.slots)
        ended += len(canvas) < case.slots
        grown += len(canvas) > case.slots
        if seed % 3 == 0:
            assert case.run(how)[0].ids.tolist() == canvas.ids.tolist(), seed
    assert ended > 0 < grown


def naive(case: Case, seed: int | None, temperature: float) -> list[int]:
    """One token per step, the most probable slot first, in plain lists."""
    words, family = case.words, case.words.family
    mask = family.mask_id
    assert mask is not None
    slots = [case.pins.get(n, mask) for n in range(case.slots)]
    fixed = [n in case.pins for n in range(case.slots)]
    most, spent, turn, ended = max(case.slots, case.most), 0, 0, False

    def room() -> int:
        return min(most - len(slots), most - spent)

    while mask in slots:
        canvas = SlotCanvas(len(slots), mask)
        canvas.ids = torch.tensor(slots)
        logits = case.model.logits(case.model.hidden(canvas))
        allowed = words.line.clone()
        if case.length.ends:
            allowed[list(family.end_ids)] = True
        if case.length.edits:
            allowed[family.delete_id] = True
            allowed[family.expand_id] = room() > 0
        best: tuple[float, int, int] | None = None
        for n in (n for n, i in enumerate(slots) if i == mask):
            row = logits[n].masked_fill(~allowed, float("-inf"))
            if temperature:
                row = row / temperature
            noise = gumbel([n], len(row), seed or 0, turn)[0] if temperature else 0.0
            token_id = int((row + noise).argmax())
            sure = float(row.softmax(-1)[token_id])
            if best is None or sure > best[0] + 1e-7:
                best = sure, n, token_id
        assert best is not None
        _, at, token_id = best
        turn += 1
        slots[at] = token_id
        if case.length.ends and token_id in family.end_ids:
            keep = [n < at or fixed[n] for n in range(len(slots))]
            ended = True
        elif case.length.edits and token_id == family.delete_id:
            keep = [n != at and not (n > at and i == mask) for n, i in enumerate(slots)]
        elif case.length.edits and token_id == family.expand_id:
            slots[at : at + 1], fixed[at : at + 1] = [mask, mask], [False, False]
            spent += 1
            continue
        else:
            keep = [True] * len(slots)
        slots = [i for i, stays in zip(slots, keep, strict=True) if stays]
        fixed = [f for f, stays in zip(fixed, keep, strict=True) if stays]
        if mask not in slots and case.length.grow and not ended and room() > 0:
            more = min(case.length.grow, room())
            slots, fixed, spent = slots + [mask] * more, fixed + [False] * more, spent + more
    return slots


@pytest.mark.timeout(7200)
@pytest.mark.parametrize("policy", ["one_per_step", "speculative"])
def test_one_per_step_is_the_naive_loop_on_random_canvases(policy: str) -> None:
    for seed in range(CANVASES):
        case = Case(seed)
        if len(case.pins) == case.slots and case.length.grow:
            continue  # the naive loop begins with an open slot
        temperature = case.how.temperature
        how = Denoising(policy=policy, temperature=temperature, seed=seed, strength=3)
        assert case.run(how)[0].ids.tolist() == naive(case, seed, temperature), seed


def _canvas(words: SlotVocabulary, slots: int, most: int | None = None) -> SlotCanvas:
    assert words.family.mask_id is not None
    return SlotCanvas(slots, words.family.mask_id, most)


def _id(words: SlotVocabulary, text: str) -> int:
    (found,) = words.tokenizer.encode(text)
    return found


class Scripted:
    """Gives each slot the logits of a script: {slot: {token: logit}} per forward, the last for
    good; every other token is as unlikely as the rest."""

    def __init__(self, words: SlotVocabulary, *steps: dict[int, dict[int, float]]) -> None:
        self.words, self.steps, self.forwards = words, steps, 0

    def hidden(self, canvas: SlotCanvas) -> torch.Tensor:
        step = self.steps[min(self.forwards, len(self.steps) - 1)]
        self.forwards += 1
        rows = torch.zeros(len(canvas), self.words.rows)
        for slot, logits in ((n, step[n]) for n in step if n < len(canvas)):
            for token_id, logit in logits.items():
                rows[slot, token_id] = logit
        return rows

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        return hidden

    def reach(self, canvas: SlotCanvas) -> int:
        return len(canvas)


def test_a_forbidden_token_is_not_chosen_however_likely() -> None:
    words = vocabulary()
    mask, end, a = words.family.mask_id, words.family.eos_id, _id(words, "a")
    assert mask is not None and end is not None
    model = Scripted(words, {0: {mask: 90.0, end: 80.0, a: 5.0}})
    canvas = _canvas(words, 1)
    loop = SlotLoop(model, rules(words, Length(slots=1)), Denoising())
    assert loop.run(canvas, never) == "stop"
    assert canvas.ids.tolist() == [a]
    # nor has it a share of the probability
    assert float(canvas.probability[0]) > 0.15


def test_a_model_of_nans_writes_text_all_the_same() -> None:
    words = vocabulary()
    nan = float("nan")
    model = Scripted(words, {n: dict.fromkeys(range(words.rows), nan) for n in range(3)})
    for policy in POLICIES:
        canvas = _canvas(words, 3)
        how = Denoising(policy=policy)
        assert SlotLoop(model, rules(words, Length(slots=3)), how).run(canvas, never) == "stop"
        assert bool(words.text[canvas.ids].all())


def test_deletion_spreads_to_the_open_slots_on_the_right() -> None:
    words = vocabulary(edits=True)
    a, b, delete = _id(words, "a"), _id(words, "b"), words.family.delete_id
    assert delete is not None
    first = {0: {a: 30.0}, 1: {}, 2: {delete: 30.0}, 3: {}, 4: {b: 30.0}}
    canvas = _canvas(words, 5)
    loop = SlotLoop(
        Scripted(words, first, {0: {a: 30.0}, 1: {a: 30.0}}),
        rules(words, Length(slots=5, edits=True)),
        Denoising(policy="confidence"),
    )
    assert loop.run(canvas, never) == "stop"
    # slot 3 went with slot 2; slot 1 on the left and the token in slot 4 stay
    assert canvas.ids.tolist() == [a, a, b]


def test_expansion_has_a_cap() -> None:
    words = vocabulary(edits=True)
    expand, a = words.family.expand_id, _id(words, "a")
    assert expand is not None
    model = Scripted(words, {n: {expand: 50.0, a: 20.0} for n in range(MOST)})
    canvas = _canvas(words, 2, most=6)
    loop = SlotLoop(model, rules(words, Length(slots=2, edits=True)), Denoising())
    assert loop.run(canvas, never) == "stop"
    assert canvas.ids.tolist() == [a] * 6
    assert model.forwards == 10  # four expansions, six tokens


def test_an_end_takes_out_what_is_behind_it_but_no_pinned_slot() -> None:
    words = vocabulary()
    a, b, end = _id(words, "a"), _id(words, "b"), words.family.eos_id
    assert end is not None
    canvas = _canvas(words, 5)
    canvas.pin(4, b)
    model = Scripted(words, {0: {a: 9.0}, 1: {end: 20.0}, 2: {a: 30.0}})
    loop = SlotLoop(model, rules(words, Length(slots=5, ends=True)), Denoising())
    assert loop.run(canvas, never) == "stop"
    assert canvas.ids.tolist() == [a, b]


def test_a_canvas_without_an_end_grows_up_to_its_cap() -> None:
    words = vocabulary()
    a, end = _id(words, "a"), words.family.eos_id
    assert end is not None
    length = Length(slots=2, ends=True, grow=2)
    endless = Scripted(words, {n: {a: 30.0} for n in range(MOST)})
    canvas = _canvas(words, 2, most=5)
    assert SlotLoop(endless, rules(words, length), Denoising()).run(canvas, never) == "length"
    assert canvas.ids.tolist() == [a] * 5
    ending = Scripted(words, {n: {a: 30.0} for n in range(3)} | {3: {end: 31.0}})
    canvas = _canvas(words, 2, most=20)
    assert SlotLoop(ending, rules(words, length), Denoising()).run(canvas, never) == "stop"
    assert canvas.ids.tolist() == [a] * 3


@pytest.mark.parametrize(("want", "breaks"), [("line", False), ("block", True)])
def test_a_line_has_no_line_break(want: str, breaks: bool) -> None:
    words = vocabulary()
    newline, a = _id(words, "\n"), _id(words, "a")
    request = InfillRequest(prefix="x = ", suffix="\ny\n", want=want, healing=False)  # type: ignore[arg-type]
    model = Scripted(words, {0: {a: 30.0}, 1: {newline: 29.0, a: 20.0}, 2: {a: 28.0}})
    canvas = _canvas(words, 3)
    made = rules(words, Length(slots=3), request)
    SlotLoop(model, made, Denoising()).run(canvas, never)
    assert ("\n" in words.tokenizer.decode(canvas.ids.tolist())) == breaks


def test_a_stop_string_ends_the_text_before_the_canvas_is_full() -> None:
    words = vocabulary()
    a, semicolon = _id(words, "a"), _id(words, ";")
    request = InfillRequest(prefix="x = ", suffix="\n", stop=(";",), healing=False)
    model = Scripted(words, {0: {a: 30.0}, 1: {semicolon: 25.0}, 2: {a: 20.0}})
    canvas = _canvas(words, 3)
    made = rules(words, Length(slots=3), request)
    assert SlotLoop(model, made, Denoising()).run(canvas, never) == "stop"
    assert not canvas.closed
    assert made.text(canvas) == "a;"


@pytest.mark.parametrize("slots", [1, 2, 6])
@pytest.mark.parametrize("policy", ["one_per_step", "confidence", "speculative"])
@pytest.mark.parametrize(
    ("prefix", "suffix"),
    [("total_am", "\n"), ("x = to", "tal + 1\n"), ("x = ", "total\n"), ("naïve_中", "文 = 1\n")],
)
def test_both_edges_are_spelled(slots: int, policy: str, prefix: str, suffix: str) -> None:
    from engine.healing import heal_left

    words = vocabulary()
    for seed in range(6):
        request = InfillRequest(prefix=prefix, suffix=suffix)
        spell = heal_left(words.tokenizer, prefix).spell
        made = rules(words, Length(slots=slots), request, spell)
        canvas = _canvas(words, slots, most=8)
        model = ToyModel(words, seed)
        SlotLoop(model, made, Denoising(policy=policy)).run(canvas, never)
        spelled = words.tokenizer.spell(canvas.ids.tolist())
        if not canvas.closed:  # ended early: from the left it is right so far
            spelled = made.spelled(canvas)
            assert spelled.startswith(spell)
            continue
        assert spelled.startswith(spell)
        assert spelled.endswith(made.hole.word.encode())
        # the two do not stand on the same bytes
        assert len(spelled) >= len(spell) + len(made.hole.word.encode())


def test_the_leftmost_first_with_a_large_bias() -> None:
    words = vocabulary()
    order: list[list[int]] = []

    def note(canvas: SlotCanvas, turn: int, words_: str) -> None:
        order.append(canvas.open.int().tolist())

    canvas = _canvas(words, 4)
    how = Denoising(left_bias=1e3)
    SlotLoop(ToyModel(words, 3), rules(words, Length(slots=4)), how, note).run(canvas, never)
    assert order == [[0, 1, 1, 1], [0, 0, 1, 1], [0, 0, 0, 1], [0, 0, 0, 0]]


def test_speculation_takes_fewer_rounds() -> None:
    """Where a slot's best token does not depend on the others, the drafts all stand."""
    words = vocabulary()
    ids = [_id(words, letter) for letter in "abcdef"]
    model = Scripted(words, {n: {i: 30.0 - n} for n, i in enumerate(ids)})
    canvas = _canvas(words, 6)
    loop = SlotLoop(
        model, rules(words, Length(slots=6)), Denoising(policy="speculative", strength=3)
    )
    assert loop.run(canvas, never) == "stop"
    assert canvas.ids.tolist() == ids
    assert loop.steps == 2


@pytest.mark.parametrize("remask", ["remdm", "score"])
def test_remasking_takes_tokens_back_and_ends(remask: RemaskName) -> None:
    words = vocabulary()
    taken = 0
    for seed in range(20):
        canvas = _canvas(words, 6)
        how = Denoising(remask=remask, seed=seed)
        loop = SlotLoop(ToyModel(words, seed), rules(words, Length(slots=6)), how)
        assert loop.run(canvas, never) == "stop"
        taken += int(canvas.again.sum())
        assert int(canvas.again.max()) <= MOST_AGAIN
    assert taken > 0


def test_the_score_rule_takes_back_what_has_become_unlikely() -> None:
    words = vocabulary()
    a, b = _id(words, "a"), _id(words, "b")
    model = Scripted(
        words,
        {0: {a: 30.0}, 1: {a: 20.0}, 2: {}},
        {0: {b: 30.0}, 1: {a: 28.0}, 2: {}},  # now slot 0 should be b
        {0: {b: 30.0}, 1: {a: 28.0}, 2: {a: 5.0}},
    )
    canvas = _canvas(words, 3)
    loop = SlotLoop(model, rules(words, Length(slots=3)), Denoising(remask="score"))
    loop.run(canvas, never)
    assert canvas.ids.tolist() == [b, a, a]
    assert canvas.again.tolist() == [1, 0, 0]
    assert set(REMASKS) | {"none"} == set(get_args(RemaskName))


def test_the_loop_stops_when_told_to() -> None:
    words = vocabulary()
    rounds = iter(range(100))
    canvas = _canvas(words, 6)
    loop = SlotLoop(ToyModel(words, 1), rules(words, Length(slots=6)), Denoising())
    assert loop.run(canvas, lambda: "deadline" if next(rounds) == 2 else None) == "deadline"
    assert int((~canvas.open).sum()) == 2


def test_first_confidence_is_of_text_only() -> None:
    words = vocabulary()
    end, a = words.family.eos_id, _id(words, "a")
    assert end is not None
    model = Scripted(words, {0: {end: 50.0, a: 50.0}, 1: {a: 50.0}})
    loop = SlotLoop(model, rules(words, Length(slots=2)), Denoising())
    assert loop.first_confidence(_canvas(words, 2)) == pytest.approx(1.0)
    assert model.forwards == loop.steps == 1


@pytest.mark.parametrize(
    ("confidence", "bias", "expected", "forwards"),
    [
        ({2: 0.1, 4: 0.5, 8: 0.2, 16: 0.1, 3: 0.3, 6: 0.9}, (), 6, 6),
        ({2: 0.1, 4: 0.5, 8: 0.2, 16: 0.1, 3: 0.3, 6: 0.4}, (), 4, 6),
        ({2: 0.5, 4: 0.5, 8: 0.5, 16: 0.5, 3: 0.5}, (), 2, 5),  # a tie goes to the shorter
        ({2: 0.1, 4: 0.2, 8: 0.3, 16: 0.4, 12: 0.1}, (), 16, 5),
        # 0.9 where 0.9 is usual says less than 0.4 where 0.2 is
        ({2: 0.9, 4: 0.5, 8: 0.4, 16: 0.1, 6: 0.4, 12: 0.2}, ((2, 0.9), (8, 0.2)), 8, 6),
    ],
)
def test_probing(
    confidence: dict[int, float], bias: lengths.Bias, expected: int, forwards: int
) -> None:
    asked: list[int] = []

    def look(slots: int) -> float:
        asked.append(slots)
        return confidence[slots]

    assert lengths.probe((2, 4, 8, 16), look, bias) == expected
    assert len(asked) == len(set(asked)) == forwards


def test_a_bias_is_measured_away_from_the_truth() -> None:
    samples = [(8, {2: 0.5, 8: 0.9, 32: 0.1}), (20, {2: 0.7, 8: 0.3, 32: 0.3})]
    bias = lengths.measure_bias(samples)
    assert bias == ((2, pytest.approx(0.6)), (8, pytest.approx(0.3)), (32, pytest.approx(0.2)))
    assert lengths.bias_at(bias, 5) == pytest.approx(0.45)
    assert lengths.bias_at(bias, 1) == pytest.approx(0.6)
    assert lengths.bias_at(bias, 99) == pytest.approx(0.2)
    assert lengths.bias_at((), 7) == 1.0


@pytest.mark.parametrize("name", lengths.STRATEGIES)
def test_a_strategy_stays_within_the_most(name: str) -> None:
    made = lengths.strategy(name, None, 5)  # type: ignore[arg-type]
    assert 1 <= made.slots <= 5
    assert all(n <= 5 for n in made.probe)
    assert lengths.strategy(name, 3, 5).slots == 3  # type: ignore[arg-type]
    assert lengths.strategy(name, 3, 5).probe == ()  # type: ignore[arg-type]
