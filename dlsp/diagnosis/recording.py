"""Making a replay file: the request of a user's answer, asked once more as it goes into the file.

Knows the engine's client and where replay files lie; the file itself is replay.py's.
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

from dlsp.client.backend import Backend
from dlsp.client.engine_facts import ask_engine
from dlsp.diagnosis.replay import Replay, figures_of, repeatable, result_of, this_version, write
from dlsp.scores.answers import Asked
from dlsp.scores.scorecard import data_dir
from engine.request import EngineError

#: How long the engine may take for a request without a deadline.
LIMIT_MS = 60_000.0


def replay_folder() -> Path:
    return data_dir() / "replays"


async def record(asked: Asked, backend: Backend, *, model: str, with_code: bool) -> Path:
    """Write the replay file of a request; its path. Raises EngineError when the engine cannot."""
    request = repeatable(asked.request, with_code=with_code)
    reply = await backend.complete(request, wait_ms=LIMIT_MS)
    replay = Replay(
        request=request,
        result=result_of(reply),
        model=model,
        digest=await digest_of_model(model),
        with_code=with_code,
        original=figures_of(asked.detail),
        versions=this_version(),
        created=time.time(),
    )
    try:
        return await asyncio.to_thread(write, replay, replay_folder())
    except OSError as error:
        raise EngineError(f"cannot write to {replay_folder()}: {error.strerror}") from None


async def digest_of_model(model: str) -> str | None:
    """The digest of a catalogue model's weights; None for other weights."""
    try:
        models = await asyncio.to_thread(ask_engine, "models", "--json")
    except EngineError:
        return None
    return next((found.get("sha256") for found in models if found["name"] == model), None)
