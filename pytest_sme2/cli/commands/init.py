"""``sme2 init``: a model, a test and a workflow to start from, in a repository that has none."""

from __future__ import annotations

import argparse
import importlib.metadata
import importlib.resources
import json
import sys
from collections.abc import Mapping
from pathlib import Path

from pytest_sme2 import __version__
from pytest_sme2.cli.options import Arguments, show
from pytest_sme2.errors import SOURCE, StorageError, UsageError
from pytest_sme2.system.files import replacing

EXAMPLE = "sme2 init"
ARGUMENTS: Arguments = {"folder DIR?": ("the repository (default: the current folder)", Path())}

MODEL = Path("models/toy_cnn/model.py")
TEST = """\
def test_model(sme2_gate):
    sme2_gate.check_evidence()  # SME2 kernels ran with SME2 on, and none with SME2 off
    sme2_gate.check_coverage()  # no matrix operator left SME2, compared with the baseline
    sme2_gate.check_operators()  # the same operators as in the baseline
    sme2_gate.check_cost()  # not more instructions than in the baseline; counted on an emulator
    sme2_gate.check_outputs()  # the model in PyTorch computes the same
    sme2_gate.check_latency()  # measured only where times mean something: not on an emulator
    sme2_gate.check_against()  # what --against names, if it is given
"""
IGNORED = """\
__pycache__/
.pytest_cache/
.benchmarks/
"""
# Plugins of pytest that ExecuTorch's dependencies bring: with them it takes twice as long to begin.
STRANGERS = ("hydra_pytest", "hypothesispytest")
WITHOUT_STRANGERS = " ".join(f"-p no:{name}" for name in STRANGERS)
INI = f"""\
[pytest]
testpaths = tests
sme2_device = {{device}}
# Plugins that ExecuTorch's dependencies bring: with them pytest takes twice as long to begin.
addopts = {WITHOUT_STRANGERS}
"""
# Where pytest looks for its settings; a pytest.ini would silence those of the others.
SETTINGS = ("pytest.ini", ".pytest.ini", "pyproject.toml", "tox.ini", "setup.cfg")


def run(arguments: argparse.Namespace) -> int:
    folder: Path = arguments.folder
    files = {
        Path("tests/test_performance.py"): TEST,
        Path(".github/workflows/performance.yml"): pinned(example("github-actions.yml")),
    }
    if not _has_models(folder):
        files[MODEL] = example("toy_cnn/model.py")
    # What a killed `sme2 init` wrote is as it would be written now.
    there = [str(path) for path, text in files.items() if _holds_other(folder / path, text)]
    if there:
        raise UsageError(
            f"{', '.join(there)}: there already. Nothing was written: `sme2 init` overwrites no "
            "file. Move what is there away, or name another folder."
        )
    kept = [name for name in (".gitignore", *SETTINGS) if (folder / name).exists()]
    if ".gitignore" not in kept:
        files[Path(".gitignore")] = IGNORED
    settings = {*kept} & {*SETTINGS}
    # The workflow's device, so that its baselines are those that are stored here.
    device = "emulated" if sys.platform == "linux" else "auto"
    if not settings:
        files[Path("pytest.ini")] = INI.format(device=device)
    _write(folder, files)
    # The long name: the project, or a plugin of it, may have a --device of its own.
    typed = f"pytest tests/test_performance.py --sme2-device {device}" if settings else "pytest"
    added = " ".join(sorted({path.parts[0] for path in files} | {"baselines", "models"}))
    lines = [
        *(f"wrote  {path}" for path in files),
        *(f"kept   {name}, as it was" for name in kept),
        "",
        "Next:",
        f"  {typed}",
        "      does it run on SME2? (the first run builds a runner)",
        f"  {typed} --update-baselines",
        f"  git add {added} && git commit",
        "      store what was found: the workflow compares with it",
    ]
    if MODEL in files:
        lines.append("Then put your own model beside models/toy_cnn: one folder, one model.py.")
    if device != "emulated":
        lines.append("The workflow compares on Linux: store its baselines there as well.")
    return show(arguments, {"written": [str(path) for path in files], "kept": kept}, lines)


def _has_models(folder: Path) -> bool:
    """Whether there are models besides the one that is written here."""
    return any(path != folder / MODEL for path in folder.glob("models/*/model.py"))


def _holds_other(path: Path, text: str) -> bool:
    return path.exists() and (not path.is_file() or path.read_bytes() != text.encode())


def _write(folder: Path, files: Mapping[Path, str]) -> None:
    for path, text in files.items():
        try:
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            with replacing(folder / path) as file:
                file.write(text.encode())
        except OSError as error:
            raise StorageError(
                f"{folder / path}: cannot be written: {error.strerror}. Name a folder that you may "
                "write to: sme2 init DIR"
            ) from error


def example(name: str) -> str:
    """A file to start from, which comes with the package."""
    files = importlib.resources.files("pytest_sme2")
    return (files / "examples" / name).read_text(encoding="utf-8")


def pinned(workflow: str) -> str:
    """It installs what is installed here, so that CI changes when somebody changes it."""
    version = f"=={__version__}"
    if SOURCE:
        told = importlib.metadata.distribution("pytest-sme2").read_text("direct_url.json")
        commit = json.loads(told or "{}").get("vcs_info", {}).get("commit_id")
        version = f"{SOURCE}@{commit}" if commit else SOURCE
    return workflow.replace(f"pytest-sme2[export]{SOURCE}'", f"pytest-sme2[export]{version}'")
