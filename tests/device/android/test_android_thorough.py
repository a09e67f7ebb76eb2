"""``sme2 doctor --device android --thorough``: an hour on a borrowed phone, in minutes."""

from __future__ import annotations

import itertools
import json
import shutil
import threading
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

from pytest_sme2.cli.main import main
from pytest_sme2.fake_phone.lab import FakeLab, FakePhone, fake_target
from pytest_sme2.results.run import PAIR
from pytest_sme2.session import thorough
from pytest_sme2.session.device import HeldDevice
from pytest_sme2.session.settings import Settings
from pytest_sme2.session.thorough import Trial
from pytest_sme2.timing.processes import selfcheck_artifact
from tests.support import ETDUMPS
from tests.support.phone_profiles import CAP
from tests.support.phones import leftovers, settings_of
from tests.support.sleep_runner import make_sleep_runner

# 6 ms with SME2, and 2.5 times as long without; the recorded ETDump of each.
TRACE = '[ -z "$etdump" ] || cp "$arm.etdump" "$etdump"; etdump='
EACH = '$([ "$arm" = on ] && echo 6000000 || echo 15000000)'


@pytest.fixture
def phone(lab: FakeLab) -> FakePhone:
    return lab.add(max_frequencies_khz=(3_600_000, 3_600_000))


def test_every_step_comes_and_nothing_stays(
    phone: FakePhone, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cable is pulled when that is asked for, and once more in the middle. A cap falls where a
    baseline is stored and compared: as on stock phones, it stays above that between two loads.
    """
    monkeypatch.setattr(thorough, "HAND_SECONDS", 0.1)
    monkeypatch.setattr(thorough, "LOAD_SECONDS", 3.0)
    before, told = settings_of(phone), list[str]()

    def tell(line: str) -> None:
        told.append(line)
        for cap, step in enumerate(("minutes under load", "store and compare")):
            if line.startswith(f"{step}: expecting"):
                phone.write(CAP.format(core=0), f"{(3_600_000, 2_438_400)[cap]}\n")
        if line.startswith(("pull the cable", "by hand: expecting")):
            phone.kill_adbd()
            threading.Timer(0.3, phone.start_adbd).start()

    runner = make_sleep_runner(tmp_path / "runner", TRACE, EACH)
    for arm in PAIR:
        shutil.copy(ETDUMPS / f"cpp_toy_fp32_{arm}.etdump", runner.folder / f"{arm}.etdump")
    settings = Settings(device="android", budget_seconds=1.0)
    bench = HeldDevice(settings, told.append)
    # Of a version whose kernels' names are known; its times are said to be a phone's.
    bench.__dict__["runner"] = replace(runner, executorch="1.5.1")
    bench._target = target = fake_target(phone, emulated=False)
    assert bench.prepared is target
    # Time goes on by looking at the clock: a busy machine gets as far.
    bench.clock = itertools.count(0, 0.05).__next__
    steps = Trial(bench, target, selfcheck_artifact(), tmp_path / "out", tell, True).run()
    assert {step.what: step.found for step in steps if not step.came} == {}
    found = {step.what: step.found for step in steps}
    assert found["the same twice"] == "2.500 and 2.500, 0.0% apart"
    assert found["by hand"] == "2.500 and 2.500, 0.0% apart"
    assert found["store and compare"] == ("latency (on): PASS; latency (off): PASS; speedup: PASS")
    assert "highest clock 3.60 to 3.60 GHz" in found["minutes under load"]
    assert "a pair was repeated" in found["pulled cable"]
    assert len([event for event in target.events if "was away" in event]) == 2
    assert [step for step in steps if str(step) not in told] == []
    assert settings_of(phone) == before
    assert leftovers(phone) == []


def test_all_of_it_is_one_archive(
    sme2_lab: FakeLab,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """On a phone whose times mean nothing, what needs them is said not to have been tried."""
    monkeypatch.setattr(thorough, "PULL_SECONDS", 0.0)
    phone, out = sme2_lab.add(), tmp_path / "phone.json"
    place = ["--phone", f"adb-server={phone.lab.address}", "--serial", phone.serial]
    words = ["doctor", "--device=android", "--thorough", *place, "--out", str(out)]
    assert main(words) == 0, capsys.readouterr().out
    steps = json.loads(out.read_text())["machine"]["steps"]
    came = {step["what"]: step["came"] for step in steps}
    tried = ("self-check", "caps under load", "clean-up")
    assert came == {what: True if what in tried else None for what in came}
    printed = capsys.readouterr().out
    assert "  --  hot: expected the same ratio within 2%; android cannot measure time" in printed
    assert f"All of this is in {out.with_suffix('.zip')}. Please send it in" in printed
    with zipfile.ZipFile(out.with_suffix(".zip")) as archive:
        names = archive.namelist()
        assert json.loads(archive.read("phone.json"))["machine"]["steps"] == steps
    assert any(name.endswith(".log") for name in names)
    assert leftovers(phone) == []


def test_other_devices_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--thorough", "--device=emulated"]) == 2
    assert "--thorough is for phones" in capsys.readouterr().err
