"""Runs the check at the end of a playbook: `python skills/check.py skills/03_export_model.md`.

Needs nothing but Python. Prints what is wrong and exits with 1, or with 0 if nothing is.
"""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

TIMEOUT_SECONDS = 600
_CHECK = re.compile(r"^```json check\n(?P<body>.*?)^```$", re.MULTILINE | re.DOTALL)
_KINDS = ("files", "commands", "keys")


def read_check(playbook: Path) -> dict[str, Any]:
    """The playbook's check; an error where it has none, or one that checks nothing."""
    found = _CHECK.findall(playbook.read_text(encoding="utf-8"))
    if len(found) != 1:
        raise ValueError(f"{playbook}: has {len(found)} `json check` blocks, not one")
    check: dict[str, Any] = json.loads(found[0])
    unknown = sorted(set(check) - set(_KINDS))
    if unknown or not any(check.values()):
        raise ValueError(f"{playbook}: a check has {', '.join(_KINDS)}; it has {sorted(check)}")
    return check


def problems(check: dict[str, Any], folder: Path) -> Iterator[str]:
    """One line for each thing that is not as it should be."""
    for pattern in check.get("files", ()):
        found = [path for path in folder.glob(pattern) if path.is_file()]
        if not found:
            yield f"{pattern}: there is no such file"
        yield from (f"{path}: is empty" for path in found if not path.stat().st_size)
    for name, keys in check.get("keys", {}).items():
        yield from _missing_keys(folder / name, keys)
    for command in check.get("commands", ()):
        done = subprocess.run(
            shlex.split(command),
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_SECONDS,
            check=False,
        )
        if done.returncode:
            last = " ".join((done.stderr or done.stdout).strip().splitlines()[-3:])
            yield f"{command}: exit code {done.returncode}: {last}"


def _missing_keys(path: Path, keys: list[str]) -> Iterator[str]:
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        yield f"{path}: cannot be read: {error}"
        return
    for key in keys:
        value = document
        for part in key.split("."):
            value = value.get(part) if isinstance(value, dict) else None
        # A key that is there and says no is as bad as one that is not there.
        if value is None or value is False:
            yield f"{path}: {key} is {'missing' if value is None else 'false'}"


def main(arguments: list[str]) -> int:
    if len(arguments) != 1:
        sys.stderr.write("usage: check.py PLAYBOOK.md\n")
        return 2
    playbook = Path(arguments[0])
    try:
        check = read_check(playbook)
    except (OSError, ValueError) as error:
        sys.stderr.write(f"check: {error}\n")
        return 2
    found = list(problems(check, Path.cwd()))
    for line in found:
        sys.stdout.write(f"{line}\n")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
