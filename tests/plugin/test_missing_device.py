"""A device that is missing is said once, not by every test that needs it."""

import sys

import pytest

from tests.support.toy_project import add_model

TESTS = """
def test_coverage(sme2_gate):
    sme2_gate.check_coverage()

def test_evidence(sme2_gate):
    sme2_gate.check_evidence()

def test_something_else():
    pass
"""
# The one that this machine is not.
OTHER = "linux" if sys.platform == "darwin" else "mac"


def test_the_first_test_fails_and_the_others_are_skipped(pytester: pytest.Pytester) -> None:
    add_model(pytester.path)
    pytester.makepyfile(TESTS)
    result = pytester.runpytest_inprocess(f"--device={OTHER}", "-rs", "--no-header")
    result.assert_outcomes(failed=1, skipped=3, passed=1)
    text = result.stdout.str()
    assert text.count(f"--device={OTHER} runs on this machine, but this machine runs") <= 2
    result.stdout.fnmatch_lines(["SKIPPED*there is no device: *test_coverage*toy-fp32* says why"])
    assert result.ret == pytest.ExitCode.TESTS_FAILED
