"""Streams keep rows bit for bit; the pool finds the stream that shares most."""

from __future__ import annotations

import pytest
import torch

from engine.cache import TILE, Stream, StreamPool
from engine.model.config import ModelConfig

CONFIG = ModelConfig(
    architecture="qwen2",
    hidden=8,
    intermediate=8,
    layers=2,
    heads=4,
    kv_heads=2,
    head_dim=2,
    vocab=16,
    rope_theta=1e4,
    norm_eps=1e-6,
    context_length=64,
    qkv_bias=True,
)


@pytest.fixture(autouse=True)
def _poison(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows that were never written are NaN, so that using one shows."""
    empty = torch.empty
    monkeypatch.setattr(torch, "empty", lambda *shape: empty(*shape).fill_(float("nan")))


def tensors(stream: Stream, rows: int) -> list[torch.Tensor]:
    return [stream.keys[:, :, :rows], stream.values[:, :, :rows], stream.features[:rows]]


def filled(rows: int, *, capacity: int = 4, seed: int = 0) -> Stream:
    stream = Stream(CONFIG, 3, capacity)
    stream.reserve(rows)
    generator = torch.Generator().manual_seed(seed)
    for tensor in tensors(stream, rows):
        tensor.copy_(torch.randn(tensor.shape, generator=generator))
    stream.ids.extend(range(rows))
    return stream


@pytest.mark.parametrize("rows", [0, 1, TILE - 1, TILE])
@pytest.mark.parametrize("more", [0, 1, 5, TILE, TILE * 3 + 1])
def test_growing_keeps_rows(rows: int, more: int) -> None:
    stream = filled(rows)
    before = [t.clone() for t in tensors(stream, rows)]
    stream.reserve(more)
    assert stream.capacity >= rows + more and len(stream) == rows
    assert stream.capacity % TILE == 0
    assert torch.isfinite(stream.keys).all() and torch.isfinite(stream.values).all()
    assert stream.values.shape[2] == stream.features.shape[0] == stream.capacity
    for old, new in zip(before, tensors(stream, rows), strict=True):
        assert torch.equal(old, new) and torch.isfinite(new).all()


def test_growth_is_geometric() -> None:
    stream, sizes = filled(0), set()
    for token in range(20 * TILE):
        stream.reserve(1)
        stream.ids.append(token)
        sizes.add(stream.capacity)
    assert len(sizes) < 7


def test_truncate_keeps_what_is_before() -> None:
    stream = filled(10)
    before = [t.clone() for t in tensors(stream, 6)]
    stream.truncate(6)
    assert stream.ids == list(range(6))
    assert all(torch.equal(a, b) for a, b in zip(before, tensors(stream, 6), strict=True))
    stream.truncate(6)
    stream.truncate(9)
    assert len(stream) == 6
    assert torch.equal(stream.last_hidden(), stream.features[5, 2][None])


def test_last_hidden_is_a_copy() -> None:
    stream = filled(2)
    kept = stream.last_hidden()
    before = kept.clone()
    stream.features.zero_()
    assert torch.equal(kept, before)


@pytest.mark.parametrize("rows", [0, 3, 12, TILE + 5])
@pytest.mark.parametrize("used", [0, 2, 20])
def test_copy_rows(rows: int, used: int) -> None:
    source, target = filled(TILE + 5, seed=1), filled(used, seed=2)
    target.copy_rows(source, rows)
    assert target.ids == source.ids[:rows]
    for mine, theirs in zip(tensors(target, rows), tensors(source, rows), strict=True):
        assert torch.equal(mine, theirs) and torch.isfinite(mine).all()
    for tensor in tensors(target, rows):
        tensor.zero_()
    assert all(torch.isfinite(t).all() for t in tensors(source, TILE + 5))
    assert rows == 0 or source.keys[:, :, :rows].abs().sum() > 0


@pytest.mark.parametrize(
    ("ids", "shared"),
    [([], 0), ([0, 1], 2), ([0, 1, 2, 3, 9], 4), ([9, 1], 0), (list(range(20)), 10)],
)
def test_common_prefix(ids: list[int], shared: int) -> None:
    assert filled(10).common_prefix(ids) == shared


class Pool:
    """A pool, and a way to play a request over it."""

    def __init__(self, size: int = 3) -> None:
        self.made: list[Stream] = []
        self.pool = StreamPool(self._new, size)

    def _new(self) -> Stream:
        self.made.append(Stream(CONFIG, 3, 4))
        return self.made[-1]

    def request(self, ids: list[int]) -> tuple[Stream, int]:
        """Take, and encode the rest: each row holds its token's number."""
        stream = self.pool.take(ids)
        cached = len(stream)
        assert stream.ids == ids[:cached]
        stream.reserve(len(ids) - cached)
        for row in range(cached, len(ids)):
            for tensor in (stream.keys[:, :, row], stream.values[:, :, row], stream.features[row]):
                tensor.fill_(ids[row])
        stream.ids.extend(ids[cached:])
        for row, token in enumerate(ids):
            assert (stream.keys[:, :, row] == token).all()
            assert (stream.values[:, :, row] == token).all()
            assert (stream.features[row] == token).all()
        return stream, cached


def test_typing_goes_on_in_one_stream() -> None:
    pool, document = Pool(), list(range(30))
    cached = [pool.request(document[:end])[1] for end in range(10, 31)]
    assert cached == [0, *range(10, 30)]
    assert len(pool.made) == 1


def test_a_shorter_request_cuts_the_stream() -> None:
    pool = Pool()
    first, _ = pool.request(list(range(30)))
    second, cached = pool.request([*range(20), 99])
    assert second is first and cached == 20


def test_documents_do_not_evict_each_other() -> None:
    pool = Pool()
    documents = [[100 * n + i for i in range(20)] for n in range(3)]
    for document in documents:
        assert pool.request(document)[1] == 0
    for document in documents:
        assert pool.request([*document, 7])[1] == 20
    assert len(pool.made) == 3


def test_the_oldest_goes_when_the_pool_is_full() -> None:
    pool = Pool(size=2)
    a, b, c = ([100 * n + i for i in range(20)] for n in range(3))
    for document in (a, b, a, c):
        pool.request(document)
    assert pool.request(a)[1] == 20
    assert pool.request(b)[1] == 0


def test_a_small_common_start_is_copied_and_both_stay() -> None:
    pool = Pool()
    a = [*range(5), *range(100, 140)]
    b = [*range(5), *range(200, 240)]
    assert pool.request(a)[1] == 0
    assert pool.request(b)[1] == 5
    assert pool.request(a)[1] == len(a) and pool.request(b)[1] == len(b)


def test_the_copied_start_survives_its_own_eviction() -> None:
    pool = Pool(size=1)
    pool.request([*range(5), *range(100, 140)])
    assert pool.request([*range(5), *range(200, 240)])[1] == 5


def test_the_oldest_go_when_they_take_too_much_memory() -> None:
    pool = Pool(size=8)
    a, b, c = ([100 * n + i for i in range(20)] for n in range(3))
    one = pool.request(a)[0].bytes
    pool.request(b)
    pool.pool.limit_bytes = 2 * one
    pool.request(c)
    assert (pool.request(b)[1], pool.request(c)[1]) == (20, 20)
    assert pool.request(a)[1] == 0
    pool.pool.limit_bytes = 0
    assert pool.request([*a, 7])[1] == 20, "the stream in use always stays"


def test_clear_forgets() -> None:
    pool = Pool()
    pool.request(list(range(10)))
    pool.pool.clear()
    assert pool.request(list(range(10)))[1] == 0
