"""One dlsp process reduced to its client: completes once and prints what came back."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from dlsp.client.backend import Backend, ProcessSettings
from dlsp.config.settings import Settings
from engine.request import InfillRequest


async def main(folder: Path, *command: str) -> None:
    backend = Backend.local(
        Settings(model="fake"),
        ProcessSettings(engine_command=command, folder=folder, log_file=folder / "engine.log"),
    )
    reply = await backend.complete(InfillRequest(prefix="x"))
    health = await backend.health()
    sys.stdout.write(json.dumps({"text": reply.text, "pid": health.pid}) + "\n")
    sys.stdout.flush()
    await asyncio.to_thread(sys.stdin.read)  # stay until the test has heard everybody
    await backend.close()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), *sys.argv[2:]))
