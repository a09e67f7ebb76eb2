"""How long a newcomer waits for the README's main command, from nothing, stage by stage.

    python -m benchmarks.first_run [--json FILE]

A clone of this checkout's last commit, no cache of pip's, uv's or ours: all that is downloaded is
downloaded, so the network has its say in `install` and `provision`. Compilers are the exception:
those that the system has already are found and not installed again, and the result names them.
The suite runs every shipped model in every data type on the emulator, counted, against the
baselines that ship: it has to pass. Then it runs once more, with everything at hand.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.harness import ROOT, Claim, finish, parser_of

MOST_SECONDS = 360.0
MOST_SECONDS_OF_OURS = 240.0
"""Everything after the installation."""
MOST_SECONDS_AGAIN = 20.0

# What would let a stage find what another one, or this benchmark's own environment, has made.
_HIDDEN = ("PYTHONPATH", "VIRTUAL_ENV", "PYTHONHOME", "XDG_CACHE_HOME", "CI")


def stages(root: Path) -> tuple[dict[str, float], dict[str, str]]:
    """Seconds by stage, and what provisioning did about each tool."""
    clone = root / "pytest-sme2"
    seconds: dict[str, float] = {}
    kept = {
        name: value
        for name, value in os.environ.items()
        if name not in _HIDDEN and not name.startswith(("SME2_", "TOX_", "PYTEST_"))
    }
    own = {"SME2_CACHE_DIR": f"{root}/cache", "UV_CACHE_DIR": f"{root}/uv", "PIP_NO_CACHE_DIR": "1"}

    def types(stage: str, *command: str | Path, cwd: Path = clone) -> str:
        """What the command printed."""
        started = time.perf_counter()
        done = subprocess.run(
            command,
            cwd=cwd,
            env={**kept, **own},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
            check=False,
        )
        seconds[stage] = time.perf_counter() - started
        print(f"{stage:10} {seconds[stage]:7.1f} s  {' '.join(map(str, command))}", flush=True)
        if done.returncode != 0:
            raise SystemExit(f"{done.stdout}\n{stage} failed with exit code {done.returncode}")
        return done.stdout

    types("clone", "git", "clone", "--quiet", "--no-local", ROOT, clone, cwd=root)
    types("install", sys.executable, "start.py", "suite", "--notest")
    sme2 = clone / ".tox" / "suite" / "bin" / "sme2"
    provided = json.loads(types("provision", sme2, "provision", "--json"))
    suite = (".venv/bin/tox", "run", "-q", "--skip-pkg-install", "-e", "suite")
    types("suite", *suite)
    types("again", *suite)
    return seconds, {part["name"]: part["action"] for part in provided}


def main(argv: Sequence[str] | None = None) -> int:
    arguments = parser_of(__doc__).parse_args(argv)
    with tempfile.TemporaryDirectory() as name:
        seconds, tools = stages(Path(name))
    taken = dict(seconds)
    again = taken.pop("again")
    total = sum(taken.values())
    ours = total - taken["install"] - taken["clone"]
    claims = [
        Claim("total", "the main command from nothing", total, "s", limit=MOST_SECONDS),
        Claim("ours", "of this, after the installation", ours, "s", limit=MOST_SECONDS_OF_OURS),
        Claim("again", "the same with all at hand", again, "s", limit=MOST_SECONDS_AGAIN),
    ]
    return finish(claims, arguments.json, {"provision": tools, "seconds": seconds})


if __name__ == "__main__":
    sys.exit(main())
