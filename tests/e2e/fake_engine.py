"""The real `engine serve` around a model that is not there; started as a process by tests.

Each start that gets as far as loading adds a line with its process id to `--starts`; a file of that
name with the suffix `.waits` appears when the model holds a request that waits.
"""

from __future__ import annotations

import argparse
import os
import sys
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from engine import __version__
from engine.serve import ServeOptions, run_with
from engine.worker import Infiller, Progress
from tests.engine.fake_infiller import FakeInfiller


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--starts", type=Path, required=True)
    parser.add_argument("--announce-version", default=__version__)
    parser.add_argument("--load-seconds", type=float, default=0.0)
    parser.add_argument("--model", default="fake")
    for name in ("--weights", "--socket", "--token-file", "--endpoint"):
        parser.add_argument(name, type=Path)
    for name in ("--idle-exit", "--idle-unload"):
        parser.add_argument(name, type=float)
    for name in ("--port", "--memory-mb"):
        parser.add_argument(name, type=int)
    given = parser.parse_args()

    def load(progress: Progress) -> Infiller:
        with given.starts.open("a") as starts:
            starts.write(f"{os.getpid()}\n")
        until = time.monotonic() + given.load_seconds
        while time.monotonic() < until:
            progress("pretending", 1, 2)
            time.sleep(0.01)
        infiller = FakeInfiller()
        waits = given.starts.with_suffix(".waits")
        threading.Thread(
            target=lambda: infiller.waiting.wait() and waits.touch(), daemon=True
        ).start()
        return infiller

    options = ServeOptions(
        model=given.model,
        weights=given.weights,
        socket=given.socket,
        port=given.port,
        token_file=given.token_file,
        endpoint=given.endpoint,
        idle_exit=given.idle_exit,
        idle_unload=given.idle_unload,
        memory_mb=given.memory_mb,
    )
    return run_with(options, load, version=given.announce_version)


if __name__ == "__main__":
    sys.exit(main())
