"""Runs git."""

from __future__ import annotations

from pathlib import Path

from pytest_sme2.errors import RunError
from pytest_sme2.system.processes import run_process

_SECONDS = 120.0
# A hook of the user's repository is not for us.
_NO_HOOKS = ("-c", "core.hooksPath=/dev/null")


def git(folder: Path, *words: str, seconds: float = _SECONDS) -> str:
    """What git printed; an error with its own words where it failed."""
    try:
        done = run_process(["git", *_NO_HOOKS, *words], timeout_seconds=seconds, folder=folder)
    except OSError as error:
        raise RunError(f"git cannot be run: {error.strerror or error}. Install git.") from error
    if done.returncode != 0:
        said = done.stderr.strip().splitlines()
        raise RunError(f"`git {words[0]}` failed: {said[-1] if said else 'it said nothing'}")
    return done.stdout
