"""Debian and Ubuntu packages into a folder of our own: no root, no change to the system's sources.

The mirror is whichever one the system already uses; only the suite differs. apt checks the
signatures with the system's own keyring.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from pytest_sme2.errors import BuildError

_TIMEOUT_SECONDS = 300


def available() -> bool:
    """Whether this system has apt and dpkg at all."""
    return shutil.which("apt-get") is not None and shutil.which("dpkg-deb") is not None


def _run(arguments: Sequence[str], folder: Path) -> str:
    try:
        done = subprocess.run(
            arguments,
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_SECONDS,
            check=False,
            env={**os.environ, "LC_ALL": "C"},
        )
    except subprocess.TimeoutExpired:
        raise BuildError(
            f"`{arguments[0]}` gave no answer in {_TIMEOUT_SECONDS} s. "
            "Check the network and try again."
        ) from None
    if done.returncode != 0:
        last = (done.stderr or done.stdout).strip().splitlines()[-3:]
        raise BuildError(f"`{' '.join(arguments[-3:])}` failed: {' '.join(last)}")
    return done.stdout


def system_mirror() -> tuple[str, str]:
    """The address and keyring of the mirror the system's own sources name first."""
    listing = _run(
        [
            "apt-get",
            "indextargets",
            "--format",
            "$(REPO_URI)|$(SIGNED_BY)|$(RELEASE)",
            "Created-By: Packages",
        ],
        Path("/"),
    )
    for line in listing.splitlines():
        address, keyring, release = line.split("|", 2)
        if "security" not in release and "security" not in address:
            # apt leaves the placeholder as it is where the source names no keyring.
            return address, "" if keyring.startswith("$(") else keyring
    raise BuildError("apt knows no package source. Add one to /etc/apt and try again.")


def _keyring(named: str) -> str:
    candidates = (
        named,
        "/usr/share/keyrings/debian-archive-keyring.gpg",
        "/usr/share/keyrings/ubuntu-archive-keyring.gpg",
    )
    for candidate in candidates:
        if candidate and Path(candidate).is_file():
            return candidate
    raise BuildError(
        "No archive keyring was found, so packages cannot be checked. "
        "Install debian-archive-keyring (or ubuntu-keyring)."
    )


def unpack_packages(packages: Sequence[str], suite: str, folder: Path) -> None:
    """Fetch ``packages`` of ``suite`` and unpack them into ``folder``, all or nothing."""
    address, named = system_mirror()
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".packages-") as name:
        work = Path(name)
        # apt fetches as its own user, who must be able to enter.
        work.chmod(0o755)
        source = work / "private.sources"
        source.write_text(
            f"Types: deb\nURIs: {address}\nSuites: {suite}\nComponents: main\n"
            f"Signed-By: {_keyring(named)}\n"
        )
        for part in ("lists/partial", "cache/archives/partial", "debs", "root"):
            (work / part).mkdir(parents=True)
        apt = [
            "apt-get",
            "-o", f"Dir::Etc::sourcelist={source}",
            "-o", "Dir::Etc::sourceparts=-",
            "-o", f"Dir::State::lists={work / 'lists'}",
            "-o", f"Dir::Cache={work / 'cache'}",
            "-o", "APT::Sandbox::User=",
            "-qq",
        ]  # fmt: skip
        _run([*apt, "update"], work)
        _run([*apt, "download", *packages], work / "debs")
        for archive in sorted((work / "debs").glob("*.deb")):
            _run(["dpkg-deb", "-x", str(archive), str(work / "root")], work)
        if folder.exists():
            shutil.rmtree(folder)
        (work / "root").rename(folder)
