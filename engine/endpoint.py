"""Where the engine can be reached: its private folder, socket or port, token and endpoint file.

Knows files, locks and sockets, and who may own them. Does not know requests, models or HTTP.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import socket
import stat
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import platformdirs
from filelock import FileLock, Timeout

from engine.request import EndpointError

#: The engine holds the first lock for life; whoever starts or retires an engine holds the second.
ALIVE_SUFFIX, START_SUFFIX = ".alive", ".start"
_SOCKET_PATH_BYTES = 103  # the shortest `sun_path` among the systems we run on, without its NUL


def default_runtime_folder() -> Path:
    """`DLSP_RUNTIME_DIR`, else the login session's folder, else one in the user's state folder."""
    override = os.environ.get("DLSP_RUNTIME_DIR")
    if override:
        return Path(override)
    session = os.environ.get("XDG_RUNTIME_DIR")
    if session and sys.platform != "win32" and Path(session).is_dir():
        return Path(session) / "dlsp"
    return platformdirs.user_state_path("dlsp") / "run"


def prepare_folder(folder: Path) -> None:
    """Create the folder for this user alone, or refuse one that others could have prepared."""
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(FileExistsError):
            folder.mkdir(mode=0o700)
        found = folder.lstat()
    except OSError as error:
        raise EndpointError(
            f"cannot create the engine's folder {folder}: {error.strerror}; "
            "set DLSP_RUNTIME_DIR to a folder of your own"
        ) from None
    if not stat.S_ISDIR(found.st_mode):
        raise EndpointError(
            f"{folder} is not a folder (a link is not followed); remove it or set DLSP_RUNTIME_DIR"
        )
    if sys.platform == "win32":
        return  # the profile folder's access list already keeps other users out
    if found.st_uid != os.geteuid():
        raise EndpointError(
            f"{folder} belongs to another user (uid {found.st_uid}); "
            "set DLSP_RUNTIME_DIR to a folder of your own"
        )
    if found.st_mode & 0o077:
        raise EndpointError(f"{folder} is open to other users; run: chmod 700 {folder}")


def bind_unix(path: Path) -> socket.socket:
    """Listen on `path`. The caller holds the alive lock, so a socket file found there is dead."""
    if len(os.fsencode(path)) > _SOCKET_PATH_BYTES:
        raise EndpointError(
            f"the socket path {path} is longer than {_SOCKET_PATH_BYTES} bytes; "
            "set DLSP_RUNTIME_DIR to a shorter folder"
        )
    with contextlib.suppress(FileNotFoundError):
        if not stat.S_ISSOCK(path.lstat().st_mode):
            raise EndpointError(f"{path} exists and is not a socket; remove it")
        path.unlink()
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        listener.bind(str(path))
        path.chmod(0o600)
        listener.listen(128)
    except OSError as error:
        listener.close()
        raise EndpointError(f"cannot listen on {path}: {error.strerror}") from None
    return listener


def bind_tcp(port: int) -> socket.socket:
    """Listen on loopback; port 0 lets the system choose."""
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    if sys.platform != "win32":  # on Windows the option would let two processes share a port
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind(("127.0.0.1", port))
        listener.listen(128)
    except (OSError, OverflowError) as error:
        listener.close()
        why = error.strerror if isinstance(error, OSError) else "not a port number"
        raise EndpointError(
            f"port {port} is not free ({why}); stop the program that uses it or give another --port"
        ) from None
    return listener


def read_or_make_token(path: Path) -> str:
    """The bearer token in `path`; made on first use, readable by this user alone."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return _read_token(path)
    except OSError as error:
        raise EndpointError(f"cannot write the token file {path}: {error.strerror}") from None
    token = secrets.token_urlsafe(32)
    with os.fdopen(descriptor, "w", encoding="ascii") as file:
        file.write(token + "\n")
    return token


def _read_token(path: Path) -> str:
    try:
        found = path.lstat()
        if not stat.S_ISREG(found.st_mode):
            raise EndpointError(f"the token file {path} is not a plain file; remove it")
        if sys.platform != "win32" and (found.st_uid != os.geteuid() or found.st_mode & 0o077):
            raise EndpointError(
                f"the token file {path} can be read by other users; remove it, or run: "
                f"chmod 600 {path}"
            )
        token = path.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise EndpointError(f"cannot read the token file {path}: {error}; remove it") from None
    if len(token) < 16:
        raise EndpointError(f"the token in {path} is shorter than 16 characters; remove the file")
    return token


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointRecord:
    """What the endpoint file tells a client. `instance` is unique to one engine process."""

    url: str
    socket: str | None
    token_file: str | None
    pid: int
    instance: str
    version: str
    wire_version: int
    model: str
    weights: str | None


class EndpointFile:
    """The file by which clients find the engine, and the lock that makes its engine the only one.

    The lock is the system's: a killed engine leaves it free, so no dead one is taken for alive.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.start_lock = FileLock(path.with_suffix(START_SUFFIX), thread_local=False)
        self._alive = FileLock(path.with_suffix(ALIVE_SUFFIX), thread_local=False)

    def claim(self, *, patience_s: float = 15.0) -> None:
        """Become the only engine of this file; waits for one that is finishing, no other."""
        until = time.monotonic() + patience_s
        while True:
            try:
                self._alive.acquire(timeout=0)
                return
            except Timeout:
                pass
            except OSError as error:
                raise EndpointError(
                    f"cannot lock {self.path.with_suffix(ALIVE_SUFFIX)}: {error.strerror}"
                ) from None
            record = self._read()
            if record is not None or time.monotonic() > until:
                pid = record.get("pid") if record else "unknown"
                raise EndpointError(
                    f"another engine (pid {pid}) already serves {self.path}; stop it, or give "
                    "another --socket or --endpoint"
                )
            time.sleep(0.05)

    def release(self) -> None:
        """Let another engine take this file over."""
        self._alive.release()

    def publish(self, record: EndpointRecord) -> None:
        """Write the file in one step: a reader sees the old one, none, or the whole new one."""
        values = {name: getattr(record, name) for name in EndpointRecord.__dataclass_fields__}
        fresh = self.path.with_name(f"{self.path.name}.{record.instance}")
        try:
            descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                json.dump(values, file)
            os.replace(fresh, self.path)
        except OSError as error:
            raise EndpointError(f"cannot write {self.path}: {error.strerror}") from None

    def withdraw(self, instance: str) -> None:
        """Remove the file if it is still the one that `instance` wrote."""
        record = self._read()
        if record is not None and record.get("instance") == instance:
            self.path.unlink(missing_ok=True)

    def clear_stale(self) -> None:
        """Drop what a dead engine left; the caller has claimed the file."""
        self.path.unlink(missing_ok=True)

    def _read(self) -> dict[str, object] | None:
        try:
            record = json.loads(self.path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
        return record if isinstance(record, dict) else None
