"""The ``sme2`` command: the plugin's stages without pytest.

Each subcommand is a module of ``pytest_sme2.cli.commands`` with ``EXAMPLE``, ``ARGUMENTS`` and
``run(arguments) -> int``. Only the chosen one is imported, so that ``sme2 --help`` is fast.
"""

from __future__ import annotations

import argparse
import errno
import importlib
import io
import os
import sys
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any

from pytest_sme2 import __version__
from pytest_sme2.cli.options import add_arguments
from pytest_sme2.errors import Sme2Error
from pytest_sme2.system.terminal import plain_output

# Heading -> name -> one line for the overview. The module of a command is
# pytest_sme2.cli.commands.<its last word>. Two words: a part of a command.
GROUPS: dict[str, dict[str, str]] = {
    "begin": {
        "init": "write a model, a test and a workflow to start from",
        "provision": "find or download the tools that this platform needs",
        "doctor": "say what is installed and which devices work",
        "models": "list all models, and the problems of broken ones",
    },
    "look": {
        "run": "run a model with SME2 on and off, and show the evidence or the kernels",
        "threads": "say how many threads to ship: the best with SME2 against the best without",
        "advise": "say what to change in a model, and what each change saves",
        "inspect": "say whether a library, an app or a wheel has SME2 inside",
    },
    "read": {
        "report": "write the reports of a run directory again, or check its files",
        "report analyze": "show where the time goes: categories, operators, SME2 coverage",
        "report compare": "compare two ETDumps: what got faster, what was added or removed",
    },
    "watch": {
        "history": "show what changed over many runs, step by step",
        "merge": "merge the runs of several machines into one report and one exit code",
    },
    "keep": {
        "export": "export a model to an ExecuTorch program for XNNPACK",
        "bundle": "put a runner and programs into one file: to compare with later, or for phones",
        "build": "build executor_runner with SME2 on and off from an ExecuTorch checkout",
        "clean": "remove our files from the cache, or from a phone",
    },
}
COMMANDS: dict[str, str] = {
    name: summary for group in GROUPS.values() for name, summary in group.items()
}
# Removed in this version; the table goes with the next.
REMOVED = {
    "report trace": "`sme2 report RUN_DIR --html FILE` has a timeline of each case",
    "report validate": "`sme2 report --check RUN_DIR` checks the files",
    "export fetch-weights": "`sme2 export MODEL --fetch-weights` downloads, checks and uses them",
    "doctor selfcheck": "each run with times says the smallest slowdown that it could detect",
    "matrix": "the documentation has it as a page with filters (docs/advice.md, the kernel matrix)",
    "bisect": "`git bisect run pytest …` finds the commit: docs/history.md has the recipe",
}

# They read what others made, and run nothing.
READING = ("inspect", "merge", *(name for name in COMMANDS if name.startswith("report")))

EXIT_CODES = (
    "exit codes: 0 success; 1 a regression or a failed check; 2 wrong usage or a damaged "
    "file; 3 a problem with the device or the environment"
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
    subparsers = parser.add_subparsers(dest="command", metavar="COMMAND")
    for name, summary in COMMANDS.items():
        if " " in name and name not in filled:
            continue
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
    width = max(map(len, COMMANDS)) + 2
    return "\n\n".join(
        "\n".join([f"{heading}:", *(f"  {name:<{width}}{text}" for name, text in group.items())])
        for heading, group in GROUPS.items()
    )


def module_of(name: str) -> Any:
    return importlib.import_module(f"pytest_sme2.cli.commands.{name.split()[-1]}")


def fill_parser(parser: argparse.ArgumentParser, name: str) -> argparse.ArgumentParser:
    """The parser, with the arguments and the example of one command."""
    module = module_of(name)
    parser.epilog = f"example:\n  {module.EXAMPLE}\n\n{EXIT_CODES}"
    add_arguments(parser, {"--json": "print JSON", **module.ARGUMENTS})
    parser.set_defaults(run=module.run)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command. Our own errors are one line on stderr, never a traceback."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        # A folder's name may not be valid text; print it as the bytes that it is.
        sys.stdout.reconfigure(errors="surrogateescape")
    with plain_output():
        return _run(list(sys.argv[1:] if argv is None else argv), own_process=argv is None)


def _run(words: list[str], *, own_process: bool) -> int:
    if words[:1] == ["help"]:
        words = [*words[1:], "--help"]
    if " ".join(words[:2]) in COMMANDS:
        words[:2] = [" ".join(words[:2])]
    command = next((word for word in words if word in COMMANDS), None)
    parser = build_parser(() if command is None else (command,))
    gone = next((name for name in (" ".join(words[:2]), *words[:1]) if name in REMOVED), None)
    if gone is not None:
        parser.error(f"`sme2 {gone}` is gone: {REMOVED[gone]}.")
    # pytest's names are understood, too: a message that both print has those.
    words = [f"--{word[7:]}" if word.startswith("--sme2-") else word for word in words]
    arguments = parser.parse_args(words, argparse.Namespace(typed=words))
    if arguments.command is None:
        parser.error("the following arguments are required: COMMAND")
    # A viewer that is opened serves this machine for as long as somebody looks.
    if own_process and arguments.command in READING and not vars(arguments).get("open"):
        return exit_code(_run_confined, arguments)
    return exit_code(arguments.run, arguments)


def _run_confined(arguments: argparse.Namespace) -> int:
    from pytest_sme2.system.processes import confine

    confine([path for word in arguments.typed if (path := Path(word)).exists()])
    return int(arguments.run(arguments))


def exit_code(run: Callable[[argparse.Namespace], int], arguments: argparse.Namespace) -> int:
    """That of a command; what goes wrong is one line on stderr."""
    try:
        code = run(arguments)
        sys.stdout.flush()
        return code
    except Sme2Error as error:
        problem, code = str(error), error.exit_code
    except MemoryError:
        from pytest_sme2.system.processes import TOO_MUCH_MEMORY

        problem, code = TOO_MUCH_MEMORY, Sme2Error.exit_code
    except KeyboardInterrupt:
        problem, code = "interrupted", 130
    except OSError as error:
        # A file that cannot be read or written, where no better message exists.
        problem, code = _about(error), Sme2Error.exit_code
    print(f"sme2: {problem}", file=sys.stderr)
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
    return f"{place}{error.strerror or error}. {remedies.get(error.errno or 0, '')}".rstrip()
