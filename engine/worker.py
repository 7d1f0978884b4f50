"""One thread that owns the model: loads it, answers jobs in order, drops it when idle.

Work that nobody waits for yet (idle jobs) is done when there is no other, and given up at once
when other work comes.

Knows requests, times and load states. Does not know HTTP, or what a model is made of.
"""

from __future__ import annotations

import gc
import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from typing import Literal, Protocol

from engine.request import EngineError, InfillRequest, InfillResult

log = logging.getLogger(__name__)

Progress = Callable[[str, int, int], None]
Status = Literal["starting", "loading", "ready", "error"]

THREAD_NAME = "engine"
_FIRST_RETRY_S, _LAST_RETRY_S = 1.0, 60.0
_LOADER_S = 0.3  # how long the end of a load is waited for


class Infiller(Protocol):
    """What the worker needs of an engine; always called from the worker's own thread."""

    @property
    def name(self) -> str: ...

    def infill(
        self,
        request: InfillRequest,
        cancelled: Callable[[], bool],
        on_text: Callable[[str], None] | None,
    ) -> InfillResult: ...

    def warm(self, request: InfillRequest, cancelled: Callable[[], bool]) -> InfillResult: ...


Factory = Callable[[Progress], Infiller]


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerState:
    """How far the model is. `progress` is (what, done, total) while loading."""

    status: Status
    message: str = ""
    model: str | None = None
    progress: tuple[str, int, int] | None = None


class Stopped(EngineError):
    """The engine is finishing and takes no more work."""

    code, http_status, exit_code = "closing", 503, 5


class _LoadAborted(Exception):
    """Raised through the loader's progress call to end it when the worker stops."""


@dataclass(slots=True, kw_only=True, eq=False)
class Job:
    """One request on its way. `cancel` may be called from any thread, any number of times.

    `warms`: only the context is wanted in the cache, no text.
    """

    request: InfillRequest
    submitted: float
    warms: bool = False
    on_text: Callable[[str], None] | None = None
    future: Future[InfillResult] = field(default_factory=Future)
    cancelled: threading.Event = field(default_factory=threading.Event)

    def cancel(self) -> None:
        self.cancelled.set()
        self.future.cancel()  # has an effect only while the job still waits


class Worker:
    """The queue and its thread. `start` begins to load at once: someone is about to ask."""

    def __init__(
        self,
        factory: Factory,
        *,
        idle_unload_s: float | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._factory = factory
        self._idle_unload_s = idle_unload_s
        self._clock = clock
        self._changed = threading.Condition()
        self._jobs: deque[Job] = deque()
        self._idle_jobs: deque[Job] = deque()  # the newest comes first
        self._current: Job | None = None
        self._stopping = False
        self.requests = 0  # since the start, idle ones not counted
        self._state = WorkerState(status="starting")
        self._infiller: Infiller | None = None
        self._loaded_at = clock()
        self._load_error: EngineError | None = None
        self._failed_loads = 0
        self._retry_at = 0.0
        self._thread = threading.Thread(target=self._run, name=THREAD_NAME, daemon=True)

    @property
    def state(self) -> WorkerState:
        return self._state

    def start(self) -> None:
        self._thread.start()

    def submit(self, request: InfillRequest, on_text: Callable[[str], None] | None = None) -> Job:
        """Queue a request; the result or an `EngineError` arrives in the job's future."""
        return self._queue(Job(request=request, submitted=self._clock(), on_text=on_text))

    def warm(self, request: InfillRequest) -> Job:
        """Queue the context of a request to be encoded when there is nothing else to do."""
        request = replace(request, idle=True)
        return self._queue(Job(request=request, submitted=self._clock(), warms=True))

    def _queue(self, job: Job) -> Job:
        with self._changed:
            if self._stopping:
                raise Stopped("the engine is finishing; ask again and another one will answer")
            if job.request.idle:
                self._idle_jobs.append(job)
            else:
                self.requests += 1
                self._jobs.append(job)
                if self._current is not None and self._current.request.idle:
                    self._current.cancelled.set()  # its future gets what there is: nothing
            self._changed.notify_all()
        return job

    def stop(self, timeout_s: float = 10.0) -> bool:
        """Cancel everything and end the thread; False when it did not end in time.

        A load ends at its next progress call. Between two of them nothing can interrupt it, so it
        is not waited for: what it makes is worth nothing any more.
        """
        self.cancel()
        self._thread.join(min(timeout_s, _LOADER_S) if self._loading else timeout_s)
        return not self._thread.is_alive()

    def cancel_load(self) -> None:
        """If the model is not loaded yet, end that, and send away who waits for it."""
        if self._loading:
            self.cancel()

    def cancel(self) -> None:
        """Take no more work, and cancel what there is."""
        with self._changed:
            self._stopping = True
            waiting = [*self._jobs, *self._idle_jobs, *([self._current] if self._current else [])]
            self._jobs.clear()
            self._idle_jobs.clear()
            self._changed.notify_all()
        for job in waiting:
            job.cancel()

    @property
    def _loading(self) -> bool:
        return self._state.status in ("starting", "loading")

    def _run(self) -> None:
        try:
            self._load()
        except EngineError:
            pass  # kept in the state, and answered to whoever asks
        except _LoadAborted:
            return
        while (job := self._next()) is not None:
            try:
                self._answer(job)
            except _LoadAborted:
                job.future.cancel()
                return
            finally:
                self._current = None

    def _next(self) -> Job | None:
        """Wait for a job, dropping the model when none comes for long; None: stop."""
        with self._changed:
            while not self._jobs and not self._idle_jobs and not self._stopping:
                patience_s = self._idle_unload_s if self._infiller is not None else None
                if not self._changed.wait(patience_s) and not self._jobs and not self._idle_jobs:
                    self._unload("the model was dropped while idle; the next request loads it")
            if self._stopping:
                return None
            self._current = self._jobs.popleft() if self._jobs else self._idle_jobs.pop()
            return self._current

    def _answer(self, job: Job) -> None:
        if job.cancelled.is_set():
            job.future.cancel()
            return
        try:
            infiller = self._load()
            # False here means the client left while the model was loading.
            if not job.future.set_running_or_notify_cancel():
                return
            result = self._infill(infiller, job)
        except EngineError as error:
            _fail(job, error)
        except _LoadAborted:
            raise
        except MemoryError:
            self._unload("out of memory")
            _fail(
                job,
                EngineError("out of memory; close programs or use a smaller model"),
            )
        except Exception as error:
            # After an unforeseen failure the model's cache may be half written: start afresh.
            log.exception("a request failed")
            self._unload("dropped after a failure; the next request loads it")
            _fail(
                job,
                EngineError(f"the engine failed here ({_brief(error)}); see its log"),
            )
        else:
            job.future.set_result(result)

    def _infill(self, infiller: Infiller, job: Job) -> InfillResult:
        started = self._clock()
        queue_ms = 1000.0 * (started - job.submitted)
        request = job.request
        if request.deadline_ms is not None:
            # Waiting behind others counts; waiting for the model to load does not, since the
            # answer to the first request would always be empty. Who will not wait hangs up.
            spent_ms = 1000.0 * max(0.0, started - max(job.submitted, self._loaded_at))
            left_ms = max(1.0, request.deadline_ms - spent_ms)
            patience_ms = max(0.0, request.patience_ms - spent_ms)
            request = replace(request, deadline_ms=left_ms, patience_ms=patience_ms)
        if job.warms:
            return infiller.warm(request, cancelled=job.cancelled.is_set)
        result = infiller.infill(request, cancelled=job.cancelled.is_set, on_text=job.on_text)
        total_ms = 1000.0 * (self._clock() - job.submitted)
        return replace(result, ms=replace(result.ms, queue=queue_ms, total=total_ms))

    def _load(self) -> Infiller:
        """The loaded model; raises the last load's error again until its back-off has passed."""
        if self._infiller is not None:
            return self._infiller
        if self._load_error is not None and self._clock() < self._retry_at:
            raise self._load_error
        self._state = WorkerState(status="loading", message="loading the model")
        try:
            infiller = self._factory(self._report)
        except _LoadAborted:
            raise
        except EngineError as error:
            raise self._load_failed(error) from None
        except MemoryError:
            raise self._load_failed(
                EngineError("not enough memory to load the model; use a smaller one")
            ) from None
        except Exception as error:
            log.exception("loading the model failed")
            raise self._load_failed(
                EngineError(f"the model did not load ({_brief(error)}); see the log")
            ) from None
        self._infiller, self._load_error, self._failed_loads = infiller, None, 0
        self._loaded_at = self._clock()
        self._state = WorkerState(status="ready", model=infiller.name)
        return infiller

    def _load_failed(self, error: EngineError) -> EngineError:
        delay_s = min(_FIRST_RETRY_S * 2**self._failed_loads, _LAST_RETRY_S)
        self._failed_loads += 1
        self._retry_at = self._clock() + delay_s
        self._load_error = error
        self._state = WorkerState(status="error", message=str(error))
        log.error("%s", error)
        return error

    def _report(self, what: str, done: int, total: int) -> None:
        if self._stopping:
            raise _LoadAborted
        self._state = WorkerState(status="loading", message=what, progress=(what, done, total))

    def _unload(self, why: str) -> None:
        if self._infiller is None:
            return
        self._state = WorkerState(status="ready", message=why, model=self._infiller.name)
        self._infiller = None
        gc.collect()


def _brief(error: Exception) -> str:
    """One line of an error, for a message."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0][:200]}" if lines else type(error).__name__


def _fail(job: Job, error: EngineError) -> None:
    """Hand the error to whoever waits, unless they have left."""
    if job.future.running() or job.future.set_running_or_notify_cancel():
        job.future.set_exception(error)
