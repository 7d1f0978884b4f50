"""Start the local engine early, before the modules that talk to it are imported.

For whoever knows the final settings at once, as the command line does; an editor's arrive with its
first messages. Knows the start lock and the engine's folder. Does not talk to an engine: one that
runs already, fitting or not, is left to `engine_finder`, and so is every failure. Light to import.
"""

from __future__ import annotations

import contextlib
import subprocess
import threading
from collections.abc import Callable, Iterator

from filelock import Timeout

from dlsp.client.engine_process import EngineFolder, EngineUnavailable, ProcessSettings
from dlsp.config.settings import Settings
from engine.request import EndpointError

_POLL_S = 0.03


@contextlib.contextmanager
def engine_on_its_way(settings: Settings, process: ProcessSettings | None = None) -> Iterator[None]:
    """Meanwhile, a local engine for `settings` has been started, unless one was there.

    The start lock is held until the engine announces itself, so that nobody starts another.
    """
    process = process or ProcessSettings.of(settings)
    folder = EngineFolder(process)
    before = folder.instance()  # of an engine that is there, or that died without tidying up
    child = None if settings.engine_url is not None else _start(folder, settings)
    if child is None:
        yield
        return
    left = threading.Event()
    holder = threading.Thread(
        target=_hold_lock,
        args=(folder, lambda: child.poll() is None and folder.instance() in (None, before), left),
        daemon=True,
    )
    holder.start()
    try:
        yield
    finally:
        left.set()
        holder.join()
        if child.poll() is None:
            child.returncode = 0  # lives on; else Popen warns about a child nobody waited for


def _start(folder: EngineFolder, settings: Settings) -> subprocess.Popen[bytes] | None:
    """An engine of ours, under the start lock; None, without the lock, where it is not for us."""
    try:
        folder.prepare()
        folder.start_lock.acquire(timeout=0)
    except (Timeout, OSError, EndpointError):
        return None
    child = None
    try:
        if not folder.engine_lives():
            child = folder.start(settings.model, settings.developer.weights)
    except (OSError, EngineUnavailable):
        return None
    finally:
        if child is None:
            folder.start_lock.release()
    return child


def _hold_lock(folder: EngineFolder, starting: Callable[[], bool], left: threading.Event) -> None:
    """Keep the start lock while the engine neither announces itself nor ends, or until `left`."""
    try:
        while starting() and not left.wait(_POLL_S):
            pass
    finally:
        folder.start_lock.release()
