"""Buckets, bounds and fall-backs of the step graphs. Capturing itself needs a GPU; what is replayed
is tested in test_denoiser.py."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch

from engine.kernels.reference_step import Rule
from engine.kernels.triton import graphs
from engine.kernels.triton.denoiser import Board, Network
from engine.kernels.triton.graphs import Bucket, StepGraphs, bucket_of

RULE = Rule(name="one_per_step", strength=0.0)


def board_of(slots: int, context: int, suffix: int = 0) -> Board:
    keys, after = torch.zeros(2, 1, context, 4), torch.zeros(2, 1, suffix, 4)
    turn, ones = (torch.ones(slots, 2), torch.zeros(slots, 2)), torch.ones(slots).long()
    board = Board(
        tokens=torch.zeros(slots).long(),
        sure=torch.ones(slots),
        progress=torch.tensor([0, 1]).int(),
        entry=torch.zeros(slots, 8),
        keys=keys,
        values=keys.clone(),
        seen=ones,
        own=ones,
        near=turn,
    )
    if not suffix:
        return board
    return replace(board, suffix_keys=after, suffix_values=after, suffix_seen=ones, far=turn)


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Sizes of the boards that were stepped; the step itself is another test's."""
    seen: list[int] = []
    monkeypatch.setattr(graphs, "step", lambda network, board, rule: seen.append(len(board.tokens)))
    return seen


@pytest.fixture
def network() -> Network:
    return object.__new__(Network)


def at_once(body: Callable[[], None]) -> Callable[[], None]:
    return body


@pytest.mark.parametrize(
    ("sizes", "bucket"),
    [((1, 1, 0), (8, 256, 0)), ((8, 256, 1), (8, 256, 256)), ((9, 257, 600), (16, 512, 1024))],
)
def test_the_smallest_bucket_that_fits(sizes: tuple[int, ...], bucket: tuple[int, ...]) -> None:
    slots, context, suffix = bucket
    want = Bucket(slots=slots, context=context, suffix=suffix, rule=RULE)
    assert bucket_of(board_of(*sizes), RULE) == want


@pytest.mark.parametrize("sizes", [(65, 10, 0), (8, 8193, 0), (8, 10, 8193)])
def test_what_is_too_large_runs_without_a_graph(
    sizes: tuple[int, ...], steps: list[int], network: Network
) -> None:
    filled = StepGraphs(network, at_once).run(board_of(*sizes), 3, RULE)
    assert filled.fallback is not None and "at most" in filled.fallback
    assert steps == [sizes[0]] * 3


def test_one_graph_for_each_bucket_and_rule(steps: list[int], network: Network) -> None:
    runner = StepGraphs(network, at_once)
    other = Rule(name="confidence", strength=0.9)
    for sizes, rule in (((3, 10), RULE), ((7, 200), RULE), ((7, 200), other), ((9, 10), RULE)):
        assert runner.run(board_of(*sizes), 1, rule).fallback is None
    assert runner.count == 3
    assert steps == [8, 8, 8, 16]


def test_graphs_are_bounded_in_number_and_bytes(steps: list[int], network: Network) -> None:
    runner = StepGraphs(network, at_once, most_graphs=2)
    for context in (256, 512, 256, 1024, 256):
        runner.run(board_of(8, context), 1, RULE)
    assert runner.count == 2  # 512, the longest unused, went first
    largest = 2 * 2 * 1024 * 4 * 4
    runner = StepGraphs(network, at_once, most_bytes=largest)
    for context in (256, 512, 1024):
        assert runner.run(board_of(8, context), 1, RULE).fallback is None
    assert runner.count == 1
    assert "MiB" in str(runner.run(board_of(8, 2048), 1, RULE).fallback)


def test_a_fall_back_is_logged_once_and_the_steps_still_run(
    steps: list[int], network: Network, caplog: pytest.LogCaptureFixture
) -> None:
    def fails(body: Callable[[], None]) -> Callable[[], None]:
        raise RuntimeError("operation not\n permitted when stream is capturing")

    for capture, reason in ((None, "no CUDA device"), (fails, "the capture failed: operation not")):
        runner = StepGraphs(network, capture)
        with caplog.at_level(logging.INFO, logger="engine.kernels.triton.graphs"):
            caplog.clear()
            filled = [runner.run(board_of(8, 10), 2, RULE) for _ in range(2)]
        assert all(str(one.fallback).startswith(reason) for one in filled)
        assert len(caplog.records) == 1 and reason in caplog.text
        assert runner.count == 0
    assert steps == [8] * 8


def test_slots_come_back_with_their_probabilities(steps: list[int], network: Network) -> None:
    board = board_of(3, 10)
    board.tokens[:] = torch.tensor([5, 16_000_001, -1])
    board.sure[:] = torch.tensor([1.0, 0.5, 0.25])
    filled = StepGraphs(network, at_once).run(board, 4, RULE)
    assert filled.tokens.tolist() == [5, 16_000_001, -1]
    assert filled.sure.tolist() == [1.0, 0.5, 0.25]
