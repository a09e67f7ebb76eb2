"""Holds the locks against the published advisories; says plainly when it could not ask for them.

    python .ci/audit.py [LOCK ...]

Exit code 0: no advisory names a pinned version. 1: at least one does. 3: the advisories could not
be had for every pinned version, so nothing is known of the rest.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

CLEAN, VULNERABLE, UNKNOWN = 0, 1, 3
LOCKS = ("requirements.txt",)


def judge(document: dict[str, Any]) -> tuple[int, list[str]]:
    """The exit code for pip-audit's answer, and what to print."""
    dependencies = document["dependencies"]
    skipped = [entry["name"] for entry in dependencies if "skip_reason" in entry]
    lines = [
        f"{entry['name']} {entry['version']}: {advisory['id']}"
        + (f", fixed in {', '.join(advisory['fix_versions'])}" if advisory["fix_versions"] else "")
        for entry in dependencies
        for advisory in entry.get("vulns", ())
    ]
    asked = len(dependencies) - len(skipped)
    if lines:
        return VULNERABLE, [*lines, f"{len(lines)} advisories for {asked} pinned packages."]
    if skipped or not dependencies:
        return UNKNOWN, [
            f"NOT AUDITED: no advisories could be had for {len(skipped)} of {len(dependencies)} "
            f"pinned packages ({', '.join(skipped[:5])}{', …' if len(skipped) > 5 else ''}). "
            "Is the advisory service reachable from here?"
        ]
    return CLEAN, [f"No advisory names any of the {asked} pinned packages."]


def ask(lock: Path) -> dict[str, Any] | str:
    """pip-audit's answer, or why there is none."""
    command = [
        *(sys.executable, "-m", "pip_audit", "--format", "json", "--progress-spinner", "off"),
        *("--disable-pip", "--require-hashes", "--vulnerability-service", "pypi", "-r", str(lock)),
    ]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=900, check=False)
        answer: dict[str, Any] = json.loads(done.stdout)
    except subprocess.TimeoutExpired:
        return "pip-audit did not finish within 900 s"
    except ValueError:
        return (done.stderr.strip().splitlines() or ["pip-audit said nothing"])[-1]
    return answer


def main(arguments: Sequence[str]) -> int:
    codes = []
    folder = Path(__file__).parent
    for lock in [Path(name) for name in arguments] or [folder / name for name in LOCKS]:
        answer = ask(lock)
        if isinstance(answer, str):
            code, lines = UNKNOWN, [f"NOT AUDITED: {answer}"]
        else:
            code, lines = judge(answer)
        codes.append(code)
        for line in lines:
            print(f"{lock.name}: {line}")
    if VULNERABLE in codes:
        return VULNERABLE
    return max(codes)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
