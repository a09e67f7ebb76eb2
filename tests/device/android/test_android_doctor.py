"""``sme2 doctor --device android``: the first thing to type with a phone in hand."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from pytest_sme2.cli.main import main
from pytest_sme2.errors import Sme2Warning
from pytest_sme2.fake_phone.lab import EMULATOR_ON_PHONE, FakeLab, FakePhone
from pytest_sme2.targets.phone.target import LAUNCHER_PROPERTY, phone_facts
from tests.support.phones import MakeTarget, leftovers, settings_of


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
    assert facts["SME vector length"] == "512 bits"
    assert re.fullmatch(r"\d+ bytes|unknown", facts["page size"])
    assert "; 1 at 3600 MHz (can be pinned); 0 at 2000 MHz (can be pinned)" in facts["cores"]
    assert facts["heat"] == "thermal status 0, 30.0 °C"
    assert facts["power settings"] == "can be read, changed and restored"
    assert facts["fixed-performance mode"] == "can be set"
    assert facts["stays awake"] == "true"
    assert facts["kernel"]
    assert list(found["arms"]) == ["on", "off"]
    on, off = found["arms"]["on"], found["arms"]["off"]
    assert (on["sme2_operators"], on["matrix_operators"], off["sme2_operators"]) == (10, 10, 0)
    assert on["median_us"] is off["median_us"] is None
    assert found["proven"] is True
    assert found["problems"] == []
    printed = capsys.readouterr().out
    assert "--device=android, tried out" in printed
    assert "no problems found" in printed
    assert "median us" not in printed, "its time means nothing"
    assert settings_of(phone) == before
    assert phone.state("fixed_performance") == "false"
    assert leftovers(phone) == []


def test_a_phone_that_refuses_settings_is_tried_out_and_not_locked_out(
    lab: FakeLab, make_target: MakeTarget
) -> None:
    phone = lab.add(settings_refused=True)
    before = settings_of(phone)
    target = make_target(phone)
    assert "WRITE_SECURE_SETTINGS" in phone_facts(target)["power settings"]
    target.restore()
    assert settings_of(phone) == before
    assert leftovers(phone) == []
    make_target(phone).restore()


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


def test_a_default_below_what_the_chip_can_do_is_told(
    sme2_lab: FakeLab, make_target: MakeTarget
) -> None:
    # This CPU has every length, and Linux's default is 256 bits.
    properties = {LAUNCHER_PROPERTY: f"{EMULATOR_ON_PHONE} -cpu max"}
    phone = sme2_lab.add(properties=properties)
    said = "runs with streaming vectors of 256 bits, and its chip can do 2048"
    with pytest.warns(Sme2Warning, match=said):
        target = make_target(phone)
    assert dict(target.fingerprint().facts)["sme_vector_bits"] == "256"
    assert target.state()["sme_vector_bits"] == "256 of 2048"
    assert said in target.state()["events"]


def test_a_program_that_cannot_run_leaves_it_unknown(
    sme2_lab: FakeLab, make_target: MakeTarget
) -> None:
    properties = {LAUNCHER_PROPERTY: "/no/such/emulator"}
    target = make_target(sme2_lab.add(properties=properties))
    assert dict(target.fingerprint().facts)["sme_vector_bits"] == "unknown"
