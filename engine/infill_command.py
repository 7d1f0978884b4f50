"""`dlsp-engine infill`: fill one hole of a file in this process, without server or editor."""

from __future__ import annotations

import argparse
import json
import re
import sys
from dataclasses import asdict
from pathlib import Path
from typing import get_args

from engine import catalog, trace
from engine.request import (
    BadRequest,
    InfillRequest,
    InfillResult,
    LengthName,
    PolicyName,
    RemaskName,
)
from engine.syntax import language_for
from engine.trace import Snapshot


def parser() -> argparse.ArgumentParser:
    """The command line."""
    p = argparse.ArgumentParser(prog="dlsp-engine infill", description=__doc__)
    p.add_argument("file", type=Path)
    p.add_argument("--at", required=True, metavar="LINE:COL", help="cursor, both from 1")
    p.add_argument("--model", default=None, help="model name, file or folder")
    p.add_argument("--weights", type=Path, help="a .gguf file or a folder in the hub's layout")
    p.add_argument("--mode", choices=("verified", "free", "ar"), default="verified")
    p.add_argument("--want", choices=("line", "block"), default="line")
    p.add_argument("--max-tokens", type=int, default=64)
    p.add_argument("--json", action="store_true", help="print every figure as JSON")
    p.add_argument(
        "--explain",
        action="store_true",
        help="show the canvas after each step: + committed, ~ masked again, - rejected, _ open",
    )
    native = p.add_argument_group("models that denoise masks themselves")
    native.add_argument("--policy", choices=get_args(PolicyName), help="which slots commit")
    native.add_argument("--strength", type=float, help="of the policy")
    native.add_argument("--remask", choices=get_args(RemaskName), default="none")
    native.add_argument("--length", choices=get_args(LengthName), help="how the length is found")
    native.add_argument("--slots", type=int, help="slots to begin with")
    native.add_argument("--exact", action="store_true", help="never use cached keys and values")
    return p


def main(argv: list[str]) -> int:
    """Run the command: 0 with a text, 1 with none. Raises EngineError."""
    args = parser().parse_args(argv)
    request = _request(args)
    from engine.engine import Engine  # torch: only once the arguments are known to be good
    from engine.progress import TerminalProgress

    with TerminalProgress() as progress:
        engine = Engine.load(
            args.model or catalog.default_model(), weights=args.weights, progress=progress
        )
    steps: list[Snapshot] = []
    result = engine.infill(request, on_step=steps.append if args.explain else None)
    if args.json:
        sys.stdout.write(_as_json(result, steps if args.explain else None) + "\n")
    else:
        sys.stdout.write("".join(trace.line(step) + "\n" for step in steps))
        sys.stdout.write(result.text + "\n")
    return 0 if result.text else 1


def _request(args: argparse.Namespace) -> InfillRequest:
    prefix, suffix = _cut(args.file, args.at)
    return InfillRequest(
        prefix=prefix,
        suffix=suffix,
        mode=args.mode,
        want=args.want,
        max_tokens=args.max_tokens,
        path=str(args.file),
        language=language_for(str(args.file), None),
        policy=args.policy,
        strength=args.strength,
        remask=args.remask,
        length=args.length,
        slots=args.slots,
        exact=args.exact,
    )


def _as_json(result: InfillResult, steps: list[Snapshot] | None) -> str:
    figures = asdict(result) | {"tokens_per_forward": round(result.tokens_per_forward, 3)}
    if steps is not None:
        figures["canvas"] = [asdict(step) for step in steps]
    return json.dumps(figures, ensure_ascii=False)


def _cut(path: Path, at: str) -> tuple[str, str]:
    """The text before and after a cursor given as LINE:COL."""
    try:
        with path.open(encoding="utf-8", newline="") as file:
            text = file.read()
    except (OSError, UnicodeDecodeError) as error:
        raise BadRequest(f"cannot read {path} as UTF-8 text ({error})") from error
    if "\0" in text:
        raise BadRequest(f"{path} is a binary file; give a text file")
    found = re.fullmatch(r"([0-9]{1,20}):([0-9]{1,20})", at)
    if found is None:
        raise BadRequest(f"--at takes LINE:COL, both from 1, not {at!r}")
    line, column = found.groups()
    lines = [0, *(found.end() for found in re.finditer(r"\r\n|\r|\n", text)), len(text) + 1]
    row, col = int(line) - 1, int(column) - 1
    if not 0 <= row < len(lines) - 1:
        raise BadRequest(f"{path} has {len(lines) - 1} lines; there is no line {line}")
    width = len(text[lines[row] : lines[row + 1]].rstrip("\r\n"))
    if not 0 <= col <= width:
        raise BadRequest(f"line {line} of {path} has {width} characters, not {column}")
    offset = lines[row] + col
    return text[:offset], text[offset:]
