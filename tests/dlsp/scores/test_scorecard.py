"""The scorecard's file: many writers, one schema, bounds, and nothing left after erasing."""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import os
import sqlite3
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from dlsp.scores import scorecard
from dlsp.scores.scorecard import (
    KEEP_DAYS,
    Row,
    Scorecard,
    ScorecardError,
    connected,
    data_dir,
    erase,
    migrate,
    read_rows,
)


def row(number: object = 0, *, at: float | None = None, **changes: Any) -> Row:
    plain = Row(
        id=f"id-{number}", at=time.time() if at is None else at, language="python", model="m",
        latency_ms=10.0, characters=20, lines=1, confidence=0.5, shown=True,
    )  # fmt: skip
    return dataclasses.replace(plain, **changes)


def write(path: Path, *rows: Row) -> None:
    card = Scorecard(path)
    for one in rows:
        card.put(one)
    card.close(patience_s=10)


def test_rows_come_back_as_they_were_the_last_of_an_id(tmp_path: Path) -> None:
    path = tmp_path / "new" / "card.sqlite"
    final = row(1, accepted=True, accepted_characters=20, acceptances=1, kept_30=0.75)
    withheld = row(2, at=final.at + 1, shown=False)
    write(path, row(1), withheld, row(1, accepted=True), final)
    assert read_rows(path, days=1) == [final, withheld]


def test_the_file_is_for_its_user_alone_and_holds_no_text(tmp_path: Path) -> None:
    path = tmp_path / "new" / "card.sqlite"
    write(path, row())
    with connected(path) as connection:
        kinds = {
            name: kind for _, name, kind, *_ in connection.execute("PRAGMA table_info (suggestion)")
        }
    assert {name for name, kind in kinds.items() if kind == "TEXT"} == {"id", "language", "model"}
    if sys.platform != "win32":
        assert path.stat().st_mode & 0o077 == 0
        assert path.parent.stat().st_mode & 0o077 == 0


WRITER = """
import sys
from pathlib import Path
from dlsp.scores.scorecard import Scorecard
from tests.dlsp.scores.test_scorecard import row
card = Scorecard(Path(sys.argv[1]))
for number in range(200):
    card.put(row(f"{sys.argv[2]}-{number}"))
card.close(patience_s=30)
"""


def test_several_servers_write_at_once(tmp_path: Path) -> None:
    path = tmp_path / "card.sqlite"
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", WRITER, str(path), str(number)],
            cwd=Path(__file__).parents[3], stderr=subprocess.PIPE,
        )
        for number in range(3)
    ]  # fmt: skip
    for writer in writers:
        assert writer.communicate(timeout=60)[1] == b""
    assert len(read_rows(path, days=1)) == 600


def test_old_rows_and_those_above_the_bound_are_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scorecard, "KEEP_ROWS", 5)
    path, now = tmp_path / "card.sqlite", time.time()
    old = [row(n, at=now - (KEEP_DAYS + 1) * 86_400) for n in range(3)]
    new = [row(n, at=now - 10 + n / 10) for n in range(10, 20)]
    write(path, *old, *new)
    assert len(read_rows(path, days=1000)) == 13, "removed at the next start"
    write(path, row(99))
    found = [one.id for one in read_rows(path, days=1000)]
    assert found == [*(one.id for one in new[-5:]), "id-99"]


def test_migration_keeps_rows_and_runs_once(tmp_path: Path) -> None:
    path = tmp_path / "card.sqlite"
    write(path, row(1))
    newer = (*scorecard._MIGRATIONS, "ALTER TABLE suggestion ADD COLUMN mood TEXT DEFAULT 'x'")
    with connected(path) as connection:
        migrate(connection, newer)
        migrate(connection, newer)
        assert connection.execute("SELECT id, mood FROM suggestion").fetchall() == [("id-1", "x")]
    with pytest.raises(ScorecardError, match="newer dlsp"):
        read_rows(path, days=1)


def test_a_failed_migration_changes_nothing(tmp_path: Path) -> None:
    with connected(tmp_path / "card.sqlite") as connection:
        bad = (*scorecard._MIGRATIONS, "CREATE TABLE extra (a); INSERT INTO nowhere VALUES (1)")
        with pytest.raises(sqlite3.OperationalError):
            migrate(connection, bad)
        tables = connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")
        assert [name for (name,) in tables] == ["suggestion"]
        assert connection.execute("PRAGMA user_version").fetchone() == (1,)


def test_a_file_that_cannot_be_written_costs_no_more_than_the_figures(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "card.sqlite"
    path.write_bytes(b"this is no database, and long enough to be seen as none" * 50)
    with caplog.at_level(logging.WARNING):
        write(path, row(1), row(2))
    assert caplog.text.count("no more figures are kept") == 1
    with pytest.raises(ScorecardError, match="dlsp stats --erase"):
        read_rows(path, days=1)
    assert erase(path) == 0
    write(path, row(3))
    assert [one.id for one in read_rows(path, days=1)] == ["id-3"]


def test_a_damaged_file_is_told_in_one_line_and_erased(tmp_path: Path) -> None:
    path = tmp_path / "card.sqlite"
    write(path, *(row(n) for n in range(500)))
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA journal_mode = DELETE")
    content = bytearray(path.read_bytes())
    content[8192:-4096] = b"\xa5" * (len(content) - 12288)
    path.write_bytes(content)
    with pytest.raises(ScorecardError, match="dlsp stats --erase"):
        read_rows(path, days=1)
    erase(path)
    assert read_rows(path, days=1) == []


def test_a_folder_in_the_files_place_is_told(tmp_path: Path) -> None:
    (tmp_path / "card.sqlite").mkdir()
    with pytest.raises(ScorecardError, match="cannot remove"):
        erase(tmp_path / "card.sqlite")


def test_erase_leaves_no_byte_of_a_row_behind(tmp_path: Path) -> None:
    path = tmp_path / "card.sqlite"
    write(path, *(row(n, language="klingon") for n in range(100)))
    other = Scorecard(path)
    other.put(row(100, language="klingon"))
    while len(read_rows(path, days=1)) < 101:
        time.sleep(0.01)
    assert erase(path) == 101
    left = b"".join(file.read_bytes() for file in tmp_path.iterdir())
    assert b"klingon" not in left
    other.put(row(101))
    other.close(patience_s=10)
    assert [one.id for one in read_rows(path, days=1)] == ["id-101"]
    assert erase(tmp_path / "none.sqlite") == 0


def test_the_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DLSP_DATA_DIR", str(tmp_path))
    assert data_dir() == tmp_path
    monkeypatch.delenv("DLSP_DATA_DIR")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "share"))
    if sys.platform == "linux":
        assert data_dir() == tmp_path / "share" / "dlsp"
    assert os.path.basename(data_dir()) == "dlsp"
