"""The command that measures a case again. Pure."""

from __future__ import annotations

import shlex

from pytest_sme2.results import AS_EXPORTED, CaseResult


def reproduce_command(measured: CaseResult) -> str:
    """For a shell; names are quoted. A bare program comes from an experiment file."""
    if measured.variant == AS_EXPORTED:
        return "sme2 run --config EXPERIMENT.json"
    words = [
        "pytest",
        f"--device={measured.fingerprint.target}",
        f"--sme2-models={measured.model}",
        f"--sme2-variants={measured.variant}",
        f"--threads={measured.threads}",
    ]
    return shlex.join(words)
