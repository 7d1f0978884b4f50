"""Real processes as the end-to-end tests look at them."""

from __future__ import annotations

import os
from pathlib import Path


def alive(process_id: int) -> bool:
    """Whether the process runs; one that only waits to be collected does not.

    A killed process holds its sockets until its last thread has gone, not only its first.
    """
    try:
        os.kill(process_id, 0)
        status = Path(f"/proc/{process_id}/stat").read_text()
        threads = len(os.listdir(f"/proc/{process_id}/task"))
    except ProcessLookupError:
        return False
    except FileNotFoundError:
        return not Path("/proc/self").exists()
    return threads > 1 or status.rsplit(")", 1)[1].split()[0] not in "ZX"
