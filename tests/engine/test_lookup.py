from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from engine.lookup import MAX_RUN, SIZES, Lookup, Remembered

BARRIER = 9
tokens = st.lists(st.integers(0, 4) | st.just(BARRIER), max_size=40)


def _naive(ids: list[int], barriers: frozenset[int], limit: int) -> tuple[int, list[int]]:
    """The definition, by search: longest match first, its latest earlier place."""
    for size in SIZES:
        gram = ids[-size:]
        if len(gram) < size or barriers & set(gram):
            continue
        places = [at for at in range(size, len(ids)) if ids[at - size : at] == gram]
        places = [at for at in places if ids[at] not in barriers]
        if not places:
            continue
        found: list[int] = []
        for token_id in ids[places[-1] : places[-1] + limit]:
            if token_id in barriers:
                break
            found.append(token_id)
        if found:
            return size, found
    return 0, []


@given(tokens, st.integers(0, 9))
def test_equals_a_naive_search(ids: list[int], limit: int) -> None:
    barriers = frozenset({BARRIER})
    assert Lookup(ids, barriers).guess(limit) == _naive(ids, barriers, limit)


@given(tokens, tokens)
def test_growing_equals_building(first: list[int], more: list[int]) -> None:
    grown = Lookup(first, frozenset({BARRIER}))
    for token_id in more:
        grown.append(token_id)
    assert grown.guess(5) == Lookup([*first, *more], frozenset({BARRIER})).guess(5)


@given(tokens, st.integers(0, 9))
def test_never_guesses_a_barrier_nor_beyond_the_limit(ids: list[int], limit: int) -> None:
    match, found = Lookup(ids, frozenset({BARRIER})).guess(limit)
    assert BARRIER not in found
    assert len(found) <= limit
    assert (match == 0) == (not found)


def test_the_longest_match_wins_then_the_latest() -> None:
    ids = [1, 2, 3, 4, 50, 7, 3, 4, 60, 8, 3, 4, 70, 1, 2, 3, 4]
    assert Lookup(ids, frozenset()).guess(1) == (4, [50])
    assert Lookup([*ids[:-2], 0, 3, 4], frozenset()).guess(1) == (2, [70])


def test_nothing_to_go_by() -> None:
    assert Lookup([], frozenset()).guess(4) == (0, [])
    assert Lookup([1], frozenset()).guess(4) == (0, [])
    assert Lookup([1, 2, 3], frozenset()).guess(4) == (0, [])


def test_a_remembered_text_is_followed_from_its_start() -> None:
    remembered = Remembered([1, 2, 3, 4])
    assert remembered.guess(9) == (0, []), "nothing says yet that it comes again"
    remembered.follow([1])
    assert remembered.guess(9) == (MAX_RUN, [2, 3, 4])
    remembered.follow([1, 2, 3])
    assert remembered.guess(9) == (MAX_RUN, [4])
    assert remembered.guess(0) == (0, [])
    remembered.follow([1, 2, 3, 4])
    assert remembered.guess(9) == (0, [])


def test_what_was_put_in_is_passed_by_and_what_was_left_out_is_skipped() -> None:
    remembered = Remembered([1, 2, 3, 4, 5, 6])
    remembered.follow([1, 50])
    assert remembered.guess(9) == (0, [])
    remembered.follow([1, 50, 2])
    assert remembered.guess(9) == (1, [3, 4, 5, 6])
    remembered.follow([1, 50, 2, 5])
    assert remembered.guess(9) == (1, [6])


def test_a_repair_that_takes_tokens_back_is_followed() -> None:
    remembered = Remembered([1, 2, 3, 4])
    remembered.follow([1, 2, 3])
    remembered.follow([1])
    assert remembered.guess(2) == (MAX_RUN, [2, 3])


@given(st.lists(st.integers(0, 5), max_size=12), st.lists(st.integers(0, 5), max_size=12))
def test_a_remembered_guess_always_continues_a_token_just_seen(
    ids: list[int], committed: list[int]
) -> None:
    remembered = Remembered(ids)
    remembered.follow(committed)
    match, found = remembered.guess(20)
    assert (match == 0) == (not found)
    if found:
        start = len(ids) - len(found)
        assert ids[start:] == found
        run = 1 if match == MAX_RUN else match
        assert ids[start - run : start] == committed[-run:]
