"""The allocator's habits, set once per process.

glibc hands every block over 128 kB back to the system when it is freed, so each large activation
(a row of logits is 600 kB) costs its page faults again. Kept instead, they are reused.
"""

from __future__ import annotations

import ctypes
import sys

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
_KEPT_BYTES = 256 * 2**20


def keep_freed_blocks() -> bool:
    """Let glibc keep up to 256 MB of freed memory; False where there is no glibc."""
    if not sys.platform.startswith("linux"):
        return False
    libc = ctypes.CDLL(None)
    if not hasattr(libc, "mallopt"):
        return False
    # 32 MB is the largest block that glibc agrees to serve from its heap
    return bool(
        libc.mallopt(_M_MMAP_THRESHOLD, 32 * 2**20) and libc.mallopt(_M_TRIM_THRESHOLD, _KEPT_BYTES)
    )
