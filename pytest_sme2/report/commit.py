"""The commit of the project that was measured."""

from __future__ import annotations

import functools
import os
import re
from pathlib import Path

from pytest_sme2.errors import RunError
from pytest_sme2.system.git import git

# GitHub Actions, GitLab CI.
_VARIABLES = ("GITHUB_SHA", "CI_COMMIT_SHA")
_DIGITS = 12
# A report does not wait for long.
_SECONDS = 10.0


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
        return git(Path(), *words, seconds=_SECONDS).strip()
    except RunError:
        return None
