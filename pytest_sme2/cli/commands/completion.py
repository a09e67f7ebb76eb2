"""``sme2 completion``: what a shell needs to complete this command."""

from __future__ import annotations

import argparse

EXAMPLE = "sme2 completion bash > ~/.local/share/bash-completion/completions/sme2"
SHELLS = ("bash", "zsh", "fish")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", choices=SHELLS, help="print the completion for this shell")


def run(arguments: argparse.Namespace) -> int:
    import shtab

    from pytest_sme2.cli.main import COMMANDS, build_parser

    print(shtab.complete(build_parser(COMMANDS), arguments.shell))
    return 0
