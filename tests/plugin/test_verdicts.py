"""Every verdict as a user meets it: the outcome of the test, the exit code, the words.

Real exports and real processes on this machine. The baseline is made by ``--update-baselines``
and then edited, so that the same program looks slower, faster, or different from what it was.
"""

import json
from pathlib import Path

import pytest

from pytest_sme2.system.platforms import host_platform
from tests.support.needs import needs_export
from tests.support.toy_project import Run, toy_suite

pytestmark = needs_export

DEVICE = "mac" if host_platform() == "macos-arm64" else "linux"

SUITE = """
def test_operators(sme2_gate):
    sme2_gate.check_operators()

def test_latency(sme2_gate):
    sme2_gate.check_latency()

def test_outputs(sme2_gate):
    sme2_gate.check_outputs()
"""


@pytest.fixture
def run(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Run:
    return toy_suite(pytester, monkeypatch, SUITE, DEVICE, "--sme2-budget=10s")


@pytest.fixture(scope="module")
def made() -> dict[str, str]:
    """The baseline once it was made: its place and its text."""
    return {}


@pytest.fixture
def baseline(run: Run, pytester: pytest.Pytester, made: dict[str, str]) -> Path:
    if not made:
        result = run("--update-baselines=all")
        result.assert_outcomes(passed=3)
        result.stdout.fnmatch_lines(["baselines: 1 new, in*", "  new: toy_cnn-fp32"])
        (path,) = (pytester.path / "baselines").glob("*/toy_cnn-fp32.json")
        made[str(path.relative_to(pytester.path))] = path.read_text("utf-8")
    ((place, text),) = made.items()
    path = pytester.path / place
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, "utf-8")
    return path


# Tests share the machine with others: say that it was quiet, so that verdicts stand.
QUIET = """
import pytest

from pytest_sme2.session import case_result

@pytest.fixture(autouse=True)
def quiet(monkeypatch):
    monkeypatch.setattr(case_result, "interference", lambda run: 0.0)
"""
NOBODYS_PROGRAM = "0" * 64
# What the baseline's times are multiplied by. Other work on the machine changes a time by far less.
MUCH_FASTER = 0.02


def scale_latency(path: Path, factor: float, program: str | None = NOBODYS_PROGRAM) -> None:
    """Three sessions, so that it is not provisional, of ``factor`` times the measured medians.

    They say nothing of how fast or how busy the machine was: here others use it, now more and now
    less. They are of another program, which nobody has any more (None: of the one that was
    measured).
    """
    document = json.loads(path.read_text("utf-8"))
    (session,) = document["sessions"]
    session.pop("yardstick_ns")
    session.pop("interference", None)
    session["program"] = program or session["program"]
    for values in session["medians_ns"].values():
        values[:] = [value * factor for value in values]
    document["sessions"] = [
        {**session, "session": f"{session['session']}-{index}"} for index in range(3)
    ]
    path.write_text(json.dumps(document), "utf-8")


def test_the_failed_checks_of_a_test_are_told_together(run: Run, pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import pytest
        from pytest_sme2.results import Check, Outcome

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


def _warnings(result: pytest.RunResult) -> int:
    # A busy machine may leave a latency INCONCLUSIVE, which warns and does not fail.
    return result.parseoutcomes().get("warnings", result.parseoutcomes().get("warning", 0))


def test_a_changed_model_is_measured_against_the_program_of_its_baseline(
    run: Run, baseline: Path, pytester: pytest.Pytester
) -> None:
    """The stored latency is of another machine's speed; pairs with the old program find out."""
    scale_latency(baseline, MUCH_FASTER, program=None)
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
    result.assert_outcomes(failed=1, warnings=_warnings(result))
    result.stdout.fnmatch_lines(
        [
            "*latency against the baseline's program (o*): REGRESSED*",
            "*slower than the baseline's program*",
        ]
    )


def test_a_run_directory_that_cannot_be_written_is_named(
    run: Run, pytester: pytest.Pytester
) -> None:
    record = pytester.path / "sme2-out" / "toy_cnn-fp32" / "runs" / DEVICE / "metrics.json"
    record.mkdir(parents=True)
    result = run("-k", "operators", "--update-baselines=all")
    assert result.ret == 125
    result.stdout.fnmatch_lines(["*metrics.json: cannot be written: *--sme2-out*"])
    result.stdout.no_fnmatch_line("*Traceback*")
    result.stdout.no_fnmatch_line("*OSError*")
