"""``sme2 doctor --device mac``, the first thing to type on a Mac, on a Mac that is pretended."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pytest_sme2.cli.commands import doctor as machine_check
from pytest_sme2.cli.main import main
from tests.device.mac.rig import mac, other_answers
from tests.support.pretended_mac import M4, PretendedMac


def doctor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], **rig: Any
) -> tuple[dict[str, Any], str]:
    runner = mac().runner(tmp_path / "runner", **rig)
    monkeypatch.setattr("pytest_sme2.runners.sme2.wheel_runner", lambda *_, **__: runner)
    monkeypatch.setattr(machine_check, "RUNS", 1)
    monkeypatch.setattr(machine_check, "WARMUP", 0)
    out = tmp_path / "found.json"
    assert main(["doctor", "--device", "mac", "--out", str(out)]) == 0
    return json.loads(out.read_text())["machine"], capsys.readouterr().out


def test_a_good_mac_has_nothing_against_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    PretendedMac(tmp_path, monkeypatch)
    found, printed = doctor(tmp_path, monkeypatch, capsys)
    assert found["problems"] == []
    assert found["machine"]["cpu"] == "Apple M4"
    assert found["machine"]["os"] == "macOS 26.1"
    assert found["machine"]["SME vector length"] == "512 bits"
    on, off = found["arms"]["on"], found["arms"]["off"]
    assert (on["sme2_seen"], off["sme2_seen"]) == (True, False)
    assert on["sme2_operators"] == on["matrix_operators"] == 10
    assert off["sme2_operators"] == 0
    assert on["performance_share"] == 1.0
    assert "      evidence: 10 of 10 matrix operators ran on SME2 kernels" in printed
    for line in (
        "      machine",
        "        cpu: Apple M4",
        "        on",
        "          sme2 operators: 10",
        "  ok  no problems found",
    ):
        assert line in printed.splitlines()


def test_what_is_wrong_with_a_mac_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """An old chip on battery, whose work goes to efficiency cores."""
    without = {"hw.optional.arm.FEAT_SME2": "0", "machdep.cpu.brand_string": "Apple M2"}
    pretended = PretendedMac(tmp_path, monkeypatch)
    pretended.sysctl({**M4, **without})
    pretended.power("Battery Power", low=1)
    gone = dict.fromkeys(("hw.optional.arm.FEAT_SME", "hw.optional.arm.FEAT_SME2"))
    answers = other_answers(tmp_path / "m2.txt", gone)
    found, _ = doctor(tmp_path, monkeypatch, capsys, answers=answers, efficiency_percent=40)
    assert list(found["arms"]) == ["off"]
    chip, cores, low, battery = found["problems"]
    assert "this Mac's chip (Apple M2) has no SME2" in chip
    assert "With SME2 off, 40% of the CPU time was on efficiency cores" in cores
    assert "Low power mode is on" in low
    assert "It runs on battery" in battery
