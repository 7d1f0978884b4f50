"""The soak's own arithmetic, and that it notices what it is there to notice."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest

from benchmarks.report import BenchmarkError
from benchmarks.soak import Tally, Typist, growth_of, quarters, resident_mb


def test_growth_is_the_last_quarter_over_the_second() -> None:
    warm = [50.0, 90.0, 100.0, 100.0, 100.0, 101.0, 103.0, 103.0]
    assert quarters(warm) == [70.0, 100.0, 100.5, 103.0]
    assert growth_of(warm) == 0.03
    assert growth_of([100.0] * 40) == 0.0
    assert growth_of([]) == 0.0


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads /proc")
def test_memory_is_read() -> None:
    before = resident_mb(os.getpid())
    block = bytearray(os.urandom(1)) * (32 << 20)
    assert 25 < resident_mb(os.getpid()) - before < 60
    del block
    with pytest.raises(BenchmarkError):
        resident_mb(2**22 + 1)


class Server:
    """Answers all, or all but some, of what it is asked."""

    process_id = 0

    def __init__(self, *, mute_after: int | None = None) -> None:
        self.notified: list[str] = []
        self.asked = 0
        self._mute_after = mute_after

    def notify(self, method: str, params: Any) -> None:
        self.notified.append(method)

    async def request(self, method: str, params: Any) -> Any:
        self.asked += 1
        if self._mute_after is not None and self.asked > self._mute_after:
            await asyncio.sleep(3600)
        where = params["position"]
        return {"items": [{"insertText": "ab", "range": {"start": where, "end": where}}]}


def type_into(server: Server, tmp_path: Path) -> Tally:
    file = tmp_path / "some.py"
    file.write_text("line = 1\n" * 200)
    tally = Tally()
    typist = Typist(server, tally, seed=1, pause_s=0.0)  # type: ignore[arg-type]
    asyncio.run(typist.document(file, 100))
    return tally


def test_a_document_is_typed_and_every_answer_counted(tmp_path: Path) -> None:
    server = Server()
    tally = type_into(server, tmp_path)
    assert (tally.keys, tally.requests) == (100, server.asked)
    assert tally.answered == tally.requests > 100
    assert 0 < tally.accepted < tally.shown
    asyncio.run(Typist(server, tally, seed=1, pause_s=0.0)._settle())  # type: ignore[arg-type]
    assert (server.notified[0], server.notified[-1]) == (
        "textDocument/didOpen", "textDocument/didClose",
    )  # fmt: skip


def test_a_lost_answer_ends_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.soak._ANSWER_S", 0.1)
    with pytest.raises(BenchmarkError, match="had no answer"):
        type_into(Server(mute_after=10), tmp_path)
