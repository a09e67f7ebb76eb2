"""Green means checked: what could not be measured, compared or found is visible, and strict fails.

Real exports and real processes on this machine; where it has SME2, there is nothing to miss.
"""

import shutil
from pathlib import Path

import pytest

from tests.support.needs import needs_export
from tests.support.toy_project import Run, toy_suite

pytestmark = [
    needs_export,
    pytest.mark.skipif(
        "sme2" in Path("/proc/cpuinfo").read_text("utf-8"), reason="needs a machine without SME2"
    ),
]

SUITE = """
def test_some(sme2_gate):
    sme2_gate.check_evidence()
    sme2_gate.check_size()
    sme2_gate.check_outputs()

def test_none(sme2_gate):
    sme2_gate.check_speedup()
"""
OUTPUTS = "def test_outputs(sme2_gate): sme2_gate.check_outputs()\n"


@pytest.fixture
def run(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Run:
    return toy_suite(pytester, monkeypatch, SUITE, "linux")


def test_only_a_test_that_checked_nothing_is_skipped(run: Run) -> None:
    result = run("-rs")
    result.assert_outcomes(passed=1, skipped=1)
    assert result.ret == pytest.ExitCode.OK
    result.stdout.fnmatch_lines(
        ["*not measured: evidence: *", "SKIPPED*NOT_MEASURED: speedup: linux has no SME2*"]
    )


def test_strict_fails_a_case_that_checked_nothing(run: Run) -> None:
    result = run("--sme2-strict", "-k", "none")
    result.assert_outcomes(skipped=1)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(
        ["sme2: nothing was compared: no check of sme2_gate found anything to compare.*"]
    )


def test_unused_reference_is_an_error(run: Run, pytester: pytest.Pytester) -> None:
    (pytester.mkdir("old") / "toy.pte").touch()
    result = run("--against=old", "-k", "none")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(["sme2: --against old was not used: no test that ran calls*"])


def test_required_sme2_that_is_missing_is_an_error(run: Run) -> None:
    result = run("--sme2-require", "-k", "none")
    assert result.ret == 125
    result.stdout.fnmatch_lines(["*--sme2-require: linux has no SME2*"])


def test_table_says_what_was_stored(run: Run, pytester: pytest.Pytester) -> None:
    result = run("--update-baselines", "-k", "some")
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(
        ["toy_cnn-fp32 *PASS", "baselines: 1 new, in*", "  new: toy_cnn-fp32"]
    )
    # Without these baselines, strict fails although every check of the test passed.
    shutil.rmtree(pytester.path / "baselines")
    pytester.makepyfile(OUTPUTS)
    result = run("--sme2-strict")
    result.assert_outcomes(passed=1)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(["*holds no baseline for linux-*"])


def test_broken_models_do_not_pass(
    run: Run, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their reference is made by the same code, so only what was accepted can tell."""
    pytester.makepyfile(OUTPUTS)
    assert run("--update-baselines").ret == pytest.ExitCode.OK
    monkeypatch.setenv("CI", "true")
    assert run().ret == pytest.ExitCode.OK
    model = pytester.path / "models" / "toy_cnn" / "model.py"
    source = model.read_text("utf-8")
    for broken, words in (
        ("for weight in network.parameters(): weight.data.zero_()", "toy_cnn-fp32 on linux-"),
        ("w = network.widen[0].weight; w.data = w.data.flip(1)", "output 0 is not the accepted"),
    ):
        changed = f"network = ToyCnn()\n        {broken}\n        return network"
        model.write_text(source.replace("return ToyCnn()", changed), "utf-8")
        result = run()
        assert result.ret == pytest.ExitCode.TESTS_FAILED
        assert words in " ".join(result.stdout.str().split())
