"""The suite that is installed with the package, on models of somebody else's repository."""

from __future__ import annotations

import importlib.util
import shutil
from pathlib import Path

import pytest

from pytest_sme2.settings import cache_folder

CACHE = cache_folder()
ROOT = Path(__file__).parents[2]
SUITE = ("--pyargs", "pytest_sme2.suite", "--sme2-variants=fp32", "-m", "structure or numerics")


@pytest.fixture
def project(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository that has a model, a line of ini, and no test of its own."""
    if importlib.util.find_spec("pytest_sme2.suite") is None:
        pytest.skip("the package is not installed from a wheel, and has no suite in it")
    monkeypatch.setenv("SME2_CACHE_DIR", str(CACHE))
    shutil.copytree(ROOT / "models" / "toy_cnn", pytester.path / "nets" / "toy_cnn")
    pytester.makeini("[pytest]\nsme2_models = nets\nsme2_device = emulated\n")
    return pytester.path


def test_it_is_that_of_the_source() -> None:
    spec = importlib.util.find_spec("pytest_sme2.suite")
    if spec is None or not spec.submodule_search_locations:
        pytest.skip("the package is not installed from a wheel, and has no suite in it")
    installed = Path(next(iter(spec.submodule_search_locations)))
    source = ROOT / "tests" / "performance"
    for file in source.glob("test_*.py"):
        assert (installed / file.name).read_bytes() == file.read_bytes()


def test_it_runs_on_the_models_of_the_repository(project: Path, pytester: pytest.Pytester) -> None:
    pytester.runpytest_subprocess(*SUITE, "--update-baselines").assert_outcomes(passed=8, skipped=1)
    assert (project / "baselines" / "emulated" / "toy_cnn-fp32.json").is_file()
    result = pytester.runpytest_subprocess(*SUITE, "-v")
    result.assert_outcomes(passed=8, skipped=1)  # nothing was named to hold it against
    result.stdout.fnmatch_lines(["*test_structure.py::*toy_cnn-fp32* PASSED*"])
