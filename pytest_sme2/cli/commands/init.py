"""``sme2 init``: a model, a test and a workflow to start from, in a repository that has none."""

from __future__ import annotations

import argparse
import importlib.resources
from pathlib import Path

from pytest_sme2.cli.options import Arguments, show
from pytest_sme2.errors import UsageError
from pytest_sme2.system.files import write_text
from pytest_sme2.targets.local import LocalTarget

EXAMPLE = "sme2 init"
ARGUMENTS: Arguments = {"folder DIR?": ("the repository (default: the current folder)", Path())}

TEST = """\
def test_model(sme2_gate):
    sme2_gate.check_evidence()  # SME2 kernels ran with SME2 on, and none with SME2 off
    sme2_gate.check_coverage()  # no matrix operator left SME2, compared with the baseline
    sme2_gate.check_operators()  # the same operators as in the baseline
    sme2_gate.check_cost()  # not more instructions than in the baseline; counted on an emulator
    sme2_gate.check_latency()  # measured only where times mean something: not on an emulator
    sme2_gate.check_against()  # what --against names, if it is given
"""
IGNORED = """\
__pycache__/
.pytest_cache/
.benchmarks/
"""
# Where pytest looks for its settings; a pytest.ini would silence those of the others.
_SETTINGS = ("pytest.ini", ".pytest.ini", "pyproject.toml", "tox.ini", "setup.cfg")


def run(arguments: argparse.Namespace) -> int:
    folder: Path = arguments.folder
    files = {
        Path("models/toy_cnn/model.py"): example("toy_cnn/model.py"),
        Path("tests/test_performance.py"): TEST,
        Path(".github/workflows/performance.yml"): example("github-actions.yml"),
    }
    # What a killed `sme2 init` wrote is as it would be written now.
    there = [str(path) for path, text in files.items() if _holds_other(folder / path, text)]
    if there:
        raise UsageError(
            f"{', '.join(there)}: there already. Nothing was written: `sme2 init` overwrites no "
            "file. Move what is there away, or name another folder."
        )
    kept = [name for name in (".gitignore", *_SETTINGS) if (folder / name).exists()]
    if ".gitignore" not in kept:
        files[Path(".gitignore")] = IGNORED
    settings = {*kept} & {*_SETTINGS}
    device = "auto" if LocalTarget().capabilities().sme2 else "emulated"
    if not settings:
        files[Path("pytest.ini")] = f"[pytest]\ntestpaths = tests\nsme2_device = {device}\n"
    for path, text in files.items():
        write_text(folder / path, text)
    # The long name: the project, or a plugin of it, may have a --device of its own.
    option = f" --sme2-device {device}" if settings else ""
    lines = [
        *(f"wrote  {path}" for path in files),
        *(f"kept   {name}, as it was" for name in kept),
        "",
        "Next:",
        f"  pytest{option}{'':22}does it run on SME2? (the first run builds a runner)",
        f"  pytest{option} --update-baselines   store what was found; commit baselines/",
        "Then put your own model beside models/toy_cnn: one folder, one model.py.",
    ]
    return show(arguments, {"written": [str(path) for path in files], "kept": kept}, lines)


def _holds_other(path: Path, text: str) -> bool:
    return path.exists() and (not path.is_file() or path.read_bytes() != text.encode())


def example(name: str) -> str:
    """A file to start from: in the installed package, else in the project's source."""
    installed = importlib.resources.files("pytest_sme2") / "examples" / name
    if installed.is_file():
        return installed.read_text(encoding="utf-8")
    folder = "docs/ci" if name.endswith(".yml") else "models"
    return (Path(__file__).parents[3] / folder / name).read_text(encoding="utf-8")
