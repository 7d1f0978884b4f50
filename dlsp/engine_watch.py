"""Following an engine until it is ready, so that the client can be told how far it is.

Knows an engine's own word and the states that it means. Does not know how an engine is started.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from dlsp.client.wire import Health
from dlsp.status import EngineState, engine_state
from engine.request import EngineError

#: How often a starting engine is asked how far it is.
WATCH_INTERVAL_S = 0.25


async def follow_start(
    ask: Callable[[], Awaitable[Health]], report: Callable[[EngineState], None]
) -> None:
    """Report what `ask` brings, until it is `ready` or an error; an EngineError is reported too.

    `ask` is called anew each time, since the engine may be another by then.
    """
    heard = False  # a busy engine may answer slowly: that is not a new start
    while True:
        asking = asyncio.ensure_future(ask())
        if not (await asyncio.wait({asking}, timeout=WATCH_INTERVAL_S))[0] and not heard:
            report(EngineState(state="starting", message="starting the engine"))
        try:
            health = await asking
        except EngineError as error:
            report(EngineState(state="error", message=str(error)))
            return
        heard = True
        report(engine_state(health))
        if health.status in ("ready", "error"):
            return
        await asyncio.sleep(WATCH_INTERVAL_S)
