"""The command line: `dlsp` serves an editor on stdio; the others answer once and end.

Knows arguments, exit codes and how an expected error is told; does no work of its own.
"""

from __future__ import annotations

import argparse
import errno
import os
import sys

from dlsp import __version__
from dlsp.commands import complete_command, doctor_command, replay_command, stats_command
from engine.request import EngineError

BROKEN_PIPE, DISK_FULL = 141, 74


def main(argv: list[str] | None = None) -> int:
    """Run one command and return its exit code."""
    arguments = _parser().parse_args(argv)
    if sys.stdout is None:  # closed by whoever started us
        sys.stdout = os.fdopen(os.open(os.devnull, os.O_WRONLY), "w", encoding="utf-8")
    try:
        code: int = arguments.run(arguments)
        if not sys.stdout.closed:  # as pygls leaves it
            sys.stdout.flush()
    except EngineError as error:
        sys.stderr.write(f"dlsp: {error}\n")
        return error.exit_code
    except KeyboardInterrupt:
        return complete_command.INTERRUPTED
    except BrokenPipeError:  # the reader went away
        _abandon_output()
        return BROKEN_PIPE
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        _abandon_output()
        sys.stderr.write(f"dlsp: cannot write: {error.strerror}\n")
        return DISK_FULL
    return code


def _abandon_output() -> None:
    """Point stdout elsewhere so that the final flush does not complain."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="dlsp",
        description="Local code completion by a masked-diffusion model, for any LSP editor. "
        "Without a command, dlsp serves an editor over stdin and stdout.",
    )
    parser.add_argument("--version", action="version", version=f"dlsp {__version__}")
    parser.set_defaults(run=_lsp)
    commands = parser.add_subparsers(title="commands", metavar="COMMAND")
    serve = commands.add_parser("lsp", help="serve an editor over stdin and stdout (the default)")
    # Editors pass it by habit; there is no other transport.
    serve.add_argument("--stdio", action="store_true", help="accepted, and the only transport")
    serve.set_defaults(run=_lsp)
    complete_command.add_parser(commands)
    stats_command.add_parser(commands)
    doctor_command.add_parser(commands)
    replay_command.add_parsers(commands)
    return parser


def _lsp(arguments: argparse.Namespace) -> int:
    from dlsp.server import serve_stdio

    return serve_stdio()


if __name__ == "__main__":
    sys.exit(main())
