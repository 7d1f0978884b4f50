"""Serve one engine to one user: on a Unix socket, or on loopback TCP with a bearer token.

Knows where to listen, when to exit and what to tidy up. Does not know requests or tensors.

On the Unix socket the folder's mode (0700, owner checked) keeps other users out, and nothing
leaves the machine. On TCP (`--port`, and the default on Windows) the token keeps other users from
*using* the engine, and that is all: the traffic is not encrypted, so whoever may capture loopback
packets (an administrator) reads code and token; any program of the same user can read the token
file; and when the engine is not running, another local user may take its port, and a client that
does not check first would send that program its token and its code.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator

import uvicorn
from filelock import Timeout

from engine import __version__
from engine.api import Api, Identity, create_app
from engine.place import Place, ServeOptions
from engine.request import EndpointError, EngineError
from engine.streams import Presence
from engine.torch_import import import_for_inference
from engine.worker import Factory, Infiller, Progress, Worker

__all__ = ["ServeOptions", "run", "run_with"]

log = logging.getLogger(__name__)

_KEEP_ALIVE_S = 75  # longer than our client keeps an idle connection, so it never races our close
_IDLE_EXIT_S, _IDLE_UNLOAD_S = 900.0, 600.0
_GRACE_S = 5  # how long running requests may take to end when the engine finishes


def run(options: ServeOptions) -> int:
    """Serve the real engine until told to stop or left alone; returns the exit code."""

    def load(progress: Progress) -> Infiller:
        from engine import catalog, converted

        files = catalog.resolve(options.model, options.weights, progress)
        tokenizer = converted.read_ahead(converted.converted_folder(files.sha256))
        # torch: seconds, so only once we already answer
        import_for_inference("engine.engine")
        from engine.engine import Engine

        engine = Engine.load(
            options.model,
            weights=options.weights,
            threads=options.threads,
            progress=progress,
            tokenizer=tokenizer,
        )
        if options.memory_mb is not None:
            engine.limit_memory(options.memory_mb)
        return engine

    return run_with(options, load)


def run_with(options: ServeOptions, factory: Factory, *, version: str = __version__) -> int:
    """`run` with any maker of an infiller; one line on stderr when it cannot serve."""
    logging.basicConfig(
        stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s"
    )
    for noisy in ("uvicorn", "uvicorn.error", "httpx", "filelock"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
    try:
        with Place(options).held() as place:
            worker = Worker(factory, idle_unload_s=_or_default(options.idle_unload, _IDLE_UNLOAD_S))
            asyncio.run(_Service(options, place, worker, version).serve())
    except EngineError as error:
        sys.stderr.write(f"dlsp-engine: {error}\n")
        return error.exit_code
    return 0


def _or_default(seconds: float | None, default: float) -> float | None:
    """The option's meaning: None is the default, and 0 never (which is None from here on)."""
    return (default if seconds is None else seconds) or None


class _Server(uvicorn.Server):
    """uvicorn without its signal handling, which ends by dying of the signal before we tidy up."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class _Service:
    """The running server and the reasons for it to end."""

    def __init__(self, options: ServeOptions, place: Place, worker: Worker, version: str) -> None:
        self._idle_exit_s = _or_default(options.idle_exit, _IDLE_EXIT_S)
        self._place = place
        self._worker = worker
        self._presence = Presence()
        self._identity = Identity(
            model=options.model,
            weights=str(options.weights.absolute()) if options.weights else None,
            version=version,
            pid=os.getpid(),
        )
        api = Api(worker, self._identity, self._presence, self.finish)
        self._server = _Server(
            uvicorn.Config(
                create_app(api, self._presence, token=place.token),
                log_config=None,
                access_log=False,
                lifespan="off",
                loop="asyncio",
                http="h11",
                ws="none",
                proxy_headers=False,
                server_header=False,
                timeout_keep_alive=_KEEP_ALIVE_S,
                timeout_graceful_shutdown=_GRACE_S,
            )
        )

    async def serve(self) -> None:
        """Answer until `finish`; then let running requests end and stop the worker."""
        self._listen_to_signals()
        self._worker.start()
        self._place.announce(self._identity)
        if self._place.token_file is not None:
            sys.stdout.write(
                f"dlsp-engine: serving {self._identity.model} at {self._place.url}; "
                f"the bearer token is in {self._place.token_file}\n"
            )
            sys.stdout.flush()
        watch = asyncio.ensure_future(self._watch())
        try:
            await self._server.serve(sockets=[self._place.listener])
        finally:
            watch.cancel()
            if not self._worker.stop():
                log.info("left a load, or a forward, unfinished")

    def finish(self) -> None:
        """Let nobody new in; a second call does not wait for running requests either.

        Requests that wait for the model to load are sent to the next engine at once.
        """
        if self._server.should_exit:
            self._server.force_exit = True
        self._worker.cancel_load()
        self._place.withdraw()
        self._presence.closing.set()
        self._server.should_exit = True

    def _listen_to_signals(self) -> None:
        if threading.current_thread() is not threading.main_thread():
            return  # embedded: signals belong to whoever runs us
        loop = asyncio.get_running_loop()
        if sys.platform == "win32":
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGBREAK):
                signal.signal(number, lambda *_: loop.call_soon_threadsafe(self.finish))
            return
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, self.finish)

    async def _watch(self) -> None:
        """Stay where clients look for us; finish when nobody has been connected for long."""
        idle_s, since = self._idle_exit_s, time.monotonic()
        while not self._server.should_exit:
            await asyncio.sleep(min(1.0, idle_s / 4) if idle_s else 1.0)
            self._stay_findable()
            if self._busy():
                since = time.monotonic()
            elif idle_s and time.monotonic() - since >= idle_s and await self._retire():
                log.info("nobody was connected for %g s", idle_s)

    def _stay_findable(self) -> None:
        """Write the endpoint file again where something removed it; make way for another engine
        where the socket is gone, which cannot be had back."""
        if self._server.should_exit or self._place.file is None:
            return
        if not self._place.reachable():
            log.warning("the socket was removed: whoever comes next starts another engine")
            self.finish()
        elif not self._place.file.path.exists():
            with contextlib.suppress(EndpointError):  # then only who is here knows us
                self._place.announce(self._identity)

    def _busy(self) -> bool:
        return bool(self._server.server_state.connections) or self._presence.running > 0

    async def _retire(self) -> bool:
        """Finish unless a client is just connecting; False: stay.

        Under the start lock nobody starts another engine. First we stop being found, then we see
        whether someone found us before: if so we stay. Who still arrives after that is answered
        `closing`, and starts the next engine once we have let go of the lock.
        """
        if self._place.file is None:
            self.finish()
            return True
        try:
            lock = self._place.file.start_lock.acquire(timeout=0)
        except Timeout:
            return False
        except OSError:  # the folder is gone: nobody can find us any more
            self.finish()
            return True
        with lock:
            self._place.hide()
            await asyncio.sleep(0.05)  # let the loop accept who is already waiting
            if self._busy() or self._place.connection_waits():
                with contextlib.suppress(EndpointError):  # then only who is here knows us
                    self._place.announce(self._identity)
                return False
            self.finish()
            return True
