from __future__ import annotations

import platform
import sys
from pathlib import Path

import pytest

from pytest_sme2.errors import TargetError
from pytest_sme2.results import Run
from pytest_sme2.session import device
from pytest_sme2.session.device import choose_target
from pytest_sme2.session.settings import Settings
from pytest_sme2.system import qemu
from pytest_sme2.targets import local
from pytest_sme2.targets.local import MacTarget, this_machine
from tests.support.pretended_mac import M4, PretendedMac
from tests.support.pretended_machine import make_run


@pytest.fixture
def pretended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PretendedMac:
    return PretendedMac(tmp_path, monkeypatch)


def facts() -> dict[str, str]:
    return dict(this_machine().fingerprint().facts)


def test_a_mac_is_asked_through_sysctl(pretended: PretendedMac) -> None:
    target = this_machine()
    assert isinstance(target, MacTarget)
    assert target.name == "mac"
    assert target.capabilities().sme2
    assert facts() | {"cores": "?"} == {
        "cores": "?",
        "cpu": "Apple M4",
        "model": "Mac16,10",
        "os": "macOS 26",
        "platform": "macos-arm64",
        "power_mode": "normal",
        "sme2": "yes",
    }


def test_one_mac_has_one_fingerprint_whatever_python_says(
    pretended: PretendedMac, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On macOS 26 a Python that was built for an older one answers 16."""
    keys = set()
    for version in ("16.0", "26.0"):
        monkeypatch.setattr(platform, "mac_ver", lambda v=version: (v, ("", "", ""), "arm64"))
        keys.add(this_machine().fingerprint().key)
    assert len(keys) == 1


def test_low_power_mode_is_another_machine_and_a_battery_is_not(pretended: PretendedMac) -> None:
    normal = this_machine().fingerprint()
    pretended.power("Battery Power")
    assert this_machine().fingerprint() == normal
    pretended.power(low=1)
    assert facts()["power_mode"] == "low"


def test_state_and_conditions_tell_power_and_heat(pretended: PretendedMac) -> None:
    pretended.power("Battery Power", low=1)
    pretended.pressure(2)
    target = MacTarget()
    expected = {"power": "battery", "power mode": "low", "thermal pressure": "heavy"}
    assert target.state() == {"macOS": "26.1", **expected}
    assert expected.items() <= target.conditions().items()


def test_a_chip_without_sme2_is_named(pretended: PretendedMac) -> None:
    pretended.sysctl({**M4, "hw.optional.arm.FEAT_SME2": "0", "machdep.cpu.brand_string": "M2"})
    assert this_machine().capabilities().reason == (
        "this Mac's chip (M2) has no SME2; the M4 and newer have it."
    )


def test_a_virtual_mac_is_called_one(pretended: PretendedMac) -> None:
    pretended.sysctl({**M4, "hw.optional.arm.FEAT_SME2": "0", "kern.hv_vmm_present": "1"})
    assert "is a virtual machine that has no SME2" in this_machine().capabilities().reason


def test_auto_on_a_mac_without_sme2_sends_nobody_to_provision(
    pretended: PretendedMac, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pretended.sysctl({**M4, "hw.optional.arm.FEAT_SME2": "0"})
    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.setattr(device, "find_qemu", lambda _: qemu.find_qemu(cache=tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    reason = choose_target(Settings(device="auto")).capabilities().reason
    assert "user mode does not exist on macOS" in reason
    assert "sme2 provision" not in reason


def test_it_is_kept_awake_until_it_is_restored(pretended: PretendedMac) -> None:
    target = MacTarget()
    target.prepare()
    target.prepare()
    awake = target._awake
    assert awake is not None
    assert awake.poll() is None
    target.restore()
    target.restore()
    assert awake.poll() is not None


def test_heat_is_waited_for(pretended: PretendedMac) -> None:
    pretended.pressure(2, 1, 0)
    slept: list[float] = []
    MacTarget(sleep=slept.append).cool_down()
    assert len(slept) == 2


def test_a_mac_that_stays_hot_is_an_error(pretended: PretendedMac) -> None:
    pretended.pressure(3)
    with pytest.raises(TargetError, match=r"still too hot to measure after 300 s.*trapping"):
        MacTarget(sleep=lambda _: None).cool_down()


@pytest.mark.parametrize(("level", "throttled"), [(0, False), (1, True)])
def test_a_run_under_thermal_pressure_is_marked(
    pretended: PretendedMac, monkeypatch: pytest.MonkeyPatch, level: int, throttled: bool
) -> None:
    def run_here(*_: object, **__: object) -> Run:
        return make_run([1000])

    monkeypatch.setattr(local, "run_here", run_here)
    monkeypatch.setattr(local, "check_request", lambda *_: None)
    pretended.pressure(level)
    run = make_run([1000])
    assert MacTarget().run(None, run.request, Path()).throttled is throttled  # type: ignore[arg-type]
