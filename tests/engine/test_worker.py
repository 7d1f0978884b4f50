"""The engine thread: load states, order, cancelling, back-off, unloading."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator

import pytest

from engine.request import BadRequest, EngineError, InfillRequest, WeightsError
from engine.worker import Progress, Stopped, Worker
from tests.engine.fake_infiller import PIECES, FakeInfiller

Start = Callable[..., Worker]


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def start() -> Iterator[Start]:
    workers: list[Worker] = []

    def make(factory, **options) -> Worker:
        worker = Worker(factory, **options)
        workers.append(worker)
        worker.start()
        return worker

    yield make
    for worker in workers:
        assert worker.stop(10)


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.005)


def ask(worker: Worker, prefix: str = "x", **fields):
    return worker.submit(InfillRequest(prefix=prefix, **fields)).future.result(20)


def test_loads_before_anyone_asks_and_says_how_far(start: Start) -> None:
    gate = threading.Event()

    def factory(progress: Progress) -> FakeInfiller:
        progress("downloading", 3, 10)
        gate.wait(20)
        return FakeInfiller()

    worker = start(factory)
    until(lambda: worker.state.progress is not None)
    assert worker.state.status == "loading"
    assert worker.state.progress == ("downloading", 3, 10)
    gate.set()
    until(lambda: worker.state.status == "ready")
    assert worker.state.model == "fake"


def test_queue_time_is_measured_and_part_of_the_total(start: Start) -> None:
    gate = threading.Event()
    clock = Clock()
    infiller = FakeInfiller()

    def factory(_: Progress) -> FakeInfiller:
        gate.wait(20)
        return infiller

    worker = start(factory, clock=clock)
    job = worker.submit(InfillRequest(prefix="x", deadline_ms=400))
    clock.now += 3.0
    gate.set()
    result = job.future.result(20)
    assert result.ms.queue == pytest.approx(3000)
    assert result.ms.total == pytest.approx(3000)
    assert result.ms.encode == 1.0
    assert infiller.asked[0].deadline_ms == 400, "loading must not eat the deadline"


def test_waiting_behind_another_job_eats_the_deadline(start: Start) -> None:
    clock, infiller = Clock(), FakeInfiller()
    worker = start(lambda _: infiller, clock=clock)
    first = worker.submit(InfillRequest(prefix="wait"))
    assert infiller.waiting.wait(20)
    second = worker.submit(InfillRequest(prefix="x", deadline_ms=400))
    third = worker.submit(InfillRequest(prefix="x", deadline_ms=100))
    clock.now += 0.3
    infiller.release.set()
    assert [job.future.result(20).text for job in (first, second, third)] == ["".join(PIECES)] * 3
    assert infiller.asked[1].deadline_ms == pytest.approx(100)
    assert infiller.asked[2].deadline_ms == 1.0


def test_a_cancelled_job_is_skipped_and_a_running_one_ends(start: Start) -> None:
    infiller = FakeInfiller()
    worker = start(lambda _: infiller)
    running = worker.submit(InfillRequest(prefix="wait"))
    assert infiller.waiting.wait(20)
    skipped = worker.submit(InfillRequest(prefix="skipped"))
    last = worker.submit(InfillRequest(prefix="last"))
    skipped.cancel()
    running.cancel()
    assert last.future.result(20).text == "".join(PIECES)
    assert running.future.result(20).finish_reason == "cancelled"
    assert [request.prefix for request in infiller.asked] == ["wait", "last"]
    assert skipped.future.cancelled()


def test_a_load_error_is_answered_and_retried_only_after_a_back_off(start: Start) -> None:
    clock = Clock()
    tries: list[float] = []

    def factory(_: Progress) -> FakeInfiller:
        tries.append(clock.now)
        if len(tries) < 3:
            raise WeightsError("the file is corrupt; fetch it again")
        return FakeInfiller()

    worker = start(factory, clock=clock)
    until(lambda: worker.state.status == "error")
    assert worker.state.message == "the file is corrupt; fetch it again"
    with pytest.raises(WeightsError, match="corrupt"):
        ask(worker)
    assert len(tries) == 1
    clock.now += 1.1
    with pytest.raises(WeightsError):
        ask(worker)
    assert len(tries) == 2
    clock.now += 1.1  # the second back-off is longer
    with pytest.raises(WeightsError):
        ask(worker)
    assert len(tries) == 2
    clock.now += 1.0
    assert ask(worker).text == "".join(PIECES)
    assert worker.state.status == "ready"


@pytest.mark.parametrize(
    "error, says", [(RuntimeError("two\nlines"), "two"), (MemoryError(), "memory")]
)
def test_an_unforeseen_load_failure_becomes_one_line(
    start: Start, error: Exception, says: str
) -> None:
    def factory(_: Progress) -> FakeInfiller:
        raise error

    worker = start(factory)
    with pytest.raises(EngineError, match=says) as caught:
        ask(worker)
    assert "\n" not in str(caught.value)


def test_a_failing_request_fails_alone_and_the_model_is_loaded_afresh(start: Start) -> None:
    made: list[FakeInfiller] = []

    def factory(_: Progress) -> FakeInfiller:
        made.append(FakeInfiller())
        return made[-1]

    worker = start(factory)
    with pytest.raises(EngineError, match="boom"):
        ask(worker, "boom")
    assert ask(worker).text == "".join(PIECES)
    assert len(made) == 2


def test_an_expected_failure_keeps_the_model(start: Start) -> None:
    made: list[FakeInfiller] = []

    def factory(_: Progress) -> FakeInfiller:
        made.append(FakeInfiller())
        return made[-1]

    worker = start(factory)
    with pytest.raises(BadRequest, match="refused by the model"):
        ask(worker, "refuse")
    assert ask(worker).text == "".join(PIECES)
    assert len(made) == 1


def test_the_model_is_dropped_when_idle_and_loaded_by_the_next_request(start: Start) -> None:
    made: list[FakeInfiller] = []

    def factory(_: Progress) -> FakeInfiller:
        made.append(FakeInfiller())
        return made[-1]

    worker = start(factory, idle_unload_s=0.02)
    until(lambda: "idle" in worker.state.message)
    assert worker.state.status == "ready"
    assert ask(worker).text == "".join(PIECES)
    assert len(made) >= 2


def test_stopping_cancels_what_runs_and_what_waits_and_refuses_more(start: Start) -> None:
    infiller = FakeInfiller()
    worker = start(lambda _: infiller)
    running = worker.submit(InfillRequest(prefix="wait"))
    assert infiller.waiting.wait(20)
    waiting = worker.submit(InfillRequest(prefix="x"))
    assert worker.stop(20)
    assert running.future.result(20).finish_reason == "cancelled"
    assert waiting.future.cancelled()
    with pytest.raises(Stopped):
        worker.submit(InfillRequest(prefix="x"))


def test_stopping_ends_a_long_load_at_its_next_progress_report(start: Start) -> None:
    loading = threading.Event()

    def factory(progress: Progress) -> FakeInfiller:
        while True:
            progress("downloading", 1, 2)
            loading.set()
            time.sleep(0.005)

    worker = start(factory)
    assert loading.wait(20)
    job = worker.submit(InfillRequest(prefix="x"))
    assert worker.stop(20)
    assert job.future.cancelled()


def test_a_load_that_nothing_can_interrupt_is_left_behind() -> None:
    gate, began = threading.Event(), threading.Event()

    def factory(_: Progress) -> FakeInfiller:
        began.set()
        gate.wait(60)
        return FakeInfiller()

    worker = Worker(factory)
    worker.start()
    assert began.wait(20)
    job = worker.submit(InfillRequest(prefix="x"))
    worker.cancel_load()
    assert job.future.cancelled(), "who waits for the model is sent away at once"
    with pytest.raises(Stopped):
        worker.submit(InfillRequest(prefix="x"))
    assert worker.stop(10_000) is False, "it is not waited for"
    gate.set()
    until(lambda: worker.stop(10))


def test_once_loaded_running_requests_may_end(start: Start) -> None:
    infiller = FakeInfiller()
    worker = start(lambda _: infiller)
    running = worker.submit(InfillRequest(prefix="wait"))
    assert infiller.waiting.wait(20)
    worker.cancel_load()
    infiller.release.set()
    assert running.future.result(20).text == "".join(PIECES)


def test_work_that_nobody_waits_for_gives_way(start: Start) -> None:
    infiller = FakeInfiller()
    worker = start(lambda _: infiller)
    idle = worker.submit(InfillRequest(prefix="wait", idle=True))
    assert infiller.waiting.wait(20)
    later = worker.warm(InfillRequest(prefix="a context"))
    assert ask(worker, "real").text == "".join(PIECES)
    assert idle.future.result(20).finish_reason == "cancelled"
    assert later.future.result(20).text == ""
    assert [asked.prefix for asked in infiller.asked] == ["wait", "real"]
    assert [(warmed.prefix, warmed.idle) for warmed in infiller.warmed] == [("a context", True)]


def test_a_real_request_is_not_ended_by_another(start: Start) -> None:
    infiller = FakeInfiller()
    worker = start(lambda _: infiller)
    first = worker.submit(InfillRequest(prefix="wait"))
    assert infiller.waiting.wait(20)
    second = worker.submit(InfillRequest(prefix="x"))
    assert not infiller.saw_cancel.wait(0.05)
    infiller.release.set()
    assert first.future.result(20).text == second.future.result(20).text != ""


def test_stopping_sends_idle_work_away(start: Start) -> None:
    gate = threading.Event()
    worker = start(lambda _: gate.wait(20) and FakeInfiller())
    waiting = worker.warm(InfillRequest(prefix="a context"))
    worker.cancel()
    gate.set()
    assert waiting.future.cancelled()


def test_waiting_counts_against_the_patience(start: Start) -> None:
    clock, infiller = Clock(), FakeInfiller()
    worker = start(lambda _: infiller, clock=clock)
    first = worker.submit(InfillRequest(prefix="wait"))
    assert infiller.waiting.wait(20)
    second = worker.submit(InfillRequest(prefix="x", deadline_ms=400, patience_ms=2000))
    clock.now += 0.3
    infiller.release.set()
    first.future.result(20)
    second.future.result(20)
    assert infiller.asked[1].patience_ms == pytest.approx(1700)
