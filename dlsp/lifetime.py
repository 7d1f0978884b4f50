"""When this process must end although nobody said so: its editor is gone.

Standard input closes when an editor dies, unless another process inherited the pipe; so the
editor's process id is watched too. Knows processes only.
"""

from __future__ import annotations

import asyncio
import os
import sys


async def wait_for_death(process_id: int, *, interval_s: float = 1.0) -> None:
    """Return once the process is gone."""
    parent = os.getppid()
    while is_alive(process_id):
        # A killed editor that nobody has waited for yet still has a process id, but no children.
        if parent == process_id and os.getppid() != parent:
            return
        await asyncio.sleep(interval_s)


def is_alive(process_id: int) -> bool:
    """Whether a process of that id exists."""
    if sys.platform == "win32":
        return _is_alive_on_windows(process_id)
    try:
        os.kill(process_id, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    except OverflowError:
        return False
    return True


def _is_alive_on_windows(process_id: int) -> bool:
    import ctypes

    synchronize, wait_timeout = 0x00100000, 0x102
    kernel = ctypes.WinDLL("kernel32")  # type: ignore[attr-defined,unused-ignore]
    handle = kernel.OpenProcess(synchronize, False, process_id)
    if not handle:
        return False
    try:
        return bool(kernel.WaitForSingleObject(handle, 0) == wait_timeout)
    finally:
        kernel.CloseHandle(handle)
