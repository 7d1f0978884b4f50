"""`dlsp-engine infill`: fill one hole of a file in this process, without server or editor."""

from __future__ import annotations

import argparse
import json
import re
import sys
from dataclasses import asdict
from pathlib import Path

from engine import catalog
from engine.request import BadRequest, InfillRequest, InfillResult
from engine.syntax import language_for


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
    return p


def main(argv: list[str]) -> int:
    """Run the command: 0 with a text, 1 with none. Raises EngineError."""
    args = parser().parse_args(argv)
    prefix, suffix = _cut(args.file, args.at)
    from engine.engine import Engine  # torch: only once the arguments are known to be good
    from engine.progress import TerminalProgress

    with TerminalProgress() as progress:
        engine = Engine.load(
            args.model or catalog.default_model(), weights=args.weights, progress=progress
        )
    result = engine.infill(
        InfillRequest(
            prefix=prefix,
            suffix=suffix,
            mode=args.mode,
            want=args.want,
            max_tokens=args.max_tokens,
            path=str(args.file),
            language=language_for(str(args.file), None),
        )
    )
    sys.stdout.write((_as_json(result) if args.json else result.text) + "\n")
    return 0 if result.text else 1


def _as_json(result: InfillResult) -> str:
    return json.dumps(
        asdict(result) | {"tokens_per_forward": round(result.tokens_per_forward, 3)},
        ensure_ascii=False,
    )


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
