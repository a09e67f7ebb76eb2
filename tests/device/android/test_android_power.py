"""A phone's settings: changed exactly as told, noted first, and put back whatever happens."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_sme2.cli.main import main
from pytest_sme2.errors import Sme2Warning, TargetError
from pytest_sme2.fake_phone.lab import FakeLab, FakePhone
from pytest_sme2.targets.phone.power import NOTE
from tests.support.phones import MakeTarget, StartRun, leftovers, settings_of

NOTE_FILE = NOTE.lstrip("/")

AWAKE = "stay_on_while_plugged_in"


@pytest.mark.parametrize("value", ["0", None, "3"])
def test_the_phone_is_kept_awake_and_nothing_else_is_changed(
    lab: FakeLab, make_target: MakeTarget, value: str | None
) -> None:
    phone = lab.add(settings={AWAKE: value})
    target = make_target(phone)
    commands = phone.state("journal").splitlines()
    assert commands[-1] == "svc power stayon true"
    # What svc could not undo is put, to see whether that can be.
    assert commands[:-1] == (["settings put global stay_on_while_plugged_in 3"] * (value == "3"))
    assert phone.setting(AWAKE) == "15"
    target.restore()
    assert phone.setting(AWAKE) == value
    assert leftovers(phone) == []


def test_the_note_is_there_before_the_first_change(
    phone: FakePhone, make_target: MakeTarget
) -> None:
    before = settings_of(phone)
    text = phone.read("system/bin/svc")
    phone.write("system/bin/svc", text.replace("case", f"cp {NOTE} {NOTE}.seen; case", 1))
    make_target(phone)
    assert json.loads(phone.read(f"{NOTE_FILE}.seen"))[AWAKE] == before[AWAKE]


def test_restoring_twice_or_without_preparing_is_fine(
    phone: FakePhone, make_target: MakeTarget
) -> None:
    before = settings_of(phone)
    make_target(phone, prepare=False).restore()
    target = make_target(phone)
    target.restore()
    target.restore()
    assert settings_of(phone) == before


PROGRAM = """
import signal, sys, time
# A test run in the background may have had it ignored.
signal.signal(signal.SIGINT, signal.default_int_handler)
from pytest_sme2.targets.phone.adb import AdbDevice
from pytest_sme2.targets.phone.adb import open_server
from pytest_sme2.targets.phone.target import AndroidTarget
address, serial, ending = sys.argv[1:]
target = AndroidTarget(AdbDevice(open_server(address), serial))
target.prepare()
print("prepared", flush=True)
if ending == "forgets":
    sys.exit(0)
try:
    time.sleep(600)
finally:
    if ending == "restores":
        target.restore()
"""


def start(lab: FakeLab, phone: FakePhone, ending: str) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, lab.address, phone.serial, ending],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdout.readline() == "prepared\n"
    return process


@pytest.mark.parametrize("ending", ["restores", "leaves it to the interpreter", "forgets"])
def test_a_process_that_ends_puts_the_settings_back(
    lab: FakeLab, phone: FakePhone, ending: str
) -> None:
    before = settings_of(phone)
    with start(lab, phone, ending) as process:
        if ending != "forgets":
            assert settings_of(phone) != before
            process.send_signal(signal.SIGINT)
    assert settings_of(phone) == before
    assert leftovers(phone) == []


def test_after_a_kill_the_next_connect_puts_them_back(
    lab: FakeLab, phone: FakePhone, make_target: MakeTarget
) -> None:
    before = settings_of(phone)
    with start(lab, phone, "restores") as process:
        process.send_signal(signal.SIGKILL)
    assert settings_of(phone) != before
    assert Path(NOTE).name in phone.files()
    told: list[str] = []
    target = make_target(phone, progress=told.append)
    assert any("restored settings" in line for line in told)
    target.restore()
    assert settings_of(phone) == before
    assert leftovers(phone) == []


def test_after_a_lost_connection_the_next_connect_puts_them_back(
    phone: FakePhone, make_target: MakeTarget
) -> None:
    before = settings_of(phone)
    target = make_target(phone)
    target.patience_seconds = 0.2
    phone.kill_adbd()
    with pytest.raises(TargetError):
        target.restore()
    assert settings_of(phone) != before
    phone.start_adbd()
    make_target(phone).restore()
    assert settings_of(phone) == before


def test_a_note_that_cannot_be_read_is_not_thrown_away(
    phone: FakePhone, make_target: MakeTarget
) -> None:
    phone.write(NOTE_FILE, "{half a no")
    with pytest.raises(TargetError, match=r"cannot be read.*restore them by hand, and remove it"):
        make_target(phone)
    assert phone.read(NOTE_FILE) == "{half a no"
    assert phone.state("journal") == ""


def test_manifest_has_battery_screen_governor_and_heat(
    phone: FakePhone, make_target: MakeTarget
) -> None:
    manifest = make_target(phone).state()
    assert manifest["battery_percent"] == "85"
    assert manifest["charging"] == "USB"
    assert manifest["battery_celsius"] == "27.1"
    assert manifest["screen"] == "on"
    assert manifest["governor"] == "schedutil"
    assert manifest["heat"] == "thermal status 0, 30.0 °C"
    assert manifest[AWAKE] == "15"
    assert manifest["serial"] == phone.serial


def forbids_svc(lab: FakeLab) -> FakePhone:
    phone = lab.add()
    text = phone.read("system/bin/svc")
    phone.write("system/bin/svc", text.replace("case", "exit 1; case", 1))
    return phone


def reports_no_settings(lab: FakeLab) -> FakePhone:
    phone = lab.add()
    phone.write("system/bin/settings", "#!/system/bin/sh\necho no >&2\nexit 1\n")
    return phone


def has_what_only_settings_could_put_back(lab: FakeLab) -> FakePhone:
    return lab.add(settings={AWAKE: "3"}, settings_refused=True)


@pytest.mark.parametrize(
    "make", [forbids_svc, reports_no_settings, has_what_only_settings_could_put_back]
)
def test_a_phone_that_cannot_be_kept_awake_is_measured_as_it_is(
    lab: FakeLab, make_target: MakeTarget, make: Callable[[FakeLab], FakePhone]
) -> None:
    phone = make(lab)
    before = settings_of(phone)
    target = make_target(phone)
    assert target.events == ["could not be kept awake: its shell may not change settings"]
    assert target.state()["events"] == target.events[0]
    target.restore()
    assert settings_of(phone) == before
    assert leftovers(phone) == []


@pytest.mark.parametrize("value", ["0", None, "1", "2", "4", "15"])
def test_a_phone_that_refuses_settings_is_restored_by_what_changed_it(
    lab: FakeLab, make_target: MakeTarget, value: str | None
) -> None:
    phone = lab.add(settings={AWAKE: value}, settings_refused=True)
    for _ in range(2):  # The first run must not keep the second from the phone.
        target = make_target(phone)
        assert phone.setting(AWAKE) == "15"
        target.restore()
        assert target.events == []
        # What it had not is off now.
        assert phone.setting(AWAKE) == (value or "0")
        assert leftovers(phone) == []


def test_a_phone_that_begins_to_refuse_is_told_and_not_locked_out(
    lab: FakeLab, make_target: MakeTarget
) -> None:
    phone = lab.add(settings={AWAKE: "3"})
    target = make_target(phone)
    phone.write("data/system/fake/settings_refused", "")
    with pytest.warns(Sme2Warning, match="Set it on the phone by hand"):
        target.restore()
    assert target.events == ["did not take back stay_on_while_plugged_in: it was 3"]
    assert leftovers(phone) == []
    make_target(phone).restore()


def test_a_note_on_a_phone_that_refuses_is_cleaned(
    lab: FakeLab, phone: FakePhone, capsys: pytest.CaptureFixture[str]
) -> None:
    note = {"version": 1, AWAKE: "3"}
    phone.write(NOTE_FILE, json.dumps(note))
    phone.write("data/system/fake/settings_refused", "")
    where = ["--serial", phone.serial, "--phone", f"adb-server={lab.address}"]
    assert main(["clean", "--device", "android", *where]) == 0
    assert "it did not take back stay_on_while_plugged_in: it was 3" in capsys.readouterr().out
    assert leftovers(phone) == []


WAKEFULNESS = "data/system/fake/wakefulness"


def test_a_screen_that_goes_off_spoils_the_run_and_is_switched_on_again(
    phone: FakePhone, make_target: MakeTarget, start: StartRun
) -> None:
    target = make_target(phone)
    assert dict(target.fingerprint().facts)["screen"] == "on"
    assert start(target).spoiled == ""
    phone.write(WAKEFULNESS, "Dozing\n")
    with pytest.warns(Sme2Warning, match="the screen was off, and on at the start; it was switch"):
        assert start(target).spoiled == "the screen was off, and on at the start"
    assert start(target).spoiled == ""


def test_a_screen_that_was_off_is_on_while_it_is_measured(
    lab: FakeLab, make_target: MakeTarget
) -> None:
    phone = lab.add(asleep=True)
    before = settings_of(phone)
    target = make_target(phone)
    assert phone.state("wakefulness") == "Awake"
    assert dict(target.fingerprint().facts)["screen"] == "on"
    target.restore()
    assert (phone.state("wakefulness"), settings_of(phone)) == ("Asleep", before)


def test_a_phone_on_its_battery_is_told(lab: FakeLab, make_target: MakeTarget) -> None:
    phone = lab.add()
    battery = phone.read("data/system/fake/battery")
    phone.write("data/system/fake/battery", battery.replace("powered: true", "powered: false"))
    with pytest.warns(Sme2Warning, match="is not plugged in: its screen goes off after a while"):
        make_target(phone)


STATUS = "data/system/fake/thermal_status"


def test_a_phone_that_stays_warm_is_measured_with_a_warning(
    phone: FakePhone, make_target: MakeTarget
) -> None:
    phone.write(STATUS, "2\n")
    said = "was still warm after a wait of 0.2 s (thermal status 2, 30.0 °C)"
    with pytest.warns(Sme2Warning, match=re.escape(said)):
        target = make_target(phone, cool_seconds=0.2)
    assert target.state()["events"] == said
    # It is not waited for, and not warned about, before every block.
    target.cool_seconds = 600
    target.cool_down()
    phone.write(STATUS, "0\n")
    target.cool_down()
    phone.write(STATUS, "2\n")
    target.cool_seconds = 0.2
    with pytest.warns(Sme2Warning):
        target.cool_down()
    assert target.state()["events"] == f"{said}; {said}"
