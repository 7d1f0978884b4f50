"""The command line: `dlsp` serves an editor on stdio; the others answer once and end.

Knows arguments, exit codes and how an expected error is told; does no work of its own.
"""

from __future__ import annotations

import argparse
import sys

from dlsp import __version__, complete_command, doctor_command, replay_command, stats_command
from engine.request import EngineError


def main(argv: list[str] | None = None) -> int:
    """Run one command and return its exit code."""
    arguments = _parser().parse_args(argv)
    try:
        code: int = arguments.run(arguments)
    except EngineError as error:
        sys.stderr.write(f"dlsp: {error}\n")
        return error.exit_code
    except KeyboardInterrupt:
        return complete_command.INTERRUPTED
    except BrokenPipeError:
        sys.stderr.close()
        return 1
    return code


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
