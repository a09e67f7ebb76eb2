"""How long a newcomer with a model of their own waits for the first insight, step by step.

    python -m benchmarks.first_insight [--json FILE]

An empty folder, a new virtual environment, no cache of ours. The package is installed from a wheel
of this checkout, in place of the repository that README.md names. What it downloads is in pip's
cache: how fast a network is says nothing about this project. So it installs twice, and only the
second time counts. What counts is CPU time, which other work on the machine hardly changes, and how
many commands there are to type. The model is torchvision's MobileNet V2; the commands are those of
README.md, and the test is the one that they write. The first insight is what the first run of
pytest prints: how much of the model runs on SME2, and what keeps the rest from it.
"""

from __future__ import annotations

import os
import re
import shlex
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.first_run import Newcomer
from benchmarks.harness import ROOT, Claim, finish, parser_of

MOST_CPU_SECONDS = 150.0
MOST_COMMANDS = 4

MODEL = """\
import torch
from pytest_sme2 import register_model
from torchvision.models import mobilenet_v2


@register_model("mobilenet_v2", variants=("fp32",))
class MobileNet:
    def get_eager_model(self):
        return mobilenet_v2(weights=None)

    def get_example_inputs(self):
        return (torch.randn(1, 3, 224, 224),)
"""
# The row of the table: the variant, and how many of its matrix operators ran on SME2.
INSIGHT = re.compile(r"^\S+-fp32 +(\d+ of \d+)\s", re.MULTILINE)


def readme_block(pattern: str) -> str:
    """The text of the README's block whose fence begins so."""
    text = (ROOT / "README.md").read_text("utf-8")
    (found,) = re.findall(rf"^```{pattern}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    return str(found)


def stages(root: Path) -> tuple[Newcomer, int, dict[str, Any]]:
    """Who has typed it all, how many lines until the insight, and what was found out."""
    project = root / "project"
    project.mkdir()
    newcomer = Newcomer(root, project, pip_cache=True)
    # Making the wheel is the publisher's work, not the newcomer's: its time is not kept.
    made = Newcomer(root, ROOT, pip_cache=True)
    make = (sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir")
    made.types("wheel", *make, root / "wheels", ".")
    (wheel,) = (root / "wheels").glob("*.whl")
    for typist in (made, newcomer):
        venv = root / ("venv" if typist is newcomer else "filled")
        programs = venv / "bin"
        typist.types("install", sys.executable, "-m", "venv", venv)
        package = f"pytest-sme2[export] @ {wheel.as_uri()}"
        install = (programs / "pip", "install", "--quiet", package, "torchvision>=0.28,<0.29")
        typist.types("install", *install)
    model = project / "models" / "mobilenet_v2" / "model.py"
    model.parent.mkdir(parents=True)
    model.write_text(MODEL, encoding="utf-8")
    printed = ""
    told = [line for line in readme_block("bash run").splitlines() if line]
    for stage, line in zip(("init", "insight", "store"), told, strict=True):
        program, *words = shlex.split(line)
        output = newcomer.types(stage, programs / program, *words)
        printed = output if stage == "insight" else printed
    said = INSIGHT.search(printed)
    if said is None:
        raise SystemExit(f"{printed}\nthe first run said nothing about SME2")
    # The environment, the README's line that installs, and its lines up to the first test.
    lines = 2 + [line.startswith("pytest") for line in told].index(True) + 1
    return newcomer, lines, {"insight": said[1]}


def main(argv: Sequence[str] | None = None) -> int:
    arguments = parser_of(__doc__).parse_args(argv)
    with tempfile.TemporaryDirectory() as name:
        newcomer, commands, found = stages(Path(name))
    used = sum(seconds for stage, seconds in newcomer.cpu.items() if stage != "store")
    what = "from an empty folder to the first insight about a MobileNet V2 in fp32"
    claims = [
        Claim("total", f"{what}: CPU time", used, "s", limit=MOST_CPU_SECONDS),
        Claim("commands", f"{what}: commands to type", commands, limit=MOST_COMMANDS),
    ]
    found |= {"wheels at hand": bool(os.environ.get("PIP_FIND_LINKS")), "cpu_seconds": newcomer.cpu}
    return finish(claims, arguments.json, found)


if __name__ == "__main__":
    sys.exit(main())
