"""The engine's life in real processes: started once, shared, revived, replaced, left alone."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import signal
import stat
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest

from dlsp import __version__
from dlsp.client.backend import Backend, EngineLost, EngineUnavailable, ProcessSettings
from dlsp.config.settings import Settings
from engine.request import EndpointError, InfillRequest
from tests.e2e.processes import alive

pytestmark = pytest.mark.e2e

HERE = Path(__file__).parent
REQUEST = InfillRequest(prefix="x")
ANSWER = "alpha beta gamma"


class Stage:
    """A private folder, the command of a fake engine, and every engine that was started in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.starts = folder.parent / f"{folder.name}.starts"

    def command(self, *extra: str) -> tuple[str, ...]:
        return (sys.executable, str(HERE / "fake_engine.py"), "--starts", str(self.starts), *extra)

    def started(self) -> list[int]:
        return (
            [int(line) for line in self.starts.read_text().split()] if self.starts.exists() else []
        )

    @contextlib.asynccontextmanager
    async def backend(
        self, *extra: str, model: str = "fake", **settings: float
    ) -> AsyncIterator[Backend]:
        process = ProcessSettings(
            engine_command=self.command(*extra),
            folder=self.folder,
            log_file=self.folder / "engine.log",
            **settings,
        )
        backend = Backend.local(Settings(model=model), process)
        try:
            yield backend
        finally:
            await backend.close()


async def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        await asyncio.sleep(0.02)


@pytest.fixture
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    stage = Stage(tmp_path_factory.mktemp("s"))
    yield stage
    for process_id in stage.started():
        with contextlib.suppress(ProcessLookupError):
            os.kill(process_id, signal.SIGKILL)


async def test_ten_clients_racing_at_start_up_share_one_engine(stage: Stage) -> None:
    command = (sys.executable, str(HERE / "fake_client.py"), str(stage.folder), *stage.command())
    clients = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) for _ in range(10)
    ]
    try:
        lines = []
        for client in clients:
            assert client.stdout is not None and client.stdin is not None
            lines.append(json.loads(await asyncio.to_thread(client.stdout.readline)))
        for client in clients:
            client.communicate()
        assert [client.returncode for client in clients] == [0] * 10
    finally:
        for client in clients:
            client.kill()
            client.communicate()
    assert [line["text"] for line in lines] == [ANSWER] * 10
    assert len(stage.started()) == 1
    assert {line["pid"] for line in lines} == set(stage.started())
    assert alive(stage.started()[0]), "the engine outlives the clients that started it"


async def test_ten_clients_racing_an_idle_exit_all_get_answers(stage: Stage) -> None:
    idle_exit_s, rounds = 0.3, 4
    rng = random.Random(7)

    async def visit(delay_s: float) -> str:
        await asyncio.sleep(delay_s)
        async with stage.backend(idle_exit_s=idle_exit_s) as backend:
            return (await backend.complete(REQUEST)).text

    for _ in range(rounds):
        assert await visit(0) == ANSWER
        # The last client has left: all ten arrive in the moments in which the engine leaves.
        delays = [rng.uniform(idle_exit_s - 0.1, idle_exit_s + 0.3) for _ in range(10)]
        assert await asyncio.gather(*(visit(delay_s) for delay_s in delays)) == [ANSWER] * 10
        assert sum(map(alive, stage.started())) <= 1
    await until(lambda: not any(map(alive, stage.started())))
    assert not (stage.folder / "engine.json").exists()
    assert not (stage.folder / "engine.sock").exists()


async def test_an_engine_of_another_version_is_replaced(stage: Stage) -> None:
    await run_by_hand(stage, "--announce-version", "0.0.1", "--model", "fake")
    (old,) = stage.started()
    async with stage.backend() as backend:
        assert (await backend.complete(REQUEST)).text == ANSWER
        health = await backend.health()
    assert health.version == __version__
    assert health.pid != old
    await until(lambda: not alive(old))
    assert len(stage.started()) == 2


async def test_an_engine_of_another_model_is_replaced_once_its_request_is_done(
    stage: Stage,
) -> None:
    async with stage.backend(model="one") as first, stage.backend(model="two") as second:
        assert (await first.health()).model == "one"
        assert (await second.health()).model == "two"
        assert (await second.complete(REQUEST)).text == ANSWER
    assert len(stage.started()) == 2
    await until(lambda: sum(map(alive, stage.started())) <= 1)


async def test_an_engine_that_never_fits_is_not_replaced_forever(stage: Stage) -> None:
    async with stage.backend("--announce-version", "0.0.1") as backend:
        with pytest.raises(EngineUnavailable, match=r"version 0\.0\.1 with model fake"):
            await backend.complete(REQUEST)
    assert len(stage.started()) == 1


async def test_killed_during_a_request_that_one_fails_fast_and_the_next_is_answered(
    stage: Stage,
) -> None:
    async with stage.backend() as backend:
        first = (await backend.health()).pid
        assert first is not None
        asking = asyncio.ensure_future(backend.complete(InfillRequest(prefix="wait")))
        await until(stage.starts.with_suffix(".waits").exists)
        os.kill(first, signal.SIGKILL)
        with pytest.raises(EngineLost):
            await asyncio.wait_for(asking, 20)
        assert (await backend.complete(REQUEST)).text == ANSWER
        assert (await backend.health()).pid != first
    assert len(stage.started()) == 2


async def test_killed_while_nobody_asks_the_next_request_just_works(stage: Stage) -> None:
    async with stage.backend() as one, stage.backend() as two:
        assert (await one.complete(REQUEST)).text == ANSWER
        assert (await two.complete(REQUEST)).text == ANSWER
        (first,) = stage.started()
        os.kill(first, signal.SIGKILL)
        await until(lambda: not alive(first))
        replies = await asyncio.gather(one.complete(REQUEST), two.complete(REQUEST))
    assert [reply.text for reply in replies] == [ANSWER] * 2
    assert len(stage.started()) == 2, "both share the revived engine"


async def test_giving_up_while_the_engine_starts_does_not_start_a_second(stage: Stage) -> None:
    async with stage.backend("--load-seconds", "1") as backend:
        for _ in range(5):
            asking = asyncio.ensure_future(backend.complete(REQUEST))
            await asyncio.sleep(0.05)
            asking.cancel()
        assert (await backend.complete(REQUEST)).text == ANSWER
    assert len(stage.started()) == 1


async def test_a_client_that_asks_while_the_model_loads_sees_how_far_it_is(stage: Stage) -> None:
    async with stage.backend("--load-seconds", "3") as backend:
        while (health := await backend.health()).status == "starting":
            await asyncio.sleep(0.02)
        assert health.status == "loading"
        assert (await backend.complete(REQUEST)).text == ANSWER
        assert (await backend.health()).status == "ready"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_ends_it_cleanly(stage: Stage, number: signal.Signals) -> None:
    child = await run_by_hand(stage, "--load-seconds", "60")
    child.send_signal(number)
    assert await asyncio.to_thread(child.wait, 60) == 0
    left = {path.name for path in stage.folder.iterdir()}
    assert left <= {"engine.alive", "engine.start", "engine.log"}


#: `dlsp-engine serve` whose load hangs in a helper that Python would wait for at its exit.
STUCK = """
import sys, time
from concurrent.futures import ThreadPoolExecutor
import engine.serve
from engine.__main__ import main
def load(progress):
    progress("pretending", 1, 2)
    return ThreadPoolExecutor(1).submit(time.sleep, 1000).result()
engine.serve.run = lambda options: engine.serve.run_with(options, load)
sys.exit(main(["serve", "--model", "fake", "--socket", sys.argv[1]]))
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_ends_it_also_when_its_load_hangs(
    stage: Stage, number: signal.Signals
) -> None:
    socket = stage.folder / "engine.sock"
    child = subprocess.Popen([sys.executable, "-c", STUCK, str(socket)], cwd=HERE.parents[1])
    try:
        await until((stage.folder / "engine.json").exists)
        async with stage.backend() as backend:
            while (await backend.health()).progress is None:
                await asyncio.sleep(0.02)
            asking = asyncio.ensure_future(backend.complete(REQUEST))
            await asyncio.sleep(0.2)
            child.send_signal(number)
            assert await asyncio.to_thread(child.wait, 60) == 0
            assert (await asking).text == ANSWER, "who waited is answered by the next engine"
    finally:
        child.kill()


async def test_the_client_can_stop_the_engine(stage: Stage) -> None:
    async with stage.backend() as backend:
        await backend.complete(REQUEST)
        await backend.stop_engine()
        await until(lambda: not alive(stage.started()[0]))


async def test_the_engine_is_detached_from_the_one_who_started_it(stage: Stage) -> None:
    async with stage.backend() as backend:
        pid = (await backend.health()).pid
    assert pid is not None
    assert os.getsid(pid) == pid, "a session of its own: the editor's signals do not reach it"
    if Path("/proc/self").exists():
        assert os.readlink(f"/proc/{pid}/fd/0") == "/dev/null"
        assert os.readlink(f"/proc/{pid}/fd/1") == str(stage.folder / "engine.log")
        assert os.readlink(f"/proc/{pid}/cwd") == str(stage.folder)


async def test_a_folder_that_others_may_read_is_refused_before_anything_starts(
    stage: Stage,
) -> None:
    stage.folder.chmod(0o755)
    async with stage.backend() as backend:
        with pytest.raises(EndpointError, match="chmod 700"):
            await backend.complete(REQUEST)
    assert stage.started() == []
    assert stat.S_IMODE(stage.folder.stat().st_mode) == 0o755, "refused, not quietly repaired"


async def test_a_folder_of_another_user_is_refused(stage: Stage) -> None:
    if os.geteuid() != 0:
        pytest.skip("only the administrator can give a folder away")
    os.chown(stage.folder, 12345, -1)
    try:
        async with stage.backend() as backend:
            with pytest.raises(EndpointError, match="this user alone"):
                await backend.complete(REQUEST)
        child = subprocess.run(
            [*stage.command(), "--socket", str(stage.folder / "engine.sock")],
            capture_output=True,
            text=True,
            timeout=60,
        )
    finally:
        os.chown(stage.folder, 0, -1)
    assert child.returncode == EndpointError.exit_code
    assert "belongs to another user (uid 12345)" in child.stderr
    assert stage.started() == []


async def run_by_hand(stage: Stage, *extra: str) -> subprocess.Popen[bytes]:
    """An engine started by the user; returns once it announces itself and has begun to load."""
    with (stage.folder / "engine.log").open("ab") as log:
        child = subprocess.Popen(
            [*stage.command(*extra), "--socket", str(stage.folder / "engine.sock")],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
    await until(lambda: (stage.folder / "engine.json").exists() and bool(stage.started()))
    return child
