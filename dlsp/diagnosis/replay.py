"""Replay files: one request and its result, to be asked again on another machine.

A request is made unrecognisable (redaction.py) unless its user wants the code in it, and loses its
deadline, so that nothing but the model decides. The result in the file is what this engine says to
that very request, not what the user saw; of that only figures are kept. Knows the file's format;
does not know servers or the command line.
"""

from __future__ import annotations

import dataclasses
import json
import os
import platform
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dlsp import __version__
from dlsp.client.wire import BackendReply
from dlsp.diagnosis.redaction import Redaction
from engine.request import WIRE_VERSION, BadRequest, InfillRequest, Snippet

FORMAT = 1
#: So many replay files are kept; the oldest goes.
KEEP_FILES = 20
#: What of the user's own answer goes into the file: how it went, not what it said.
_FIGURES = (
    "model", "mode", "tokens", "forwards", "from", "steps", "finish_reason", "syntax", "repaired",
    "confidence", "gate", "backend", "ms",
)  # fmt: skip


class ReplayError(BadRequest):
    """Not a replay file that this version understands."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """A request, what came of it, and where: all that a replay file holds.

    `models` is (name, digest of its weights); `original` the figures of the user's own answer.
    """

    request: InfillRequest
    result: dict[str, Any]
    model: str
    digest: str | None
    with_code: bool
    original: dict[str, Any]
    versions: dict[str, str]
    created: float


def repeatable(request: InfillRequest, *, with_code: bool) -> InfillRequest:
    """The request as it goes into a file: nothing of it depends on the clock or on earlier ones."""
    plain = dataclasses.replace(
        request, deadline_ms=None, guess="", idle=False, seed=request.seed or 0
    )
    if with_code:
        return plain
    redaction = Redaction()
    return dataclasses.replace(
        plain,
        prefix=redaction.text(plain.prefix),
        suffix=redaction.text(plain.suffix),
        snippets=tuple(
            Snippet(path=str(redaction.path(each.path)), text=redaction.text(each.text))
            for each in plain.snippets
        ),
        stop=tuple(map(redaction.text, plain.stop)),
        path=redaction.path(plain.path),
    )


def result_of(reply: BackendReply) -> dict[str, Any]:
    """What is compared when a request is asked again."""
    return {
        "text": reply.text,
        "finishReason": reply.finish_reason,
        "syntax": reply.syntax,
        "repaired": reply.repaired,
        "confidence": round(reply.confidence, 4),
    }


def figures_of(detail: dict[str, Any]) -> dict[str, Any]:
    """The part of an answer's detail that says nothing of the code."""
    found = {key: detail.get(key) for key in _FIGURES}
    return {**found, "characters": len(detail.get("text") or "")}


def this_version() -> dict[str, str]:
    """The versions that may matter."""
    return {
        "dlsp": __version__,
        "wire": str(WIRE_VERSION),
        "python": platform.python_version(),
        "platform": platform.platform(terse=True),
        "machine": platform.machine(),
    }


def write(replay: Replay, folder: Path) -> Path:
    """Put a replay file into a folder, for this user alone; its path."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    stamp = time.strftime("%Y%m%d-%H%M%S", time.localtime(replay.created))
    path = folder / f"replay-{stamp}-{os.urandom(3).hex()}.json"
    fields = {"format": FORMAT, **dataclasses.asdict(replay)}
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        json.dump(fields, file, ensure_ascii=False, indent=2)
        file.write("\n")
    for old in files_in(folder)[:-KEEP_FILES]:
        old.unlink(missing_ok=True)
    return path


def files_in(folder: Path) -> list[Path]:
    """The replay files of a folder, oldest first."""
    return sorted(folder.glob("replay-*.json"), key=lambda file: (file.stat().st_mtime, file.name))


def read(path: Path) -> Replay:
    """The replay in a file. Raises ReplayError with a line that says what to do."""
    try:
        fields = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ReplayError(f"{path}: cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError):
        raise ReplayError(f"{path}: not a replay file") from None
    if not isinstance(fields, dict) or "format" not in fields:
        raise ReplayError(f"{path}: not a replay file")
    if fields.pop("format") != FORMAT:
        raise ReplayError(f"{path}: of another version's format; use the dlsp that wrote it")
    try:
        return _replay(fields)
    except (TypeError, KeyError, UnicodeEncodeError) as error:
        raise ReplayError(f"{path}: damaged, or of another version: {error}") from None


def _replay(fields: dict[str, Any]) -> Replay:
    """The value of a file's fields; raises TypeError or KeyError where they are others."""
    for name, kind in (("model", str), ("result", dict), ("original", dict), ("versions", dict)):
        if not isinstance(fields[name], kind):
            raise TypeError(f"{name} is {fields[name]!r}")
    request = dict(fields["request"])
    request["stop"] = tuple(request["stop"])
    request["snippets"] = tuple(Snippet(**each) for each in request["snippets"])
    json.dumps(request, default=dataclasses.asdict, ensure_ascii=False).encode()
    return Replay(**{**fields, "request": InfillRequest(**request)})


def differences(replay: Replay, reply: BackendReply, digest: str | None) -> tuple[list[str], bool]:
    """What is other than in the file, in words, and whether the result is."""
    found: list[str] = []
    now = this_version()
    for name, version in replay.versions.items():
        if now.get(name) != version:
            found.append(f"{name}: {version} in the file, {now.get(name)} here")
    if replay.digest and digest and replay.digest != digest:
        found.append("weights: other bytes than the file's")
    result = result_of(reply)
    changed = [key for key, value in replay.result.items() if result.get(key) != value]
    for key in changed:
        found.append(f"{key}: {replay.result[key]!r} in the file, {result.get(key)!r} here")
    return found, bool(changed)
