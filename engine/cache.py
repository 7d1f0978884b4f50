"""Context keys, values and features, kept across keystrokes.

A `Stream` is one causal token sequence with everything the base computed for it. Keys and values
are exact: rows are only appended or cut from the end, never approximated. (A bidirectional model's
are what they were when last computed; `engine.context` says when that is good enough.)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from engine.model.config import ModelConfig

#: Capacities are multiples of so many tokens; attention kernels read whole groups of 16.
TILE = 256
#: What a pool keeps unless told otherwise.
DEFAULT_BYTES = 512_000_000


class Stream:
    """One token sequence and its tensors.

    keys, values [layers, kv_heads, capacity, head_dim] float32; features [capacity, F, hidden]
    float32: the hidden states that feed the denoiser and, last, the final one. Rows past `len(ids)`
    are left over or zero, always finite.
    """

    def __init__(self, config: ModelConfig, features: int, capacity: int = TILE) -> None:
        capacity = -(-capacity // TILE) * TILE
        shape = (config.layers, config.kv_heads, capacity, config.head_dim)
        # zeros: masked keys are multiplied by exact zeros, which must not meet a NaN
        self.keys = torch.zeros(shape)
        self.values = torch.zeros(shape)
        self.features = torch.empty(capacity, features, config.hidden)
        self.ids: list[int] = []
        #: passes over some rows since all of them were computed; only a bidirectional model's count
        self.stale = 0

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def capacity(self) -> int:
        """Rows that fit without growing."""
        return self.keys.shape[2]

    @property
    def bytes(self) -> int:
        """What the tensors take, used or not."""
        return self.keys.nbytes + self.values.nbytes + self.features.nbytes

    def reserve(self, rows: int) -> None:
        """Grow so that `rows` more fit; existing rows are kept bit for bit."""
        need = len(self) + rows
        if need <= self.capacity:
            return
        size = -(-max(need, self.capacity * 2) // TILE) * TILE
        grown = (*self.keys.shape[:2], size, self.keys.shape[3])
        keys, values = self.keys.new_zeros(grown), self.values.new_zeros(grown)
        features = self.features.new_empty(size, *self.features.shape[1:])
        used = len(self)
        keys[:, :, :used] = self.keys[:, :, :used]
        values[:, :, :used] = self.values[:, :, :used]
        features[:used] = self.features[:used]
        self.keys, self.values, self.features = keys, values, features

    def truncate(self, length: int) -> None:
        """Forget rows from `length` on."""
        del self.ids[length:]

    def last_hidden(self) -> Tensor:
        """The final hidden state of the last token, [1, hidden]."""
        return self.features[len(self) - 1, -1:].clone()

    def copy_rows(self, other: Stream, rows: int) -> None:
        """Become a copy of the first `rows` tokens of `other`."""
        self.ids.clear()
        self.stale = other.stale
        self.reserve(rows)
        self.keys[:, :, :rows] = other.keys[:, :, :rows]
        self.values[:, :, :rows] = other.values[:, :, :rows]
        self.features[:rows] = other.features[:rows]
        self.ids.extend(other.ids[:rows])

    def common_prefix(self, ids: Sequence[int]) -> int:
        """How many leading tokens of `ids` are already encoded here."""
        count = 0
        for mine, theirs in zip(self.ids, ids, strict=False):
            if mine != theirs:
                break
            count += 1
        return count


class StreamPool:
    """The most recently used streams; the one that shares most with a request serves it.

    At most `size` of them, and between two requests at most `limit_bytes` (but always one). A
    stream that grows during its request is counted at the next one.
    """

    def __init__(
        self, new_stream: Callable[[], Stream], size: int = 8, limit_bytes: int = DEFAULT_BYTES
    ) -> None:
        self._new, self._size = new_stream, size
        self.limit_bytes = limit_bytes
        self._streams: list[Stream] = []

    def take(self, ids: Sequence[int]) -> Stream:
        """The best stream for `ids`, cut to the shared tokens; it becomes the most recent."""
        best = max(self._streams, key=lambda s: s.common_prefix(ids), default=None)
        shared = best.common_prefix(ids) if best is not None else 0
        if best is None or shared < len(best) // 2:
            # another document: spare what is cached
            fresh = self._new()
            if best is not None:
                fresh.copy_rows(best, shared)
            best = fresh
        else:
            self._streams.remove(best)
        best.truncate(shared)
        self._drop_oldest(best.bytes)
        self._streams.append(best)
        return best

    def _drop_oldest(self, more_bytes: int) -> None:
        """Make room for one more stream of so many bytes."""
        while self._streams and (
            len(self._streams) >= self._size
            or more_bytes + sum(stream.bytes for stream in self._streams) > self.limit_bytes
        ):
            self._streams.pop(0)

    def clear(self) -> None:
        """Forget everything."""
        self._streams.clear()
