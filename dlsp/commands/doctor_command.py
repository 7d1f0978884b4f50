"""`dlsp doctor`: whether everything that a suggestion needs is there, a line each.

Knows arguments, lines and exit codes; doctor.py knows what is looked at. Light to import.
"""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any


def add_parser(commands: Any) -> None:
    """Register the command and its arguments."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "doctor",
        help="check everything that suggestions need, and say what to do",
        description="Check Python, torch, the model, folders, settings, grammars and editors, then "
        "time one suggestion through the real server. Each line is ok or says what to do.",
        epilog="Exit codes: 0 all is well, 1 something is to do.",
    )
    parser.add_argument("--json", action="store_true", help="print the checks as JSON")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Check, print as it goes, and return the exit code."""
    from dlsp.commands.doctor import examine

    checks = []
    for check in examine():
        checks.append(check)
        if not arguments.json:
            sys.stdout.write(f"{check.line()}\n")
            sys.stdout.flush()
    if arguments.json:
        found = [{"name": c.name, "ok": c.ok, "found": c.found, "advice": c.advice} for c in checks]
        sys.stdout.write(json.dumps(found, ensure_ascii=False, indent=2) + "\n")
    return 0 if all(check.ok for check in checks) else 1
