"""The local engine as files and processes: where it announces itself, and how one is started.

Knows the private folder, the endpoint file, locks, the log file and the command line. Does not
know HTTP, and never imports the engine: its process has its own memory, pipes and fate.
"""

from __future__ import annotations

import contextlib
import json
import os
import stat
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import platformdirs
from filelock import FileLock, Timeout

from dlsp.config.settings import Settings
from engine.request import EndpointError, EngineError

_LOG_BYTES = 1_000_000
_WINDOWS_DETACHED = 0x00000008 | 0x00000200  # DETACHED_PROCESS, CREATE_NEW_PROCESS_GROUP


class EngineUnavailable(EngineError):
    """No local engine runs and none can be started."""

    code, http_status, exit_code = "engine_unavailable", 503, 5


def default_folder() -> Path:
    """The engine's own default, said again because neither program imports the other's rooms."""
    override = os.environ.get("DLSP_RUNTIME_DIR")
    if override:
        return Path(override)
    session = os.environ.get("XDG_RUNTIME_DIR")
    if session and sys.platform != "win32" and Path(session).is_dir():
        return Path(session) / "dlsp"
    return platformdirs.user_state_path("dlsp") / "run"


def default_log_file() -> Path:
    """The engine's log: in the user's log folder, or beside the socket when that was moved."""
    override = os.environ.get("DLSP_RUNTIME_DIR")
    return (Path(override) if override else platformdirs.user_log_path("dlsp")) / "engine.log"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessSettings:
    """How a local engine is found and started. Times in seconds; None: the engine's default."""

    engine_command: tuple[str, ...] = (sys.executable, "-m", "engine", "serve")
    folder: Path = field(default_factory=default_folder)
    log_file: Path = field(default_factory=default_log_file)
    idle_exit_s: float | None = None
    idle_unload_s: float | None = None
    memory_mb: int | None = None
    threads: int | None = None
    start_timeout_s: float = 30.0

    @classmethod
    def of(cls, settings: Settings) -> ProcessSettings:
        """The usual places, and the limits that the user chose."""
        return cls(idle_unload_s=settings.idle_unload_minutes * 60.0, memory_mb=settings.memory_mb)


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """What the endpoint file says: where to connect and with which token."""

    url: str
    socket: str | None
    token: str | None
    instance: str


class EngineFolder:
    """The private folder in which engine and clients meet."""

    def __init__(self, settings: ProcessSettings) -> None:
        self._settings = settings
        self.path = settings.folder.absolute()
        self._file = self.path / "engine.json"
        # The names of both locks are part of the agreement with the engine.
        self.start_lock = FileLock(self.path / "engine.start", thread_local=False)
        self._alive_lock = FileLock(self.path / "engine.alive", thread_local=False)

    def prepare(self) -> None:
        """Make the folder, or refuse one in which another user could pose as the engine."""
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with contextlib.suppress(FileExistsError):
                self.path.mkdir(mode=0o700)
            found = self.path.lstat()
        except OSError as error:
            raise EndpointError(f"cannot create {self.path}: {error.strerror}") from None
        foreign = sys.platform != "win32" and (
            found.st_uid != os.geteuid() or bool(found.st_mode & 0o077)
        )
        if foreign or not stat.S_ISDIR(found.st_mode):
            raise EndpointError(
                f"{self.path} is not a folder of this user alone; run: chmod 700 {self.path}, or "
                "set DLSP_RUNTIME_DIR to a folder of your own"
            )

    def endpoint(self) -> Endpoint | None:
        """What the file says now; None without a usable one, or when its engine is surely dead."""
        record = self._record()
        if record is None:
            return None
        socket, token_file = record.get("socket"), record.get("token_file")
        if not isinstance(socket, str):
            # A port outlives its engine: somebody else may listen there, and get token and code.
            if not self.engine_lives():
                return None
            socket = None
        return Endpoint(
            url=str(record.get("url")),
            socket=socket,
            token=_read_token(token_file),
            instance=str(record.get("instance")),
        )

    def _record(self) -> dict[str, Any] | None:
        try:
            record = json.loads(self._file.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
        return record if isinstance(record, dict) and record.get("url") else None

    def instance(self) -> str | None:
        """Which engine process the file names, alive or not; None without a file."""
        record = self._record()
        return None if record is None else str(record.get("instance"))

    def engine_lives(self) -> bool:
        """Whether an engine holds the lock that it keeps for life."""
        try:
            with self._alive_lock.acquire(timeout=0):
                return False
        except Timeout:
            return True

    def start(self, model: str | None, weights: str | None) -> subprocess.Popen[bytes]:
        """Start an engine of its own session; the caller holds the start lock.

        It runs in the private folder: `-m` looks for modules where it stands, and a project that
        is open in the editor must not be able to slip in an `engine` of its own.
        """
        command = self._command(model, weights)
        try:
            with self._open_log() as log:
                return subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    cwd=self.path,
                    start_new_session=True,
                    creationflags=_WINDOWS_DETACHED if sys.platform == "win32" else 0,
                )
        except OSError as error:
            raise EngineUnavailable(f"cannot start {command[0]}: {error.strerror}") from None

    def _command(self, model: str | None, weights: str | None) -> list[str]:
        settings = self._settings
        options = {
            "--model": model,
            "--weights": weights,
            "--socket": None if sys.platform == "win32" else str(self.path / "engine.sock"),
            "--endpoint": str(self._file),
            "--idle-exit": settings.idle_exit_s,
            "--idle-unload": settings.idle_unload_s,
            "--memory-mb": settings.memory_mb,
            "--threads": settings.threads,
        }
        given = [[name, str(value)] for name, value in options.items() if value is not None]
        return [*settings.engine_command, *(part for pair in given for part in pair)]

    def _open_log(self) -> IO[bytes]:
        path = self._settings.log_file
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            if path.exists() and path.stat().st_size > _LOG_BYTES:
                os.replace(path, path.with_name(path.name + ".1"))
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        except OSError as error:
            raise EngineUnavailable(
                f"cannot write the engine's log {path}: {error.strerror}"
            ) from None
        return os.fdopen(descriptor, "ab")

    def last_words(self) -> str:
        """The last line of the log, and where the log is: why an engine did not start."""
        path = self._settings.log_file
        try:
            with path.open("rb") as log:
                log.seek(max(0, path.stat().st_size - 4096))
                lines = log.read().decode("utf-8", "replace").split("\n")
        except OSError:
            lines = []
        last = next((line.strip() for line in reversed(lines) if line.strip()), "it said nothing")
        return f"{last} (log: {path})"


def _read_token(path: object) -> str | None:
    if not isinstance(path, str):
        return None
    try:
        return Path(path).read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        return None


class BackOff:
    """When the next start is allowed: at once after a long life, later after each short one."""

    def __init__(self, *, settled_s: float = 60.0, longest_s: float = 30.0) -> None:
        self._settled_s = settled_s
        self._longest_s = longest_s
        self._starts = 0
        self._last = 0.0

    def wait_s(self) -> float:
        """How long to wait before the next start."""
        if time.monotonic() - self._last > self._settled_s:
            self._starts = 0
        if self._starts < 2:  # one crash is bad luck: the next request just works
            return 0.0
        delay_s = min(2.0 ** (self._starts - 2), self._longest_s)
        return max(0.0, self._last + delay_s - time.monotonic())

    def started(self) -> None:
        """Note a start."""
        self._starts += 1
        self._last = time.monotonic()
