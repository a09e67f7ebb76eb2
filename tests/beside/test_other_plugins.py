"""Plugins that people have, all switched on at once, beside this one.

The environment `beside` of tox.ini installs them; here a missing one is a failure. The device is a
pretended one, so that nothing is waited for.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from pytest_sme2.cli.commands.merge import merge
from tests.support.toy_project import add_model

ROOT = Path(__file__).parents[2]
CONFTEST = f"""
import sys
sys.path.insert(0, {str(ROOT)!r})
import pytest
from pytest_sme2.results.run import Arm
from tests.support.pretended_device import PretendedDevice, pretend, program

NOW = program("now")
DEVICE = PretendedDevice({{NOW.sha256: {{Arm.ON: 30e6, Arm.OFF: 90e6}}}}, seed=2)
pretend(pytest.MonkeyPatch(), DEVICE, NOW)
"""
TESTS = """
def test_operators(sme2_gate):
    sme2_gate.check_operators()

def test_speedup(sme2_gate):
    sme2_gate.check_speedup()
"""
ALL_ON = (
    "--randomly-seed=7", "--reruns=1", "--timeout=600", "--cov=.", "--cov-report=json",
    "--html=page.html", "--self-contained-html", "--alluredir=allure", "--device=linux",
)  # fmt: skip


@pytest.fixture(autouse=True)
def no_other_plugins() -> None:
    """Here they all stay."""


@pytest.fixture
def project(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    for name in ("PYTEST_XDIST_WORKER", "PYTEST_XDIST_WORKER_COUNT", "PYTEST_XDIST_TESTRUNUID"):
        monkeypatch.delenv(name, raising=False)
    pytester.makeconftest(CONFTEST)
    pytester.makepyfile(TESTS)
    add_model(pytester.path)
    return pytester


def test_baselines_are_made_and_compared_beside_them(project: pytest.Pytester) -> None:
    made = project.runpytest_subprocess(*ALL_ON, "--update-baselines=all")
    made.assert_outcomes(passed=4)
    assert len(list((project.path / "baselines").rglob("toy-*.json"))) == 2
    compared = project.runpytest_subprocess(*ALL_ON)
    compared.assert_outcomes(passed=4)
    compared.stdout.fnmatch_lines(["*= sme2 =*"])
    page = (project.path / "page.html").read_text("utf-8")
    assert "test_speedup[toy-fp16]" in page
    assert (project.path / "coverage.json").is_file()
    names = [
        json.loads(path.read_text("utf-8"))["name"]
        for path in (project.path / "allure").glob("*-result.json")
    ]
    assert "test_speedup[toy-fp32]" in names


def test_a_failure_stays_one_when_it_is_run_again(project: pytest.Pytester) -> None:
    words = ("--sme2-limit=min_speedup=100", "-k", "speedup and fp32")
    result = project.runpytest_subprocess(*ALL_ON, *words)
    outcomes = result.parseoutcomes()
    assert (outcomes["failed"], outcomes["rerun"]) == (1, 1)
    assert result.ret == pytest.ExitCode.TESTS_FAILED


def test_neither_order_nor_reruns_make_an_empty_comparison_green(project: pytest.Pytester) -> None:
    """The first try of a test compares nothing, the second one is skipped: that is not green."""
    assert project.runpytest_subprocess(*ALL_ON, "--update-baselines=all").ret == 0
    strict = (*ALL_ON, "--sme2-strict")
    whole = project.runpytest_subprocess(*strict)
    assert whole.ret == pytest.ExitCode.OK
    whole.stdout.fnmatch_lines(["compared: * of * stored figures"])
    flaky = """
        import pathlib, pytest

        def test_operators(sme2_gate):
            sme2_gate.check_operators()

        def test_speedup(sme2_gate):
            tried = pathlib.Path(f"tried-{sme2_gate.case.variant}")
            if tried.exists():
                pytest.skip("not now")
            tried.touch()
            raise OSError("a hiccup")
    """
    project.makepyfile(flaky)
    result = project.runpytest_subprocess(*strict)
    assert result.parseoutcomes()["rerun"] == 2
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(["*NOT_MEASURED: toy-fp16, toy-fp32 on *"])


def test_a_missing_device_stays_one_failure_when_it_is_run_again(project: pytest.Pytester) -> None:
    (project.path / "conftest.py").unlink()
    other = "linux" if sys.platform == "darwin" else "mac"
    options = [option for option in ALL_ON if not option.startswith("--device")]
    result = project.runpytest_subprocess(*options, f"--device={other}")
    outcomes = result.parseoutcomes()
    assert (outcomes["failed"], outcomes["rerun"], outcomes["skipped"]) == (1, 1, 3)


def test_shards_of_pytest_split_are_merged(project: pytest.Pytester) -> None:
    folders = []
    for number in (1, 2):
        folders.append(project.path / f"shard-{number}")
        shard = ("--splits=2", f"--group={number}", f"--sme2-out={folders[-1]}")
        result = project.runpytest_subprocess("--device=linux", "-p", "no:randomly", *shard)
        # There is no baseline, so nothing can be compared.
        assert result.parseoutcomes()["skipped"] == 2
    merged = merge(folders, project.path / "merged", project.path)
    assert (len(merged.cases), len(merged.tests)) == (2, 4)
    (problem,) = merged.problems
    assert problem.startswith("nothing was compared: ")
    assert merge(folders[:1], project.path / "half", project.path).problems[0] == (
        "Shards that are missing, of 2: 2."
    )
