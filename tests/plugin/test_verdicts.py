"""Every verdict as a user meets it: the outcome of the test, the exit code, the words.

Real exports and real processes on this machine. The baseline is made by ``--update-baselines``
and then edited, so that the same program looks slower, faster, or different from what it was.
"""

import json
from typing import Any

import pytest

from pytest_sme2.system.platforms import host_platform
from tests.support.gate_examples import edit_baseline
from tests.support.needs import needs_export
from tests.support.toy_project import Run, toy_suite

pytestmark = needs_export

DEVICE = "mac" if host_platform() == "macos-arm64" else "linux"

SUITE = """
def test_operators(sme2_gate):
    sme2_gate.check_operators()

def test_latency(sme2_gate, sme2_benchmark):
    sme2_gate.check_latency()

def test_outputs(sme2_gate):
    sme2_gate.check_outputs()
"""


@pytest.fixture
def run(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Run:
    return toy_suite(pytester, monkeypatch, SUITE, DEVICE, "--sme2-budget=10s")


def test_the_failed_checks_of_a_test_are_told_together(run: Run, pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import pytest
        from pytest_sme2.results.case import Check
        from pytest_sme2.results.timing import Outcome

        FEW = Check("operators (on)", Outcome.REGRESSED, "More.", 3, 8, "count", limit=3)
        COST = Check("cost (on)", Outcome.REGRESSED, "Much more.", 4e6, 109e6, "count", limit=4e6,
                     where="`x.flip(-1)` at net.py:8")

        def test_two(sme2_gate):
            sme2_gate.check(FEW)
            sme2_gate.check(COST)

        def test_error(sme2_gate):
            sme2_gate.check(FEW)
            raise ValueError("of the test itself")

        def test_skip(sme2_gate):
            sme2_gate.check(FEW)
            pytest.skip("later")

        def test_expected(sme2_gate):
            sme2_gate.check(FEW)
            assert sme2_gate.take_checks() == [FEW]

        @pytest.mark.xfail(strict=True)
        def test_known(sme2_gate):
            sme2_gate.check(FEW)
        """
    )
    result = run("-q")
    result.assert_outcomes(passed=1, failed=3, xfailed=1)
    result.stdout.fnmatch_lines(
        [
            "27x more instructions: `x.flip(-1)` at net.py:8; 1 more check failed",
            "  cost (on): REGRESSED  4.000 Minst -> 109.000 Minst",
            "  operators (on): REGRESSED  3 -> 8",
            "E * ValueError: of the test itself",
            "*sme2 checks*",
            "operators (on) 3 -> 8",
            "toy_cnn-fp32: 27x more instructions: `x.flip(-1)` at net.py:8; 1 more check failed",
        ]
    )


def test_a_changed_model_is_measured_against_the_program_of_its_baseline(
    run: Run, pytester: pytest.Pytester
) -> None:
    """The stored latency is of another machine's speed; pairs with the old program find out."""
    result = run("--update-baselines=all")
    result.assert_outcomes(passed=3)
    result.stdout.fnmatch_lines(["baselines: 1 new, in*", "  new: toy_cnn-fp32"])
    (path,) = (pytester.path / "baselines").glob("*/toy_cnn-fp32.json")

    def quicken(document: dict[str, Any]) -> None:
        (session,) = document["sessions"]
        # Nothing is known of how fast or how busy the machine was: here others use it, too.
        session.pop("yardstick_ns")
        session.pop("interference", None)
        for values in session["medians_ns"].values():
            # Other work on the machine changes a time by far less.
            values[:] = [value / 50 for value in values]
        document["sessions"] = [{**session, "session": str(index)} for index in range(3)]

    edit_baseline(path, quicken)
    model = next((pytester.path / "models" / "toy_cnn").glob("*.py"))
    source = model.read_text("utf-8")
    slower = source.replace("self.expand(features)", "self.expand(self.again(features))").replace(
        "        self.pool =",
        "        self.again = nn.Sequential(*(nn.Conv2d(96, 96, 3, padding=1) for _ in range(9)))\n"
        "        self.pool =",
    )
    assert slower.count("self.again") == 2
    model.write_text(slower, "utf-8")
    result = run("-k", "latency")
    assert result.parseoutcomes()["failed"] == 1
    result.stdout.fnmatch_lines(
        [
            "*latency (o*) against the baseline's program: REGRESSED*",
            "*slower than the baseline's program*",
        ]
    )


def test_pytest_benchmark_gets_the_device_times_and_compares_two_runs(
    run: Run, pytester: pytest.Pytester
) -> None:
    options = ("-k", "latency", "--update-baselines=all")
    result = run("--benchmark-json=benchmark.json", "--benchmark-autosave", *options)
    result.assert_outcomes(passed=1)
    (entry,) = json.loads((pytester.path / "benchmark.json").read_text())["benchmarks"]
    (metrics,) = (pytester.path / "sme2-out").rglob("metrics.json")
    medians = json.loads(metrics.read_text("utf-8"))["measured"]["medians_ns"]
    arm = entry["extra_info"]["sme2"]
    assert sorted(entry["stats"]["data"]) == pytest.approx(
        sorted(value / 1e9 for value in medians[arm])
    )
    assert entry["params"] == {"model": "toy_cnn", "variant": "fp32", "threads": 1, "sme2": arm}
    again = run("--benchmark-compare", *options)
    again.assert_outcomes(passed=1)
    again.stderr.fnmatch_lines(["Comparing against benchmarks from: *0001_*"])
    again.stdout.fnmatch_lines_random(["*(0001_*", "*(NOW)*"])


@pytest.mark.parametrize("switch", ["--benchmark-disable", "-pno:benchmark"])
def test_without_pytest_benchmark_nothing_breaks(run: Run, switch: str) -> None:
    result = run(switch, "--update-baselines=all")
    result.assert_outcomes(passed=3)
