"""Run a command where nothing but the loopback exists: `python -m ...offline COMMAND...`.

Everything that it starts (editors, servers, browser) is there with it. Where the system permits no
network namespace the command runs as it is, and the test that asks for one is skipped.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

from tests.e2e.sealed_session import bring_loopback_up

_UNSHARE = ["unshare", "--map-root-user", "--net"]
_AGAIN = [sys.executable, "-m", "tests.e2e.editors.offline", "--inside"]


def main(arguments: list[str]) -> None:
    """Replace this process by the command."""
    if arguments[0] == _AGAIN[-1]:
        bring_loopback_up()
        command = arguments[1:]
    elif _permitted():
        command = [*_UNSHARE, *_AGAIN, *arguments]
    else:
        command = arguments
    os.execvp(command[0], command)


def _permitted() -> bool:
    if shutil.which(_UNSHARE[0]) is None:
        return False
    return subprocess.run([*_UNSHARE, "true"], check=False).returncode == 0


if __name__ == "__main__":
    main(sys.argv[1:])
