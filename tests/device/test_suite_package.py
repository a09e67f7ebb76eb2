"""The suite that is installed with the package, on models of somebody else's repository."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from pytest_sme2.system.cache import cache_folder
from tests.support.toy_project import export_here

CACHE = cache_folder()
ROOT = Path(__file__).parents[2]
SUITE = ("--pyargs", "pytest_sme2.suite", "--sme2-variants=fp32", "-m", "structure or numerics")


FIND = """
import importlib.util
spec = importlib.util.find_spec("pytest_sme2.suite")
print(spec.submodule_search_locations[0] if spec else "")
"""


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """Where the suite is, seen from another folder: the source must not be in the way."""
    found = subprocess.run(
        [sys.executable, "-c", FIND], cwd=tmp_path, check=True, stdout=subprocess.PIPE, text=True
    ).stdout.strip()
    if not found:
        pytest.skip("the package is not installed from a wheel, and has no suite in it")
    return Path(found)


@pytest.fixture
def project(installed: Path, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository that has a model, a line of ini, and no test of its own."""
    monkeypatch.setenv("SME2_CACHE_DIR", str(CACHE))
    shutil.copytree(ROOT / "models" / "toy_cnn", pytester.path / "nets" / "toy_cnn")
    pytester.makeini("[pytest]\nsme2_models = nets\nsme2_device = emulated\n")
    export_here(pytester.path / "nets")
    return pytester.path


def test_it_is_that_of_the_source(installed: Path) -> None:
    source = ROOT / "tests" / "performance"
    for file in source.glob("test_*.py"):
        assert (installed / file.name).read_bytes() == file.read_bytes()


def test_it_runs_on_the_models_of_the_repository(project: Path, pytester: pytest.Pytester) -> None:
    pytester.runpytest_subprocess(*SUITE, "--update-baselines=all").assert_outcomes(passed=10)
    assert (project / "baselines" / "emulated" / "toy_cnn-fp32.json").is_file()
    result = pytester.runpytest_subprocess(*SUITE, "-v")
    result.assert_outcomes(passed=9, skipped=1)  # nothing was named to hold it against
    result.stdout.fnmatch_lines(["*test_structure.py::*toy_cnn-fp32* PASSED*"])
