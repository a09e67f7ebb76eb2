"""The ``sme2`` command: the plugin's stages without pytest.

Each subcommand is a module of ``pytest_sme2.cli.commands`` with ``HELP``, ``EXAMPLE``,
``add_arguments(parser)`` and ``run(arguments) -> int``. Only the one that was asked for is
imported, so that ``sme2 --help`` stays instant.
"""

from __future__ import annotations

import argparse
import errno
import importlib
import io
import os
import sys
from collections.abc import Collection, Sequence

from pytest_sme2 import __version__
from pytest_sme2.errors import Sme2Error

# name -> one line for the overview. The module is pytest_sme2.cli.commands.<name with underscores>.
COMMANDS: dict[str, str] = {
    "doctor": "say what is installed and which devices are usable",
    "provision": "find or fetch the tools this platform needs",
    "device-bundle": "make the self-contained runner for phones, which needs no NDK",
    "clean": "remove what was left on a phone, and put its settings back",
    "build": "build executor_runner with SME2 on and off from an ExecuTorch checkout",
    "kernels": "show which kernels a model runs on, with SME2 on and off",
    "models": "list the models that were found, and what is wrong with those that were not",
    "export": "turn a model into an ExecuTorch program for XNNPACK",
    "run": "run a model with SME2 on and off, and show the evidence",
    "advise": "say which variant uses SME2 best, and what keeps the others from it",
    "fetch-weights": "say where a model's trained weights come from, and check a file of them",
    "analyze": "where the time goes: categories, operators, SME2 coverage",
    "compare": "two ETDumps side by side: what became faster, what came and went",
    "report": "the reports of a run directory again: HTML and Markdown",
    "trace": "a run directory or an ETDump as a trace for Perfetto",
    "validate": "check that a run directory is whole and its files readable",
    "completion": "a shell's completion of this command",
    "bundle": "keep a runner and programs in one file, to measure against later",
    "selfcheck": "measure a program against itself: is this machine quiet enough to gate on?",
}

EXIT_CODES = (
    "exit codes: 0 fine; 1 a regression or a failed check; 2 wrong usage; "
    "3 the device or the environment is not up to it"
)


def build_parser(filled: Collection[str]) -> argparse.ArgumentParser:
    """The parser; only the commands of ``filled`` have their own arguments, and are imported."""
    parser = argparse.ArgumentParser(
        prog="sme2",
        description="Performance testing of ExecuTorch models on Arm CPUs with SME2.",
        epilog=EXIT_CODES,
    )
    parser.add_argument("--version", action="version", version=f"sme2 {__version__}")
    subparsers = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name, summary in COMMANDS.items():
        subparser = subparsers.add_parser(
            name,
            help=summary,
            description=summary,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        if name in filled:
            fill_parser(subparser, name)
    return parser


def fill_parser(parser: argparse.ArgumentParser, name: str) -> argparse.ArgumentParser:
    """The parser, with the arguments and the example of one command."""
    module = importlib.import_module(f"pytest_sme2.cli.commands.{name.replace('-', '_')}")
    parser.epilog = f"example:\n  {module.EXAMPLE}\n\n{EXIT_CODES}"
    module.add_arguments(parser)
    parser.set_defaults(run=module.run)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; an error of ours is one line on stderr, never a traceback."""
    words = list(sys.argv[1:] if argv is None else argv)
    command = next((word for word in words if word in COMMANDS), None)
    arguments = build_parser(() if command is None else (command,)).parse_args(words)
    if isinstance(sys.stdout, io.TextIOWrapper):
        # A folder's name need not be text; it is printed as the bytes that it is.
        sys.stdout.reconfigure(errors="surrogateescape")
    try:
        code: int = arguments.run(arguments)
    except Sme2Error as error:
        print(f"sme2: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("sme2: interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:
        return 0
    except OSError as error:
        # A file that cannot be read or written, in a place with nothing better to say about it.
        print(f"sme2: {_about(error)}", file=sys.stderr)
        return Sme2Error.exit_code
    return code


def _about(error: OSError) -> str:
    place = f"{os.fsdecode(error.filename)}: " if isinstance(error.filename, (str, bytes)) else ""
    remedies = {
        errno.ENOSPC: "Make room there.",
        errno.EDQUOT: "Make room there.",
        errno.EROFS: "Choose a folder that can be written.",
        errno.EACCES: "Choose another place, or change its permissions.",
        errno.EPERM: "Choose another place, or change its permissions.",
    }
    remedy = remedies.get(error.errno or 0, "")
    return f"{place}{error.strerror or error}. {remedy}".rstrip()
