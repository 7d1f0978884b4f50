"""Denoising steps captured once in a CUDA graph and replayed, one graph for each bucket of sizes.

A canvas is copied into the bucket's own tensors (padded; padding is never seen), the graph is
replayed for every step without waiting for the device, and one small copy brings the slots back. A
done canvas makes further replays do nothing. Where no graph can run, the steps are launched one by
one, and the reason is logged. Knows boards, not models or text.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, fields, replace

import torch
from torch import Tensor

from engine.kernels.reference_step import Rule
from engine.kernels.triton.denoiser import Board, Network, step

SLOTS = (8, 16, 32, 64)
CONTEXTS = (256, 512, 1024, 2048, 4096, 8192)
MOST_GRAPHS = 16
MOST_BYTES = 512_000_000

Body = Callable[[], None]
#: Records what a body launches; returns what launches it again.
Capture = Callable[[Body], Body]

_log = logging.getLogger(__name__)
_NO_DEVICE = "no CUDA device"


@dataclass(frozen=True, slots=True, kw_only=True)
class Bucket:
    """Sizes of a graph: slots, tokens of the prefix, of the suffix (0: none), and the rule."""

    slots: int
    context: int
    suffix: int
    rule: Rule


@dataclass(frozen=True, slots=True, kw_only=True)
class Filled:
    """Slots after the last step, on the CPU: tokens [R] int64, sure [R] float32; how many steps it
    took to close them, and why no graph ran, if none did."""

    tokens: Tensor
    sure: Tensor
    taken: int
    fallback: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Captured:
    board: Board
    replay: Body


class StepGraphs:
    """The graphs of one network: at most `most_graphs`, whose boards take at most `most_bytes`; the
    one longest unused goes first."""

    def __init__(
        self,
        network: Network,
        capture: Capture | None,
        *,
        most_graphs: int = MOST_GRAPHS,
        most_bytes: int = MOST_BYTES,
    ) -> None:
        """`capture`: `cuda_capture()`, or None where there is no CUDA device."""
        self._network, self._capture = network, capture
        self._most_graphs, self._most_bytes = most_graphs, most_bytes
        self._graphs: OrderedDict[Bucket, _Captured] = OrderedDict()
        self._told: set[str] = set()

    def run(self, board: Board, steps: int, rule: Rule) -> Filled:
        """`steps` steps over a board, which stays as it is or is filled in place."""
        bucket = bucket_of(board, rule)
        captured = self._captured(bucket, board) if isinstance(bucket, Bucket) else bucket
        slots = len(board.tokens)
        if isinstance(captured, str):
            self._tell(captured)
            for _ in range(steps):
                step(self._network, board, rule)
            return _out(board, slots, steps, fallback=captured)
        _load(captured.board, board)
        for _ in range(steps):
            captured.replay()
        return _out(captured.board, slots, steps, fallback=None)

    @property
    def count(self) -> int:
        """How many graphs are kept."""
        return len(self._graphs)

    @property
    def bytes(self) -> int:
        """What the boards of the kept graphs take."""
        return sum(_bytes(one.board) for one in self._graphs.values())

    def _captured(self, bucket: Bucket, like: Board) -> _Captured | str:
        """The graph of a bucket, captured now if need be, or why there is none."""
        if self._capture is None:
            return _NO_DEVICE
        if bucket in self._graphs:
            self._graphs.move_to_end(bucket)
            return self._graphs[bucket]
        size = _board_bytes(bucket, like)
        if size > self._most_bytes:
            return f"a board of {size >> 20} MiB; graphs may take {self._most_bytes >> 20}"
        while self._graphs and (
            self.count >= self._most_graphs or self.bytes + size > self._most_bytes
        ):
            self._graphs.popitem(last=False)
        board = _empty_board(bucket, like)
        try:
            replay = self._capture(lambda: step(self._network, board, bucket.rule))
        except RuntimeError as error:
            return f"the capture failed: {' '.join(str(error).split())[:200]}"
        self._graphs[bucket] = _Captured(board=board, replay=replay)
        return self._graphs[bucket]

    def _tell(self, reason: str) -> None:
        if reason not in self._told:
            self._told.add(reason)
            _log.info("denoising steps run without a graph: %s", reason)


def cuda_capture() -> Capture | None:
    """Captures on the current CUDA device, in one memory pool; None without one."""
    if not torch.cuda.is_available():
        return None
    pool = torch.cuda.graph_pool_handle()

    def capture(body: Body) -> Body:
        aside = torch.cuda.Stream()
        aside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(aside):
            body()  # compiles what is not compiled yet
        torch.cuda.current_stream().wait_stream(aside)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=pool):
            body()
        replay: Body = graph.replay
        return replay

    return capture


def bucket_of(board: Board, rule: Rule) -> Bucket | str:
    """The smallest bucket that a board fits, or why none does."""
    slots, context = len(board.tokens), board.keys.shape[2]
    suffix = 0 if board.suffix_keys is None else board.suffix_keys.shape[2]
    if slots > SLOTS[-1]:
        return f"{slots} slots; graphs have at most {SLOTS[-1]}"
    if max(context, suffix) > CONTEXTS[-1]:
        return f"a context of {max(context, suffix)} tokens; graphs have at most {CONTEXTS[-1]}"
    return Bucket(
        slots=next(size for size in SLOTS if size >= slots),
        context=next(size for size in CONTEXTS if size >= context),
        suffix=next(size for size in CONTEXTS if size >= suffix) if suffix else 0,
        rule=rule,
    )


def _empty_board(bucket: Bucket, like: Board) -> Board:
    """A board of a bucket's sizes; its padding is finite."""

    def tokens(tensor: Tensor, size: int) -> Tensor:
        return tensor.new_zeros((*tensor.shape[:2], size, tensor.shape[3]))

    def suffix(tensor: Tensor | None) -> Tensor | None:
        return None if tensor is None else tokens(tensor, bucket.suffix)

    def rows(tensor: Tensor) -> Tensor:
        return tensor.new_zeros((bucket.slots, *tensor.shape[1:]))

    return replace(
        like,
        tokens=rows(like.tokens),
        sure=rows(like.sure),
        progress=torch.zeros_like(like.progress),
        entry=rows(like.entry),
        keys=tokens(like.keys, bucket.context),
        values=tokens(like.values, bucket.context),
        seen=rows(like.seen).fill_(1),
        own=rows(like.own).fill_(1),
        near=(rows(like.near[0]), rows(like.near[1])),
        suffix_keys=suffix(like.suffix_keys),
        suffix_values=suffix(like.suffix_values),
        suffix_seen=None if like.suffix_seen is None else rows(like.suffix_seen).fill_(1),
        far=None if like.far is None else (rows(like.far[0]), rows(like.far[1])),
    )


def _load(target: Board, source: Board) -> None:
    """Copies a canvas into a larger board. Slots behind it hold token 0, so they are not open, and
    see one key, so that they stay finite; nothing sees them."""
    slots = len(source.tokens)
    target.tokens.zero_()
    for mine, theirs in (
        (target.tokens, source.tokens),
        (target.sure, source.sure),
        (target.entry, source.entry),
        (target.seen, source.seen),
        (target.own, source.own),
        *zip(target.near, source.near, strict=True),
        *zip(target.far or (), source.far or (), strict=True),
    ):
        mine[:slots] = theirs
    target.progress.copy_(source.progress)
    length = source.keys.shape[2]
    target.keys[:, :, :length] = source.keys
    target.values[:, :, :length] = source.values
    if target.suffix_keys is None or source.suffix_keys is None:
        return
    assert target.suffix_values is not None and source.suffix_values is not None
    assert target.suffix_seen is not None and source.suffix_seen is not None
    length = source.suffix_keys.shape[2]
    target.suffix_keys[:, :, :length] = source.suffix_keys
    target.suffix_values[:, :, :length] = source.suffix_values
    target.suffix_seen[:slots] = source.suffix_seen


def _out(board: Board, slots: int, steps: int, fallback: str | None) -> Filled:
    # ids below 2^24 are exact in float32
    parts = (board.tokens[:slots].float(), board.sure[:slots], board.progress[1:].float())
    tokens, sure, left = torch.cat(parts).cpu().split((slots, slots, 1))  # sync: the only one
    return Filled(tokens=tokens.long(), sure=sure, taken=steps - int(left), fallback=fallback)


def _tensors(board: Board) -> list[Tensor]:
    values = [getattr(board, field.name) for field in fields(board)]
    parts = [value if isinstance(value, tuple) else (value,) for value in values]
    return [tensor for part in parts for tensor in part if tensor is not None]


def _bytes(board: Board) -> int:
    return sum(tensor.nbytes for tensor in _tensors(board))


def _board_bytes(bucket: Bucket, like: Board) -> int:
    """What a bucket's keys and values take: nearly all of its board."""
    layers, heads, _, dim = like.keys.shape
    tokens = bucket.context + bucket.suffix
    return 2 * layers * heads * tokens * dim * like.keys.element_size()
