"""Minutes under load as a user meets them, on a pretended device with a virtual clock."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from pytest_sme2.results.run import Arm, Run, RunRequest
from pytest_sme2.runners.base import Runner
from pytest_sme2.session.run_directory import find_records, read_record
from pytest_sme2.targets.base import Thermal
from tests.support.pretended_device import PretendedDevice, pretend, program
from tests.support.toy_project import add_model

SUITE = """
def test_latency(sme2_gate):
    sme2_gate.check_latency()

def test_next():
    pass
"""
TOY = program("toy")
TIMES = {Arm.ON: 10e6, Arm.OFF: 20e6}


@dataclass
class Warming(PretendedDevice):
    """``cap`` is the part of its clock that it has left after so many seconds of load."""

    cap: Callable[[float], float] = lambda seconds: 1.0
    interrupted_after: float = 1e9
    critical_after: float = 1e9
    loaded_since: float = 0.0

    def cool_down(self) -> None:
        self.loaded_since = self.now

    @property
    def loaded(self) -> float:
        """Nothing else heats it."""
        return 0.0 if self.pauses else self.now - self.loaded_since

    def run(self, runner: Runner, request: RunRequest, folder: Path) -> Run:
        if self.loaded > self.interrupted_after:
            raise KeyboardInterrupt
        self.speed = 1 / self.cap(self.loaded)
        return super().run(runner, request, folder)

    def thermal(self) -> Thermal:
        cap = self.cap(self.loaded)
        return Thermal(30 + 20 * (1 - cap), 4 * cap, self.loaded > self.critical_after)


def steps(seconds: float) -> float:
    """A cap that falls a step each minute: 4.0, 3.6, 3.2 … GHz."""
    return 1 - 0.1 * min(4, seconds // 60)


@pytest.fixture
def run(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., pytest.RunResult]:
    add_model(pytester.path, "toy", "fp32")
    pytester.makeini("[pytest]\nsme2_models = models\nsme2_device = linux\n")
    pytester.makepyfile(SUITE)

    def start(device: Warming, *words: str) -> pytest.RunResult:
        pretend(monkeypatch, device, TOY)
        return pytester.runpytest_inprocess("--sme2-limit=max_sustained_loss=15%", *words)

    return start


@pytest.mark.parametrize(
    ("machine", "verdict", "words", "outcomes"),
    [
        ({"cap": steps}, "FAILED", "loss under load (on) 40.* %, limit 15 %", {"failed": 1}),
        (
            {"cap": lambda seconds: 1 - seconds / 3000},
            "PASS",
            "*of the speed is lost (30 to 32 °C,",
            {},
        ),
        ({}, "PASS", "*5.0 min under load, an inference takes 10.* ms in the*", {}),
        (
            {"cap": steps, "critical_after": 210},
            "FAILED",
            "*ended by critical heat*",
            {"failed": 1},
        ),
        ({"critical_after": 150}, "INCONCLUSIVE", "*ended by critical heat*", {"warnings": 1}),
    ],
)
def test_what_a_user_gets_after_five_minutes(
    run: Callable[..., pytest.RunResult],
    pytester: pytest.Pytester,
    machine: dict[str, object],
    verdict: str,
    words: str,
    outcomes: dict[str, int],
) -> None:
    device = Warming({TOY.sha256: TIMES}, seed=1, **machine)  # type: ignore[arg-type]
    result = run(device, "--sme2-budget=sustain=5m", "--sme2-report=r.html", "-v")
    result.assert_outcomes(passed=2 - outcomes.get("failed", 0), **outcomes)
    result.stdout.fnmatch_lines([f"*{words}"])
    assert device.pauses
    (folder,) = find_records(pytester.path / "sme2-out")
    record = read_record(folder)
    (check,) = (each for each in record.checks if each.metric == "loss under load (on)")
    assert str(check.verdict) == verdict
    found = record.measured.sustained
    assert found is not None
    assert (found.seconds >= 300) is ("critical_after" not in machine)
    page = (pytester.path / "r.html").read_text("utf-8")
    data = page.partition('application/json">')[2].partition("</script>")[0]
    (case,) = json.loads(data)["cases"]
    assert [*case["sustained"]["panels"]] == ["milliseconds", "GHz at most", "°C"]
    assert len(case["sustained"]["minutes"]) == len(found.moments) >= 70


def test_ctrl_c_keeps_what_was_measured_and_ends_the_run(
    run: Callable[..., pytest.RunResult], pytester: pytest.Pytester
) -> None:
    device = Warming({TOY.sha256: TIMES}, seed=1, interrupted_after=120)
    result = run(device, "--sme2-budget=sustain=5m")
    assert result.ret == pytest.ExitCode.INTERRUPTED
    result.assert_outcomes(passed=1, warnings=1)
    result.stdout.fnmatch_lines(["*2.? min under load (ended by Ctrl-C)*"])
    (folder,) = find_records(pytester.path / "sme2-out")
    assert len(read_record(folder).measured.sustained.moments) >= 50


def test_a_limit_without_a_load_is_not_met_silently(run: Callable[..., pytest.RunResult]) -> None:
    result = run(Warming({TOY.sha256: TIMES}, seed=1), "-rs")
    result.stdout.fnmatch_lines(["*not measured: loss under load (on): Say for how long*"])
