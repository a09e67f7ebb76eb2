"""``sme2 report validate``: is a run directory whole, and can its files be read?"""

from __future__ import annotations

import argparse

from pytest_sme2.cli.options import Arguments, show
from pytest_sme2.report.text import printable
from pytest_sme2.report.validation import validate_run
from pytest_sme2.system.wording import count

EXAMPLE = "sme2 report validate sme2-out"
ARGUMENTS: Arguments = {
    "run_dir RUN_DIR": "the folder to check",
    "--json": "print every checked file as JSON",
}


def run(arguments: argparse.Namespace) -> int:
    """Exit code 1 where anything is missing or broken."""
    findings = validate_run(arguments.run_dir)
    problems = [finding for finding in findings if finding.problem]
    files = [{"file": str(entry.path), "problem": entry.problem} for entry in findings]
    lines = [printable(f"{finding.path}: {finding.problem}") for finding in problems]
    lines.append(f"{count(len(findings), 'file')} looked at, {count(len(problems), 'problem')}")
    show(arguments, {"valid": not problems, "files": files}, lines)
    return 1 if problems else 0
