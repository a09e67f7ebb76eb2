"""The one case that a command is about: a model in a variant, or a method of a program."""

from __future__ import annotations

import argparse
from pathlib import Path

from pytest_sme2.errors import UsageError
from pytest_sme2.export.variant import parse_variant
from pytest_sme2.results import FORWARD
from pytest_sme2.session.cases import Case
from pytest_sme2.session.programs import program_case
from pytest_sme2.session.session import Session
from pytest_sme2.system.files import is_program


def chosen_case(session: Session, arguments: argparse.Namespace, threads: int) -> Case:
    """What ``model``, ``variant`` and ``method`` of the command line name."""
    if is_program(arguments.model):
        return program_case(Path(arguments.model), threads, arguments.method)
    if arguments.method not in (None, FORWARD):
        raise UsageError(
            f"--method {arguments.method}: a model is exported with the method {FORWARD} alone. "
            "Only a .pte file may have others."
        )
    entry = session.registry.get(arguments.model)
    variant = session.variant(entry, parse_variant(arguments.variant))
    return Case(entry.name, variant, threads, entry)
