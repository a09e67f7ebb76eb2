"""Green means checked: what could not be measured, compared or found is visible.

Real exports and real processes on this machine; where it has SME2, there is nothing to miss.
"""

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


def test_unused_reference_is_an_error(run: Run, pytester: pytest.Pytester) -> None:
    (pytester.mkdir("old") / "toy.pte").touch()
    result = run("--against=old", "-k", "none")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(["sme2: --against old was not used: no test that ran calls*"])


def test_required_sme2_that_is_missing_is_an_error(run: Run) -> None:
    result = run("--sme2-require", "-k", "none")
    assert result.ret == 125
    result.stdout.fnmatch_lines(["*--sme2-require: linux has no SME2*"])
