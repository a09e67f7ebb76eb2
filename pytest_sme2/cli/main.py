"""The ``sme2`` command: the plugin's stages without pytest.

Each subcommand is a module of ``pytest_sme2.cli.commands`` with ``EXAMPLE``,
``add_arguments(parser)`` and ``run(arguments) -> int``. Only the chosen one is imported, so
that ``sme2 --help`` is fast.
"""

from __future__ import annotations

import argparse
import errno
import importlib
import io
import os
import sys
from collections.abc import Callable, Collection, Sequence
from typing import Any

from pytest_sme2 import __version__
from pytest_sme2.errors import Sme2Error
from pytest_sme2.system.terminal import plain_output

# Heading -> name -> one line for the overview. The module of a command is
# pytest_sme2.cli.commands.<name with underscores>.
GROUPS: dict[str, dict[str, str]] = {
    "set up": {
        "init": "write a model, a test and a workflow to start from",
        "doctor": "say what is installed and which devices work",
        "provision": "find or download the tools that this platform needs",
        "build": "build executor_runner with SME2 on and off from an ExecuTorch checkout",
        "clean": "remove our files from the cache, or from a phone",
        "completion": "print the shell completion of this command",
    },
    "models": {
        "models": "list all models, and the problems of broken ones",
        "export": "export a model to an ExecuTorch program for XNNPACK",
        "fetch-weights": "name a model's trained weights, and check a file of them",
        "advise": "say which variant uses SME2 best, and why the others do not",
    },
    "run": {
        "run": "run a model with SME2 on and off, and show the evidence",
        "kernels": "show which kernels run, with SME2 on and off",
        "selfcheck": "compare a program with itself: is this machine quiet enough to test on?",
        "bundle": "put a runner and programs into one file: to compare with later, or for phones",
    },
    "read results": {
        "analyze": "show where the time goes: categories, operators, SME2 coverage",
        "compare": "compare two ETDumps: what got faster, what was added or removed",
        "bisect": "find the commit or package version that made a model worse",
        "inspect": "say whether a library, an app or a wheel has SME2 inside",
        "history": "show what changed over many runs, step by step",
        "matrix": "show which kernel runs each operator in each data type and size",
        "merge": "merge the runs of several machines into one report and one exit code",
        "report": "write the reports of a run directory again: HTML and Markdown",
        "trace": "write a trace for Perfetto from a run directory or an ETDump",
        "validate": "check that the files of a run directory are complete and readable",
    },
}
COMMANDS: dict[str, str] = {
    name: summary for group in GROUPS.values() for name, summary in group.items()
}

# Old name -> the words that say it now.
RENAMED = {"device-bundle": ("bundle", "--phone")}

EXIT_CODES = (
    "exit codes: 0 success; 1 a regression or a failed check; 2 wrong usage; "
    "3 a problem with the device or the environment"
)


def build_parser(filled: Collection[str]) -> argparse.ArgumentParser:
    """The parser; only the commands of ``filled`` have their own arguments, and are imported."""
    parser = argparse.ArgumentParser(
        prog="sme2",
        description="Performance testing of ExecuTorch models on Arm CPUs with SME2.",
        epilog=f"{_overview()}\n\n`sme2 COMMAND --help` has more.\n{EXIT_CODES}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"sme2 {__version__}")
    subparsers = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name, summary in COMMANDS.items():
        # Without `help` the parser does not list it: the overview does, in groups.
        listed: dict[str, Any] = {"help": summary} if name in filled else {}
        subparser = subparsers.add_parser(
            name,
            description=summary,
            formatter_class=argparse.RawDescriptionHelpFormatter,
            **listed,
        )
        if name in filled:
            fill_parser(subparser, name)
    return parser


def _overview() -> str:
    """All commands, in groups."""
    width = max(map(len, COMMANDS)) + 2
    return "\n\n".join(
        "\n".join([f"{heading}:", *(f"  {name:<{width}}{text}" for name, text in group.items())])
        for heading, group in GROUPS.items()
    )


def fill_parser(parser: argparse.ArgumentParser, name: str) -> argparse.ArgumentParser:
    """The parser, with the arguments and the example of one command."""
    module = importlib.import_module(f"pytest_sme2.cli.commands.{name.replace('-', '_')}")
    parser.epilog = f"example:\n  {module.EXAMPLE}\n\n{EXIT_CODES}"
    module.add_arguments(parser)
    parser.set_defaults(run=module.run)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command. Our own errors are one line on stderr, never a traceback."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        # A folder's name may not be valid text; print it as the bytes that it is.
        sys.stdout.reconfigure(errors="surrogateescape")
    with plain_output():
        return _run(list(sys.argv[1:] if argv is None else argv))


def _run(words: list[str]) -> int:
    if words and words[0] in RENAMED:
        old, *rest = words
        words = [*RENAMED[old], *rest]
        print(f"sme2: `sme2 {old}` is now `sme2 {' '.join(RENAMED[old])}`", file=sys.stderr)
    command = next((word for word in words if word in COMMANDS), None)
    arguments = build_parser(() if command is None else (command,)).parse_args(words)
    return exit_code(arguments.run, arguments)


def exit_code(run: Callable[[argparse.Namespace], int], arguments: argparse.Namespace) -> int:
    """That of a command; what goes wrong is one line on stderr."""
    try:
        code = run(arguments)
        sys.stdout.flush()
    except Sme2Error as error:
        print(f"sme2: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("sme2: interrupted", file=sys.stderr)
        return 130
    except OSError as error:
        # A file that cannot be read or written, where no better message exists.
        print(f"sme2: {_about(error)}", file=sys.stderr)
        return Sme2Error.exit_code
    return code


def _about(error: OSError) -> str:
    place = f"{os.fsdecode(error.filename)}: " if isinstance(error.filename, (str, bytes)) else ""
    remedies = {
        errno.ENOSPC: "Free some space there.",
        errno.EDQUOT: "Free some space there.",
        errno.EROFS: "Choose a writable folder.",
        errno.EACCES: "Choose another place, or change its permissions.",
        errno.EPERM: "Choose another place, or change its permissions.",
    }
    remedy = remedies.get(error.errno or 0, "")
    return f"{place}{error.strerror or error}. {remedy}".rstrip()
