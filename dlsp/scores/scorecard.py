"""The scorecard on disk: one row for each suggestion, in SQLite, on this machine only.

Knows the file, its schema and who may write it. A row says when, which language and model, how
long, how large and what became of it; no code, no path, no project. Several servers write to one
file at once. Does not know how a suggestion came about or how its fate is found out (feedback.py),
nor what the figures mean (summary.py).
"""

from __future__ import annotations

import contextlib
import logging
import os
import queue
import sqlite3
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import astuple, dataclass, fields
from pathlib import Path

import platformdirs

from engine.request import EngineError

#: Rows older than this, and the oldest above this number, are removed.
KEEP_DAYS, KEEP_ROWS = 180, 200_000
#: How long one writer waits for another.
BUSY_S = 5.0
_DAY_S = 86_400.0

#: Each brings a file from the version of its index to the next; `user_version` counts them.
_MIGRATIONS = (
    """
    CREATE TABLE suggestion (
        id TEXT PRIMARY KEY,
        at REAL NOT NULL,
        language TEXT NOT NULL,
        model TEXT NOT NULL,
        latency_ms REAL NOT NULL,
        characters INTEGER NOT NULL,
        lines INTEGER NOT NULL,
        confidence REAL NOT NULL,
        shown INTEGER NOT NULL,
        accepted INTEGER NOT NULL,
        accepted_characters INTEGER NOT NULL,
        acceptances INTEGER NOT NULL,
        typed_characters INTEGER NOT NULL,
        kept_30 REAL,
        kept_300 REAL
    ) WITHOUT ROWID;
    CREATE INDEX suggestion_at ON suggestion (at);
    """,
)

logger = logging.getLogger(__name__)


class ScorecardError(EngineError):
    """The scorecard cannot be read; the message says what to do."""

    code, exit_code = "scorecard", 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One suggestion and what became of it.

    `at`: seconds since 1970. `characters`, `lines`: of the suggested text. `shown`: the editor got
    it; otherwise it was made and withheld. `accepted`: taken to its end, by a key.
    `accepted_characters` came in by `acceptances` keys, `typed_characters` were typed by hand as
    suggested. `kept_*`: the share of the accepted text that still stood after so many seconds;
    None while unknown.
    """

    id: str
    at: float
    language: str
    model: str
    latency_ms: float
    characters: int
    lines: int
    confidence: float
    shown: bool
    accepted: bool = False
    accepted_characters: int = 0
    acceptances: int = 0
    typed_characters: int = 0
    kept_30: float | None = None
    kept_300: float | None = None

    @property
    def keystrokes_saved(self) -> int:
        """Characters that one key brought in, less those keys."""
        return max(self.accepted_characters - self.acceptances, 0)


_COLUMNS = tuple(field.name for field in fields(Row))
_FLAGS = ("shown", "accepted")
_PUT = (
    f"INSERT INTO suggestion ({', '.join(_COLUMNS)}) VALUES ({', '.join('?' * len(_COLUMNS))}) "
    f"ON CONFLICT (id) DO UPDATE SET {', '.join(f'{name} = excluded.{name}' for name in _COLUMNS)}"
)


def data_dir() -> Path:
    """The folder for what dlsp keeps about its use; `DLSP_DATA_DIR` overrides."""
    override = os.environ.get("DLSP_DATA_DIR")
    return Path(override) if override else platformdirs.user_data_path("dlsp", appauthor=False)


def default_path() -> Path:
    return data_dir() / "scorecard.sqlite"


class Scorecard:
    """Takes rows from the event loop and writes them in a thread of its own, started on demand.

    A file that cannot be written costs figures, never a completion: it is told once, in the log.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._rows: queue.SimpleQueue[Row | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    def put(self, row: Row) -> None:
        """Write a row, or replace the one of its id; returns at once."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._write, name="scorecard", daemon=True)
            self._thread.start()
        self._rows.put(row)

    def close(self, *, patience_s: float = 1.0) -> None:
        """Write what is left; blocks for so long at most."""
        if self._thread is not None:
            self._rows.put(None)
            self._thread.join(patience_s)
            self._thread = None

    def _write(self) -> None:
        try:
            with connected(self.path) as connection:
                _remove_old(connection, now=time.time())
                while rows := self._next():
                    with connection:
                        connection.executemany(_PUT, [astuple(row) for row in rows])
        except (sqlite3.Error, OSError, ScorecardError) as error:
            logger.warning("no more figures are kept: %s", error)
            while self._rows.get() is not None:
                pass  # whoever puts and closes need not know

    def _next(self) -> list[Row]:
        """The rows that wait, at least one; none at the end."""
        rows: list[Row] = []
        while (row := self._rows.get()) is not None:
            rows.append(row)
            if self._rows.empty():
                return rows
        if rows:
            self._rows.put(None)  # to be found again behind these rows
        return rows


@contextlib.contextmanager
def connected(path: Path) -> Iterator[sqlite3.Connection]:
    """The scorecard's file, made for this user alone and of our schema. Raises ScorecardError."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
        connection = sqlite3.connect(path, timeout=BUSY_S)
    except (OSError, sqlite3.Error) as error:
        raise ScorecardError(f"cannot open {path}: {error}; set DLSP_DATA_DIR") from None
    with contextlib.closing(connection):
        try:
            _prepare(connection)
        except sqlite3.Error as error:
            raise ScorecardError(f"cannot use {path}: {error}; dlsp stats --erase") from None
        yield connection


def _prepare(connection: sqlite3.Connection) -> None:
    """Write-ahead log and schema. The change to that log does not wait for who holds the file, so
    servers that start at the same moment try again."""
    given_up = time.monotonic() + BUSY_S
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = NORMAL")  # a power cut may cost last rows
            migrate(connection, _MIGRATIONS)
            return
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() > given_up:
                raise
            time.sleep(0.02)


def migrate(connection: sqlite3.Connection, migrations: Sequence[str]) -> None:
    """Bring a file to the newest schema, once, whoever comes first. Raises ScorecardError."""
    if _version(connection) == len(migrations):
        return
    connection.execute("BEGIN IMMEDIATE")
    try:
        version = _version(connection)  # another server may just have done it
        if version > len(migrations):
            raise ScorecardError("the scorecard was written by a newer dlsp; update this one")
        for script in migrations[version:]:
            for statement in filter(str.strip, script.split(";")):
                connection.execute(statement)
        connection.execute(f"PRAGMA user_version = {len(migrations)}")
    except BaseException:
        connection.rollback()
        raise
    connection.commit()


def _version(connection: sqlite3.Connection) -> int:
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def _remove_old(connection: sqlite3.Connection, *, now: float) -> None:
    with connection:
        connection.execute("DELETE FROM suggestion WHERE at < ?", (now - KEEP_DAYS * _DAY_S,))
        connection.execute(
            "DELETE FROM suggestion WHERE at < "
            "(SELECT at FROM suggestion ORDER BY at DESC LIMIT 1 OFFSET ?)",
            (KEEP_ROWS - 1,),
        )


def read_rows(path: Path, *, days: float, now: float | None = None) -> list[Row]:
    """The rows of the last `days`, oldest first; none where no file is. Raises ScorecardError."""
    if not path.exists():
        return []
    since = (time.time() if now is None else now) - days * _DAY_S
    with connected(path) as connection:
        try:
            found = connection.execute(
                f"SELECT {', '.join(_COLUMNS)} FROM suggestion WHERE at >= ? ORDER BY at", (since,)
            ).fetchall()
        except sqlite3.Error as error:
            raise ScorecardError(f"cannot read {path}: {error}; dlsp stats --erase") from None
    return [_row(values) for values in found]


def _row(values: Sequence[object]) -> Row:
    named = dict(zip(_COLUMNS, values, strict=True))
    return Row(**{**named, **{name: bool(named[name]) for name in _FLAGS}})  # type: ignore[arg-type]


def erase(path: Path) -> int:
    """Remove every row, for good; how many there were. A file that is no scorecard is removed."""
    if not path.exists():
        return 0
    try:
        with connected(path) as connection:
            connection.execute("PRAGMA secure_delete = ON")
            # Not unlinked: other servers may write to it.
            with connection:
                count = connection.execute("DELETE FROM suggestion").rowcount
            connection.execute("VACUUM")
            connection.execute("PRAGMA wal_checkpoint (TRUNCATE)")
    except (ScorecardError, sqlite3.Error):
        for suffix in ("", "-wal", "-shm"):
            try:
                path.with_name(path.name + suffix).unlink(missing_ok=True)
            except OSError as error:
                raise ScorecardError(f"cannot remove {path}: {error.strerror}") from None
        return 0
    return count
