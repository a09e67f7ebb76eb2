"""What the figures were measured on and with: machine, versions, commit."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import subprocess
from pathlib import Path

from pytest_sme2.system.platforms import host_platform
from pytest_sme2.targets.local import LocalTarget

PACKAGES = ("pytest-sme2", "pytest", "pytest-benchmark", "executorch", "torch", "numpy", "scipy")


def machine() -> dict[str, str]:
    facts = dict(LocalTarget().fingerprint().facts)
    return {
        "cpu": facts["cpu"],
        "cores": str(os.cpu_count()),
        "memory": _memory(),
        "system": _system(),
        "platform": host_platform(),
    }


def _memory() -> str:
    try:
        total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError):
        return "unknown"
    return f"{total / 2**30:.0f} GiB"


def _system() -> str:
    try:
        return platform.freedesktop_os_release()["PRETTY_NAME"]
    except (OSError, KeyError):
        return platform.platform(terse=True)


def versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def commit(folder: Path) -> str:
    """The checkout's commit, with a mark where files differ from it."""
    asked = subprocess.run(
        ["git", "-C", str(folder), "describe", "--always", "--dirty=+", "--exclude=*"],
        capture_output=True,
        text=True,
        check=False,
    )
    return asked.stdout.strip() or "unknown"
