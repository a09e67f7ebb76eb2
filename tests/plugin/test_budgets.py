"""A budget of an app as its team meets it: judged, part of the contract, and measured finely."""

from __future__ import annotations

import json

import pytest

from pytest_sme2.results import Arm
from tests.support.pretended_device import PretendedDevice, pretend, program
from tests.support.toy_project import add_model

SUITE = """
def test_latency(sme2_gate):
    sme2_gate.check_latency()
"""
TOY = program("toy")
# With SME2 an inference takes 100 ms, so a process makes few of them unless asked for more.
TIMES = {Arm.ON: 100e6, Arm.OFF: 200e6}
TOLD = """
max_latency = {any = "103 ms", 4 = "1 ms"}
[variant.fp32]
max_p95 = "105 ms"
[variant.fp16]
max_latency = "1 ms"
"""


def test_a_budget_is_judged_and_stays(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_model(pytester.path, "toy", "fp32")
    pytester.makeini("[pytest]\nsme2_models = models\nsme2_device = linux\n")
    pytester.makepyfile(SUITE)
    (pytester.path / "baselines").mkdir()
    (pytester.path / "baselines" / "limits.toml").write_text(TOLD, "utf-8")
    device = PretendedDevice({TOY.sha256: TIMES}, seed=1)

    def run(*words: str) -> pytest.RunResult:
        pretend(monkeypatch, device, TOY)
        return pytester.runpytest_inprocess("--sme2-strict", "--sme2-budget=2m", *words)

    run("--update-baselines").assert_outcomes(passed=1)
    (path,) = pytester.path.glob("baselines/*/toy-fp32.json")
    accepted = json.loads(path.read_text("utf-8"))["accepted"]
    assert {"latency budget (on)", "p95 budget (on)"} <= {*accepted["figures"]["1"]}
    assert accepted["limits"]["max_latency"] == {"any": 0.103, "4": 0.001}
    assert accepted["limits"]["max_p95"] == {"any": 0.105}
    assert run().ret == 0
    # A budget that was not accepted is told, and so is one that was dropped.
    for given, words in (
        ("max_latency.any=99ms", "latency budget (on) 100.* ms, limit 99.000 ms"),
        ("max_p95=99500us", "p95 budget (on) 101.* ms, limit 99.500 ms"),
    ):
        result = run(f"--sme2-limit={given}")
        result.assert_outcomes(failed=1)
        result.stdout.fnmatch_lines([f"*{words}"])
