"""Holds the project's own configuration files to the schemas that check-jsonschema carries."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
KINDS = {
    "citation-file-format": ("CITATION.cff",),
    "dependabot": (".github/dependabot.yml",),
    "github-actions": (".github/actions/*/action.yml",),
    "github-issue-config": (".github/ISSUE_TEMPLATE/config.yml",),
    "github-issue-forms": (".github/ISSUE_TEMPLATE/[!c]*.yml",),
    # Those that users copy, too.
    "github-workflows": (".github/workflows/*.yml", "docs/ci/[!c]*.yml", "docs/ci/*-github.yml"),
    "gitlab-ci": ("docs/ci/comment-gitlab.yml",),
    "readthedocs": (".readthedocs.yaml",),
}


def main() -> int:
    codes = []
    for kind, patterns in KINDS.items():
        files = [str(path) for pattern in patterns for path in sorted(ROOT.glob(pattern))]
        schema = ("--builtin-schema", f"vendor.{kind}")
        command = [sys.executable, "-m", "check_jsonschema", *schema, *files]
        codes.append(subprocess.run(command, check=False).returncode)
    return max(codes)


if __name__ == "__main__":
    sys.exit(main())
