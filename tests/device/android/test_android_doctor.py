"""``sme2 doctor --device android``: the first thing to type with a phone in hand."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from pytest_sme2.cli.main import main
from pytest_sme2.fake_phone.lab import FakeLab, FakePhone
from tests.support.phones import leftovers, settings_of


def doctor(phone: FakePhone, out: Path) -> int:
    place = ["--phone", f"adb-server={phone.lab.address}", "--serial", phone.serial]
    return main(["doctor", "--device", "android", *place, "--out", str(out)])


def test_a_phone_is_tried_out_and_left_as_it_was(
    sme2_lab: FakeLab, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    phone = sme2_lab.add(max_frequencies_khz=(2_000_000, 3_600_000))
    before = settings_of(phone)
    out = tmp_path / "phone.json"
    assert doctor(phone, out) == 0
    found = json.loads(out.read_text())["machine"]
    facts = found["machine"]
    assert facts["Android"].startswith("16, ")
    assert re.fullmatch(r"\d+ bytes|unknown", facts["page size"])
    assert facts["cores"] == "1 at 3.60 GHz, 0 at 2.00 GHz"
    assert facts["heat"] == "thermal status 0, 30.0 °C"
    assert facts["stay_on_while_plugged_in"] == "15"
    assert facts["kernel"]
    assert list(found["arms"]) == ["on", "off"]
    on, off = found["arms"]["on"], found["arms"]["off"]
    assert on["vector_bits"] == 512
    assert (on["sme2_operators"], on["matrix_operators"], off["sme2_operators"]) == (10, 10, 0)
    assert on["median_us"] is off["median_us"] is None
    assert found["proven"] is True
    assert found["problems"] == []
    printed = capsys.readouterr().out
    assert "--device=android, tried out" in printed
    assert "no problems found" in printed
    assert "median us" not in printed, "its time means nothing"
    assert settings_of(phone) == before
    assert leftovers(phone) == []


def test_a_phone_that_cannot_be_reached_is_named(
    sme2_lab: FakeLab, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--phone", f"adb-server={sme2_lab.address}", "--serial", "nobody"]
    words += ["--out", str(tmp_path / "x")]
    assert main(["doctor", "--device", "android", *words]) == 1
    assert "No device has the serial 'nobody'" in capsys.readouterr().out
    assert not (tmp_path / "x").exists()


@pytest.mark.nightly
def test_the_fake_phone_is_tried_out_too(
    sme2_lab: FakeLab, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "phone.json"
    words = ["doctor", "--device", "android", "--phone=fake", "--out", str(out)]
    assert main(words) == 0, capsys.readouterr().out
    assert json.loads(out.read_text())["machine"]["proven"] is True
