"""``sme2 provision``: find or fetch the tools this platform needs."""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import sys

from pytest_sme2.cli.options import Arguments
from pytest_sme2.system.provision import PURPOSES, provision

EXAMPLE = "sme2 provision --check"
ARGUMENTS: Arguments = {
    "--check": "only look; change nothing",
    "--require": (
        "with --check: exit with 1 if something is missing (the default if CI is set)",
        bool(os.environ.get("CI")),
    ),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--for",
        dest="purpose",
        choices=PURPOSES,
        default=PURPOSES[0],
        help="tests: also what this project's own tests need, such as a browser",
    )


def run(arguments: argparse.Namespace) -> int:
    def say(line: str) -> None:
        print(f"provision: {line}", file=sys.stderr, flush=True)

    parts = provision(say, check=arguments.check, purpose=arguments.purpose)
    if arguments.json:
        print(json.dumps([dataclasses.asdict(part) for part in parts], indent=2))
    else:
        for part in parts:
            print(f"{part.action:9}  {part.name}: {part.found or f'{part.cost}. {part.remedy}'}")
            if part.warning:
                print(f"{'warning':9}  {part.name}: {part.warning}")
    missing = any(part.found is None for part in parts)
    return int(missing and (arguments.require or not arguments.check))
