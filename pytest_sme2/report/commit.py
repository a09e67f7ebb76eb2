"""The commit of the project that was measured."""

from __future__ import annotations

import functools
import os
import re

from pytest_sme2.system.processes import run_process

# GitHub Actions, GitLab CI.
_VARIABLES = ("GITHUB_SHA", "CI_COMMIT_SHA")
_DIGITS = 12
_SECONDS = 10


@functools.cache
def project_commit() -> str | None:
    """Its first digits, with a ``+`` where files are changed; None where there is no commit."""
    for name in _VARIABLES:
        value = os.environ.get(name, "")
        if re.fullmatch("[0-9a-f]{40,64}", value):
            return value[:_DIGITS]
    commit = _git("rev-parse", "HEAD")
    if commit is None or not re.fullmatch("[0-9a-f]{40,64}", commit):
        return None
    changed = _git("status", "--porcelain", "--untracked-files=no")
    return commit[:_DIGITS] + ("+" if changed else "")


def _git(*words: str) -> str | None:
    try:
        done = run_process(["git", *words], timeout_seconds=_SECONDS)
    except OSError:
        return None
    return done.stdout.strip() if done.returncode == 0 else None
