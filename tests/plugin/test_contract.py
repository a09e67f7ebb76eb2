"""What an update promises and who is told of it; that nothing of it goes is `benchmarks.attacks`.

The device is a pretended one; everything above it is the product's own.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping

import pytest

from pytest_sme2.results.run import Arm
from tests.support.pretended_device import PretendedDevice, pretend, program
from tests.support.toy_project import GATE_SUITE as SUITE
from tests.support.toy_project import gate_project

PROGRAM = program("toy")
TIMES: dict[str, Mapping[Arm, float]] = {PROGRAM.sha256: {Arm.ON: 30e6, Arm.OFF: 90e6}}

Run = Callable[..., pytest.RunResult]


@pytest.fixture
def run(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs pytest in a project with the model ``toy`` in two variants."""
    gate_project(pytester.path)

    def run(*arguments: str) -> pytest.RunResult:
        with monkeypatch.context() as patch:
            pretend(patch, PretendedDevice(TIMES, seed=2), PROGRAM, PROGRAM)
            return pytester.runpytest_inprocess("-p", "no:cacheprovider", *arguments)

    return run


def said(result: pytest.RunResult) -> str:
    return " ".join(result.stdout.str().split())


def test_an_update_says_what_must_be_compared_and_a_part_changes_nothing_of_it(
    run: Run, pytester: pytest.Pytester
) -> None:
    assert run("--update-baselines").ret == pytest.ExitCode.OK
    (path,) = (pytester.path / "baselines").glob("*/toy-fp16.json")
    before = path.read_text("utf-8")
    accepted = json.loads(before)
    assert accepted["promised"]["1"] == {
        **dict.fromkeys(("latency (off)", "latency (on)"), "test_latency"),
        **dict.fromkeys(("evidence", "operators (off)", "operators (on)"), "test_structure"),
    }
    assert accepted["limits"]["max_regression"] == 0.02
    assert run("--update-baselines=dry", "-k", "structure").ret == pytest.ExitCode.OK
    assert path.read_text("utf-8") == before
    assert run("--update-baselines", "-k", "structure").ret == pytest.ExitCode.OK
    after = json.loads(path.read_text("utf-8"))
    assert [after[name] for name in ("promised", "limits")] == [
        accepted[name] for name in ("promised", "limits")
    ]

    # From wherever it is called in the project, as pytest finds them.
    with pytest.MonkeyPatch.context() as elsewhere:
        elsewhere.chdir(pytester.mkdir("elsewhere"))
        printed = pytester.run("sme2", "models", "--contract")
    assert printed.ret == 0
    printed.stdout.fnmatch_lines(["DEVICE *", "linux-* toy-fp16 *latency (on) *test_latency"])

    pytester.makepyfile(test_suite=SUITE.replace("test_latency", "other"))
    told = run()
    assert told.ret == pytest.ExitCode.OK
    assert "no test compared it; test_latency did." in said(told)
    assert "stored figures" not in said(run("--co"))


def test_missing_baselines_are_one_sentence(run: Run) -> None:
    result = run("--sme2-strict")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    text = said(result)
    assert "NO_BASELINE: 2 cases (toy-fp32, toy-fp16). Store what is missing: pytest" in text
    assert text.count("Store what is missing") == 1
