"""What the engine's own program says of itself, without an engine running.

torch is never imported here: a process of the engine's environment is asked, and prints JSON.
"""

from __future__ import annotations

import json
import subprocess
from typing import Any

from dlsp.client.engine_process import EngineFolder, EngineUnavailable, ProcessSettings

#: Importing torch from a cold disk takes its time.
LIMIT_S = 120.0


def ask_engine(*arguments: str, process: ProcessSettings | None = None) -> Any:
    """The JSON that `dlsp-engine ARGUMENTS` prints; blocks. Raises EngineUnavailable."""
    process = process or ProcessSettings()
    folder = EngineFolder(process)
    folder.prepare()
    command = [*process.engine_command[:-1], *arguments]
    try:
        ended = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            encoding="utf-8",
            errors="replace",
            # Not where the editor stands: a project there must not slip in an `engine` of its own.
            cwd=folder.path,
            timeout=LIMIT_S,
            check=False,
        )
        found = json.loads(ended.stdout) if not ended.returncode else None
    except OSError as error:
        raise EngineUnavailable(f"cannot start {command[0]}: {error.strerror}") from None
    except subprocess.TimeoutExpired:
        raise EngineUnavailable(f"{' '.join(command)} did not end in {LIMIT_S:.0f} s") from None
    except ValueError:
        raise EngineUnavailable(f"{' '.join(command)} printed no JSON; reinstall dlsp") from None
    if found is None:
        last = ended.stderr.strip().rpartition("\n")[2] or f"exit code {ended.returncode}"
        raise EngineUnavailable(f"{' '.join(command)} failed: {last}")
    return found
