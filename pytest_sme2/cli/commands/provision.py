"""``sme2 provision``: find or fetch the tools this platform needs."""

from __future__ import annotations

import argparse
import dataclasses

from pytest_sme2.cli.options import Arguments, show
from pytest_sme2.system.provision import provision
from pytest_sme2.system.terminal import say

EXAMPLE = "sme2 provision --check"
ARGUMENTS: Arguments = {"--check": "only look; change nothing"}


def run(arguments: argparse.Namespace) -> int:
    parts = provision(lambda line: say(f"provision: {line}"), check=arguments.check)
    lines = []
    for part in parts:
        lines.append(f"{part.action:9}  {part.name}: {part.found or f'{part.cost}. {part.remedy}'}")
    show(arguments, [dataclasses.asdict(part) for part in parts], lines)
    return int(any(part.found is None for part in parts))
