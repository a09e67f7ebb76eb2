"""Runs the suite or the tests of this clone, with nothing but Python installed before.

    python3 start.py suite
    python3 start.py tests

Makes .venv with tox and uv in it; tox makes the rest. More words go to tox, as in
`python3 start.py tests -- -k interval`. What pip was told about indexes, uv is told as well: it
reads neither pip's variables nor its files.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).parent
LOG = ROOT / ".venv" / "start.log"
# pip's name for a setting, uv's variable for the same, and what separates its values.
FOR_UV = {
    "index-url": ("UV_DEFAULT_INDEX", ""),
    "extra-index-url": ("UV_INDEX", " "),
    "find-links": ("UV_FIND_LINKS", ","),
    "cert": ("SSL_CERT_FILE", ""),
}
UNREACHED = re.compile(
    r"NameResolutionError|NewConnectionError|ConnectTimeoutError|ReadTimeoutError|ProxyError"
    r"|No matching distribution found|Request failed after|Failed to (?:fetch|download)|dns error"
    r"|not found in the (?:cache|package registry|provided package locations)"
)
NO_INDEX = (
    "No package index has what is needed, or none can be reached. Name a mirror (PIP_INDEX_URL, or "
    "`pip config set global.index-url URL`) or a folder of wheels (PIP_FIND_LINKS), and check "
    f"UV_TORCH_BACKEND: with it, torch comes from download.pytorch.org alone. Log: {LOG}"
)


def settings_for_uv(listed: str, given: Mapping[str, str]) -> dict[str, str]:
    """What ``pip config list`` printed, as uv's variables; those that are ``given`` stay."""
    found = {}
    for line in listed.splitlines():
        name, _, value = line.partition("=")
        variable, separator = FOR_UV.get(name.rpartition(".")[2], ("", ""))
        words = " ".join(shlex.split(value)).split()
        if variable and variable not in given and words:
            found[variable] = separator.join(words) if separator else words[0]
    if "UV_INDEX" in found:
        # As pip does: the newest version, whichever index has it.
        found.setdefault("UV_INDEX_STRATEGY", "unsafe-best-match")
    return found


def install(*command: str | Path, environment: Mapping[str, str]) -> None:
    """Run it; its output goes to the log, and is shown if the reason is no missing index."""
    with LOG.open("a+", encoding="utf-8") as log:
        begun = log.tell()
        done = subprocess.run(command, cwd=ROOT, env=environment, stdout=log, stderr=log)
        log.seek(begun)
        output = log.read()
    if done.returncode:
        sys.exit(NO_INDEX if UNREACHED.search(output) else output)


def main(words: Sequence[str]) -> int:
    if sys.version_info < (3, 10):  # noqa: UP036
        sys.exit(f"This is Python {sys.version.split()[0]}, and 3.10 or newer is needed.")
    if not words or words[0] not in ("suite", "tests"):
        sys.exit(str(__doc__))
    environment = dict(os.environ)
    programs = ROOT / ".venv" / "bin"
    if not (programs / "pip").exists():
        subprocess.run([sys.executable, "-m", "venv", ROOT / ".venv"], check=True)
    LOG.write_text("", encoding="utf-8")
    print(f"installing (1.2 GB at first; the log is {LOG})", flush=True)
    pip = programs / "pip"
    if not (programs / "tox").exists():
        install(pip, "install", "tox-uv", environment=environment)
    listed = subprocess.run([pip, "config", "list"], stdout=subprocess.PIPE, text=True, check=True)
    environment |= settings_for_uv(listed.stdout, environment)
    tox: list[str | Path] = [programs / "tox", "run"]
    install(*tox, "-e", words[0], "--notest", environment=environment)
    run = [*tox, "--skip-pkg-install", "-e", *words]
    return subprocess.run(run, cwd=ROOT, env=environment).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
