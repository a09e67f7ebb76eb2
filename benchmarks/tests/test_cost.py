"""The parts of the cost benchmarks that need no emulator."""

from __future__ import annotations

import pytest

from benchmarks import cost, cost_and_time
from benchmarks.cost_and_time import NamedCpu, Operator, agreement
from pytest_sme2.results import Arm


def test_what_counting_takes_is_the_median_of_its_rounds() -> None:
    row = cost._row([(2.0, 3.0), (2.2, 3.2), (2.0, 9.0)])
    assert row == {"uncounted_s": 2.0, "counted_s": 3.2, "ratio": 1.6}
    whole = cost._counting_claims({"a": row, "b": cost._row([(8.0, 8.8)])})[-1]
    assert whole.value == pytest.approx(1.2)


def test_an_unknown_part_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cost.main(["everything"])
    assert "Choose from: same, layers, counting, suite" in capsys.readouterr().err


def test_cost_and_time_are_compared_operator_by_operator() -> None:
    found = agreement(
        [
            Operator("Convolution (NHWC, F32) IGEMM", 9_000, 800),
            Operator("Convolution (NHWC, F32) DWConv", 500, 60),
            Operator("Add (ND)", 500, 140),
            Operator("Copy (NC)", 100, 10),
        ]
    )
    assert found.operators == 4
    assert found.rank_correlation == pytest.approx(0.9486832980505139)
    assert found.correlation > 0.99
    assert list(found.shares) == ["Convolution", "Add", "Copy"]
    work, time = found.shares["Convolution"]
    assert work == pytest.approx(9_500 / 10_100)
    assert time == pytest.approx(860 / 1_010)


def test_a_machine_that_is_not_arm_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(cost_and_time, "host_platform", lambda: "linux-x86_64")
    assert cost_and_time.main([]) == 2
    assert "(linux-x86_64) does not execute Arm instructions" in capsys.readouterr().err


def test_a_cpu_of_another_name_has_no_sme2() -> None:
    assert NamedCpu("neoverse-n1").model(Arm.OFF) == "neoverse-n1"
