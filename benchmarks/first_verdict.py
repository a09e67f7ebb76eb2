"""How long a newcomer waits from nothing to the first verdict, stage by stage.

    python -m benchmarks.first_verdict [--json FILE]
    python -m benchmarks.first_verdict --this-environment    # without installing: for a quick look

A clone of this checkout's last commit, a new virtual environment, no cache of pip's or of ours: all
that is downloaded is downloaded, so the network has its say in `install` and `provision`. Compilers
are the exception: those that the system has already are found and not installed again, and the
result names them. The stages are the product's own commands, each in a process of its own as a
user types them, and the last is the suite on `toy_cnn` in fp32, on the emulator, against the
baseline that ships: it has to pass.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.claims import Claim, finish
from benchmarks.running import ROOT

MOST_SECONDS = 300.0
MOST_SECONDS_OF_OURS = 120.0
"""Everything but the installation, most of which is torch."""

# What would let a stage find what another one, or this benchmark's own environment, has made.
_HIDDEN = ("PYTHONPATH", "VIRTUAL_ENV", "PYTHONHOME", "XDG_CACHE_HOME", "CI")


@dataclass
class Newcomer:
    """Types one command after another and looks at the clock."""

    folder: Path
    place: Path
    """Where the commands are typed."""
    pip_cache: bool = False
    """Whether pip may use what it has downloaded before."""
    stages: dict[str, float] = field(default_factory=dict)

    def environment(self) -> dict[str, str]:
        kept = {
            name: value
            for name, value in os.environ.items()
            if name not in _HIDDEN and not name.startswith(("SME2_", "TOX_", "PYTEST_"))
        }
        cache = {"SME2_CACHE_DIR": str(self.folder / "cache")}
        return {**kept, **cache, **({} if self.pip_cache else {"PIP_NO_CACHE_DIR": "1"})}

    def types(self, stage: str, *command: str | Path, cwd: Path | None = None) -> str:
        """What the command printed; its time is added to the stage's."""
        started = time.perf_counter()
        done = subprocess.run(
            [str(word) for word in command],
            cwd=cwd or self.place,
            env=self.environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
            check=False,
        )
        seconds = time.perf_counter() - started
        self.stages[stage] = self.stages.get(stage, 0.0) + seconds
        line = " ".join(map(str, command)).partition("\n")[0]
        print(f"{stage:10} {seconds:7.1f} s  {line}", flush=True)
        if done.returncode != 0:
            raise SystemExit(f"{done.stdout}\n{stage} failed with exit code {done.returncode}")
        return done.stdout


BUILD = """\
from pytest_sme2.runners.sme2 import wheel_runner
from pytest_sme2.session.settings import Settings
from pytest_sme2.targets import choose_target
wheel_runner(choose_target(Settings(device="emulated")).platform)
"""


def stages(root: Path, *, install: bool) -> tuple[dict[str, float], dict[str, str]]:
    """Seconds by stage, and what provisioning did about each tool."""
    clone = root / "pytest-sme2"
    newcomer = Newcomer(root, clone)
    newcomer.types("clone", "git", "clone", "--quiet", "--no-local", ROOT, clone, cwd=root)
    python = Path(sys.executable)
    if install:
        newcomer.types("install", sys.executable, "-m", "venv", root / "venv")
        python = root / "venv" / "bin" / "python"
        newcomer.types("install", python, "-m", "pip", "install", "--quiet", ".[export]")
    sme2 = (python, "-c", "import sys; from pytest_sme2.cli.main import main; sys.exit(main())")
    provided = json.loads(newcomer.types("provision", *sme2, "provision", "--json", "--require"))
    newcomer.types("export", *sme2, "export", "toy_cnn", "--variant", "fp32")
    newcomer.types("runner", python, "-c", BUILD)
    newcomer.types(
        "verdict",
        *(python, "-m", "pytest", "tests/performance", "--device=emulated", "-q"),
        *("--sme2-models=toy_cnn", "--sme2-variants=fp32"),
    )
    return newcomer.stages, {part["name"]: part["action"] for part in provided}


NAMES = {
    "clone": "clone",
    "install": "virtual environment, and installing with torch and ExecuTorch",
    "provision": "provisioning the emulator",
    "export": "export of `toy_cnn`",
    "runner": "ExecuTorch's Arm libraries, and the build of the runner",
    "verdict": "the suite on `toy_cnn`: the verdict",
}


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "--this-environment", action="store_true", help="use it, and leave out the installation"
    )
    parser.add_argument("--json", type=Path, metavar="FILE")
    arguments = parser.parse_args(argv)
    install = not arguments.this_environment
    with tempfile.TemporaryDirectory() as name:
        taken, provided = stages(Path(name), install=install)
    total = sum(taken.values())
    claims = [Claim(stage, f"… {NAMES[stage]}", seconds, "s") for stage, seconds in taken.items()]
    ours = Claim(
        "ours",
        "from the installed package to the first verdict, emulator and exports included",
        total - taken.get("install", 0.0),
        "s",
        limit=MOST_SECONDS_OF_OURS,
    )
    if install:
        what = "from nothing to the first verdict, all downloads included"
        claims = [Claim("total", what, total, "s", limit=MOST_SECONDS), ours, *claims]
    else:
        claims = [ours, *claims]
    return finish(claims, arguments.json, {"provision": provided})


if __name__ == "__main__":
    sys.exit(main())
