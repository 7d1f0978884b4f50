"""An engine started before anybody can ask it: one, under the start lock, and only if it is due."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from dlsp.client.backend import ProcessSettings
from dlsp.client.engine_process import EngineFolder
from dlsp.commands.head_start import engine_on_its_way
from dlsp.config.settings import Settings
from tests.e2e.test_engine_lifecycle import ANSWER, REQUEST, Stage, stage, until

__all__ = ["stage"]  # a fixture

pytestmark = pytest.mark.e2e

FAKE = Settings(model="fake")


def process(stage: Stage, *extra: str) -> ProcessSettings:
    return ProcessSettings(
        engine_command=stage.command(*extra),
        folder=stage.folder,
        log_file=stage.folder / "engine.log",
    )


def lock_is_free(stage: Stage) -> bool:
    lock = EngineFolder(process(stage)).start_lock
    try:
        with lock.acquire(timeout=0):
            return True
    except TimeoutError:
        return False


async def test_who_asks_meanwhile_finds_the_engine_that_was_started(stage: Stage) -> None:
    with engine_on_its_way(FAKE, process(stage)):
        assert not lock_is_free(stage)
        async with stage.backend() as one, stage.backend() as two:
            replies = await asyncio.gather(one.complete(REQUEST), two.complete(REQUEST))
            assert [reply.text for reply in replies] == [ANSWER] * 2
            assert lock_is_free(stage)
    assert len(stage.started()) == 1


async def test_another_model_still_wins(stage: Stage) -> None:
    with engine_on_its_way(FAKE, process(stage)):
        async with stage.backend(model="other") as backend:
            assert (await backend.health()).model == "other"
            assert (await backend.complete(REQUEST)).text == ANSWER
    assert len(stage.started()) == 2


async def test_an_engine_that_is_there_is_left_alone(stage: Stage) -> None:
    async with stage.backend() as backend:
        first = (await backend.health()).pid
        with engine_on_its_way(Settings(model="other"), process(stage)):
            assert lock_is_free(stage)
        assert (await backend.health()).pid == first
    assert len(stage.started()) == 1


async def test_what_a_killed_engine_left_does_not_pass_for_one(stage: Stage) -> None:
    stage.folder.joinpath("engine.json").write_text('{"url": "http://engine", "instance": "old"}')
    with engine_on_its_way(FAKE, process(stage)):
        async with stage.backend() as backend:
            assert (await backend.complete(REQUEST)).text == ANSWER
    assert len(stage.started()) == 1


def test_none_is_started_for_an_engine_elsewhere(stage: Stage) -> None:
    settings = Settings(model="fake", engine_url="http://127.0.0.1:9")
    with engine_on_its_way(settings, process(stage)):
        assert lock_is_free(stage)
    assert not (stage.folder / "engine.log").exists()


def test_none_is_started_while_somebody_else_starts_one(stage: Stage) -> None:
    with EngineFolder(process(stage)).start_lock, engine_on_its_way(FAKE, process(stage)):
        assert not (stage.folder / "engine.log").exists()


async def test_one_that_ends_at_once_lets_go_of_the_lock(stage: Stage) -> None:
    broken = ProcessSettings(
        engine_command=(sys.executable, "-c", "raise SystemExit(3)"),
        folder=stage.folder,
        log_file=stage.folder / "engine.log",
    )
    with engine_on_its_way(FAKE, broken):
        await until(lambda: lock_is_free(stage))


async def test_a_folder_or_a_program_that_cannot_be_is_left_to_who_can_tell(stage: Stage) -> None:
    nowhere = ProcessSettings(
        engine_command=(str(stage.folder / "none"),),
        folder=stage.folder,
        log_file=stage.folder / "engine.log",
    )
    with engine_on_its_way(FAKE, nowhere):
        assert lock_is_free(stage)
    stage.folder.chmod(0o755)
    with engine_on_its_way(FAKE, process(stage)):
        pass
    assert stage.started() == []


async def test_leaving_early_lets_go_of_the_lock_and_the_engine_lives_on(stage: Stage) -> None:
    with engine_on_its_way(FAKE, process(stage, "--load-seconds", "1")):
        pass
    assert lock_is_free(stage)
    async with stage.backend() as backend:
        assert (await backend.complete(REQUEST)).text == ANSWER
    assert len(stage.started()) == 1


def test_what_the_command_imports_before_the_engine_starts_is_light() -> None:
    program = (
        "import sys, dlsp.__main__, dlsp.commands.complete_command, dlsp.commands.head_start\n"
        "heavy = {'asyncio', 'httpx', 'lsprotocol', 'pygls', 'cattrs', 'tree_sitter'}\n"
        "assert not heavy & set(sys.modules), heavy & set(sys.modules)\n"
        "import dlsp.commands.one_shot\n"
        "heavy -= {'asyncio'}\n"
        "assert not heavy & set(sys.modules), heavy & set(sys.modules)\n"
    )
    root = Path(__file__).parents[2]
    ended = subprocess.run(
        [sys.executable, "-c", program], cwd=root, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stderr
