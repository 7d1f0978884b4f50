"""The address of one engine: what is locked, bound and written while it serves there.

Knows which files belong to a socket or a port, and takes away only its own. Does not know HTTP.
"""

from __future__ import annotations

import contextlib
import secrets
import select
import socket
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from engine.api import Identity
from engine.endpoint import (
    EndpointFile,
    EndpointRecord,
    bind_tcp,
    bind_unix,
    default_runtime_folder,
    prepare_folder,
    read_or_make_token,
)
from engine.request import WIRE_VERSION, EndpointError


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeOptions:
    """What `engine serve` may be told. Times are seconds: 0 means never, None the default.

    Without `socket` and `port`: the default socket, or any free port on Windows. A `port` given
    without `endpoint` serves other clients and is not announced to editors.
    """

    model: str
    weights: Path | None = None
    socket: Path | None = None
    port: int | None = None
    token_file: Path | None = None
    endpoint: Path | None = None
    idle_exit: float | None = None
    idle_unload: float | None = None
    memory_mb: int | None = None
    threads: int | None = None


class Place:
    """The address: what is locked, bound and written while we serve there."""

    def __init__(self, options: ServeOptions) -> None:
        if options.socket is not None and options.port is not None:
            raise EndpointError("give --socket or --port, not both")
        self.instance = secrets.token_hex(8)
        self.socket_path: Path | None = None
        self.token: str | None = None
        self.token_file: Path | None = None
        endpoint = options.endpoint
        default_folder = default_runtime_folder()
        if options.port is None and sys.platform != "win32":
            self.socket_path = (options.socket or default_folder / "engine.sock").absolute()
            endpoint = endpoint or self.socket_path.with_suffix(".json")
        else:
            folder = endpoint.parent if endpoint else default_folder
            self.token_file = (options.token_file or folder / "engine.token").absolute()
            if options.port is None:
                endpoint = endpoint or folder / "engine.json"
        self._port = options.port or 0
        self._inode: int | None = None
        self.file = EndpointFile(endpoint.absolute()) if endpoint else None
        # A token file that was named may lie anywhere: it is guarded by its own mode.
        ours = (self.socket_path, endpoint, None if options.token_file else self.token_file)
        self._folders = {path.absolute().parent for path in ours if path is not None}

    @contextlib.contextmanager
    def held(self) -> Iterator[Place]:
        """Claim and bind the address; leave nothing of ours behind."""
        for folder in self._folders:
            prepare_folder(folder)
        if self.token_file is not None:
            self.token = read_or_make_token(self.token_file)
        if self.file:
            self.file.claim()
        try:
            if self.file:
                self.file.clear_stale()
            self.listener = self._bind()
            try:
                yield self
            finally:
                self.withdraw()
                self.listener.close()
        finally:
            if self.file:
                self.file.release()

    def _bind(self) -> socket.socket:
        if self.socket_path is None:
            return bind_tcp(self._port)
        listener = bind_unix(self.socket_path)
        self._inode = self.socket_path.lstat().st_ino
        return listener

    @property
    def url(self) -> str:
        """The base address; on a Unix socket the host name means nothing."""
        if self.socket_path is not None:
            return "http://engine"
        return f"http://127.0.0.1:{self.listener.getsockname()[1]}"

    def reachable(self) -> bool:
        """Whether clients can still connect: whether the socket is still ours."""
        if self.socket_path is None:
            return True
        try:
            return self.socket_path.lstat().st_ino == self._inode
        except OSError:
            return False

    def announce(self, identity: Identity) -> None:
        """Write the endpoint file."""
        if self.file is None:
            return
        record = EndpointRecord(
            url=self.url,
            socket=str(self.socket_path) if self.socket_path else None,
            token_file=str(self.token_file) if self.token_file else None,
            pid=identity.pid,
            instance=self.instance,
            version=identity.version,
            wire_version=WIRE_VERSION,
            model=identity.model,
            weights=identity.weights,
        )
        self.file.publish(record)

    def hide(self) -> None:
        """Take the endpoint file away; the socket still answers who already knew it."""
        if self.file:
            self.file.withdraw(self.instance)

    def withdraw(self) -> None:
        """Take away every file by which we are found, if it is still ours."""
        self.hide()
        if self.socket_path is not None:
            with contextlib.suppress(FileNotFoundError):
                if self.socket_path.lstat().st_ino == self._inode:
                    self.socket_path.unlink()

    def connection_waits(self) -> bool:
        """Whether someone has connected whom the server has not accepted yet."""
        return bool(select.select([self.listener], [], [], 0)[0])
