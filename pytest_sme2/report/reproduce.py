"""The command that measures a case again. Pure."""

from __future__ import annotations

import shlex

from pytest_sme2.results import Measured


def reproduce_command(measured: Measured) -> str:
    """For a shell; names are quoted."""
    words = [
        "pytest",
        f"--device={measured.fingerprint.target}",
        f"--sme2-models={measured.model}",
        f"--sme2-variants={measured.variant}",
        f"--threads={measured.threads}",
    ]
    return shlex.join(words)
