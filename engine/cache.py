"""Context keys, values and features, kept across keystrokes.

A `Stream` is one causal token sequence with everything the base computed for it. Keys and values
are exact: rows are only appended or cut from the end, never approximated.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from engine.model.config import ModelConfig

#: Capacities are multiples of so many tokens; attention kernels read whole groups of 16.
TILE = 256


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

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def capacity(self) -> int:
        """Rows that fit without growing."""
        return self.keys.shape[2]

    def reserve(self, rows: int) -> None:
        """Grow so that `rows` more fit; existing rows are kept bit for bit."""
        need = len(self) + rows
        if need <= self.capacity:
            return
        size = -(-max(need, self.capacity * 2) // TILE) * TILE
        grown = (*self.keys.shape[:2], size, self.keys.shape[3])
        keys, values = torch.zeros(grown), torch.zeros(grown)
        features = torch.empty(size, *self.features.shape[1:])
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
    """The few most recently used streams; the one that shares most with a request serves it."""

    def __init__(self, new_stream: Callable[[], Stream], size: int = 4) -> None:
        self._new, self._size = new_stream, size
        self._streams: list[Stream] = []

    def take(self, ids: Sequence[int]) -> Stream:
        """The best stream for `ids`, cut to the shared tokens; it becomes the most recent."""
        best = max(self._streams, key=lambda s: s.common_prefix(ids), default=None)
        shared = best.common_prefix(ids) if best is not None else 0
        if best is None or shared < len(best) // 2:
            # another document: spare what is cached unless the pool is full, then drop the oldest
            if len(self._streams) >= self._size:
                self._streams.pop(0)
            fresh = self._new()
            if best is not None:
                fresh.copy_rows(best, shared)
            best = fresh
        else:
            self._streams.remove(best)
        best.truncate(shared)
        self._streams.append(best)
        return best

    def clear(self) -> None:
        """Forget everything."""
        self._streams.clear()
