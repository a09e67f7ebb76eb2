from __future__ import annotations

import os
import platform
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from pytest_sme2.errors import RunError, Sme2Warning, StorageError, TargetError, UsageError
from pytest_sme2.results.run import Arm, Artifact, GenerationPlan, Run, RunRequest, TensorSpec
from pytest_sme2.runners.sme2 import Sme2Runner
from pytest_sme2.session import device
from pytest_sme2.session.device import choose_target
from pytest_sme2.session.settings import Settings
from pytest_sme2.system import provision, qemu
from pytest_sme2.system.processes import Finished
from pytest_sme2.system.qemu import DEFAULT_CPU, Qemu
from pytest_sme2.targets import local
from pytest_sme2.targets.base import (
    Job,
    command_here,
    describe_failure,
    run_logged,
)
from pytest_sme2.targets.emulated import EmulatedTarget
from pytest_sme2.targets.local import MacTarget, this_machine
from tests.support.pretended_mac import M4, PretendedMac
from tests.support.pretended_machine import make_run

CPU_HAS = local.cpu_has
QEMU = Qemu(Path("/opt/qemu aarch64"), "11.1.2")


@pytest.fixture
def machine(monkeypatch):
    """A machine of our choice, with or without SME2 and an emulator."""
    monkeypatch.setattr(device, "emulated_on", lambda: None)

    def make(platform: str, *, sme2: bool, qemu: Qemu | None) -> None:
        def find():
            if qemu is None:
                raise TargetError("No emulator was found.")
            return qemu

        monkeypatch.setattr(local, "host_platform", lambda: platform)
        monkeypatch.setattr(local, "cpu_has", lambda feature, name: sme2)
        monkeypatch.setattr(device, "find_qemu", find)

    return make


@pytest.mark.parametrize(
    ("platform", "sme2", "found", "name", "timing", "reasons"),
    [
        ("macos-arm64", True, QEMU, "mac", True, []),
        ("linux-aarch64", False, QEMU, "emulated", False, ["emulated"]),
        ("linux-x86_64", False, None, "linux", True, ["has no SME2", "No emulator was found"]),
    ],
)
def test_auto_is_this_machine_with_sme2_else_the_emulator_else_this_machine(
    machine, platform, sme2, found, name, timing, reasons
):
    machine(platform, sme2=sme2, qemu=found)
    target = choose_target(Settings(device="auto"))
    able = target.capabilities()
    assert (target.name, able.timing, able.sme2) == (name, timing, name != "linux")
    assert all(reason in able.reason for reason in reasons)


def test_on_is_sme1_on_a_machine_that_has_sme_and_no_sme2(machine, monkeypatch):
    machine("linux-aarch64", sme2=False, qemu=None)
    monkeypatch.setattr(local, "_hwcap2", lambda: 1 << 23)
    monkeypatch.setattr(local, "cpu_has", CPU_HAS)
    target = local.LocalTarget()
    able = target.capabilities()
    assert (able.sme2, able.sme1, able.switches, able.timing) == (False, True, True, True)
    assert target.fingerprint().sme1
    monkeypatch.setattr(local, "_hwcap2", lambda: 1 << 23 | 1 << 37)
    assert local.LocalTarget().capabilities().sme2
    assert not local.LocalTarget().fingerprint().sme1


def test_a_machine_that_is_emulated_itself_measures_no_time(machine, monkeypatch):
    monkeypatch.setattr(device, "emulated_on", lambda: "x86_64")
    machine("linux-aarch64", sme2=True, qemu=QEMU)
    assert choose_target(Settings(device="auto")).name == "emulated"
    with pytest.raises(TargetError, match=r"linux cannot be used: .* is emulated on x86_64"):
        choose_target(Settings(device="linux"))
    machine("linux-aarch64", sme2=True, qemu=None)
    with pytest.raises(TargetError, match="No emulator"):
        choose_target(Settings(device="auto"))


def test_emulated_fetches_an_emulator_and_says_so(machine, monkeypatch):
    machine("linux-x86_64", sme2=False, qemu=None)
    said: list[str] = []

    def fetch(say, check):
        assert not check
        say("fetching QEMU 11.1 into the cache")
        machine("linux-x86_64", sme2=False, qemu=QEMU)
        monkeypatch.setattr(device, "find_qemu", lambda: QEMU)
        return provision.Provided("QEMU with SME2", str(QEMU.path), "installed")

    monkeypatch.setattr(provision, "qemu", fetch)
    target = choose_target(Settings(device="emulated"), progress=said.append)
    assert target.name == "emulated"
    assert said == [
        "no emulator with SME2 was found: fetching one, as `sme2 provision` does",
        "fetching QEMU 11.1 into the cache",
    ]


@pytest.mark.parametrize(
    ("platform", "device", "system"),
    [("linux-x86_64", "mac", "Linux"), ("macos-arm64", "linux", "macOS")],
)
def test_device_of_another_system_is_refused(machine, platform, device, system):
    machine(platform, sme2=False, qemu=None)
    words = f"--device={device} runs on this machine, but this machine runs {system}"
    with pytest.raises(TargetError, match=words):
        choose_target(Settings(device=device))


def test_an_unknown_device_lists_the_choices(machine):
    machine("linux-x86_64", sme2=False, qemu=None)
    with pytest.raises(UsageError, match=r"'toaster' is not a device\. Choose one of: auto, mac"):
        choose_target(Settings(device="toaster"))


ARM_CPUINFO = """\
processor	: 0
CPU implementer	: 0x41
CPU part	: 0xd81

processor	: 1
CPU implementer	: 0x41
CPU part	: 0xd8c

processor	: 2
CPU implementer	: 0x41
CPU part	: 0xd81
"""


def test_the_cpu_is_named_by_its_cores():
    assert local.cpu_name(ARM_CPUINFO) == "2x 0x41:0xd81, 1x 0x41:0xd8c"
    assert local.cpu_name("model name\t: Fast One @ 2GHz \nmodel name\t: Fast One @ 2GHz\n") == (
        "2x Fast One @ 2GHz"
    )
    # As of a machine without /proc.
    assert local.cpu_name("") == "unknown"


def test_fingerprint_is_stable_and_complete():
    first, second = this_machine().fingerprint(), this_machine().fingerprint()
    assert first == second
    assert {"cores", "cpu", "os", "platform", "sme2"} <= set(dict(first.facts))
    assert first.key.startswith(f"{first.target}-")


def test_a_machine_tells_its_cores_and_pins_to_the_fastest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for core, khz in enumerate((2_000_000, 3_000_000, 2_000_000)):
        folder = tmp_path / f"cpu{core}" / "cpufreq"
        folder.mkdir(parents=True)
        (folder / "cpuinfo_max_freq").write_text(str(khz))
    monkeypatch.setattr(local, "CPU_FOLDER", tmp_path)
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {0, 1, 2}, raising=False)
    target = local.LocalTarget()
    assert [core.max_khz for core in target.cores] == [2_000_000, 3_000_000, 2_000_000]
    assert [target.pinned(threads) for threads in (1, 2, 3)] == [(1,), (1, 0), (1, 0, 2)]
    monkeypatch.delattr(os, "sched_getaffinity")
    monkeypatch.setattr(os, "cpu_count", lambda: 4)
    assert (len(target.cores), target.pinned(2)) == (4, ())


def test_sme2_can_be_switched_by_the_runner_only():
    target = EmulatedTarget(QEMU, switch_cpu=False, options=("-d", "in_asm"))
    assert target.launcher(Arm.OFF)[2] == DEFAULT_CPU.model(Arm.ON)
    assert target.launcher(Arm.OFF)[-2:] == ("-d", "in_asm")
    assert EmulatedTarget(QEMU).launcher(Arm.OFF)[2] == DEFAULT_CPU.model(Arm.OFF)


@pytest.mark.parametrize(
    ("machine", "expected"),
    [("x86_64", {"GLIBC_TUNABLES": "glibc.cpu.hwcaps=-FMA,-FMA4"}), ("aarch64", {})],
)
def test_slow_fused_multiply_add_is_avoided_on_x86(monkeypatch, machine, expected):
    monkeypatch.setattr("platform.machine", lambda: machine)
    assert dict(EmulatedTarget(QEMU).environment) == expected


@pytest.mark.parametrize(
    ("finished", "told"),
    [
        (Finished(0, "", "", False), None),
        (Finished(-9, "", "", True), "it did not finish within 5 s and was stopped"),
        (Finished(-11, "", "", False), "crashed on an invalid memory access (SIGSEGV)."),
        (Finished(-6, "", "assert\n", False), "(SIGABRT); its last message: assert"),
        (Finished(-9, "", "", False), "killed (SIGKILL), probably because memory ran out."),
        (Finished(-4, "", "", False), "an instruction that this CPU does not have (SIGILL)."),
        (Finished(-40, "", "", False), "signal 40 ended it."),
        (Finished(11, "", "sme2_runner: 'x' is empty\n", False), "'x' is empty."),
        (
            Finished(16, "", "sme2_runner: cannot write 'x': No space left on device\n", False),
            "No space left on device. Free space there, or choose another folder.",
        ),
        (Finished(127, "", "ld: no libc\n", False), "exit code 127; its last message: ld: no"),
        (Finished(1, "Error while loading\n", "", False), "message: Error while loading"),
        (Finished(1, "", "", False), "it ended with exit code 1."),
    ],
)
def test_end_of_a_process_is_one_sentence(finished, told, tmp_path):
    artifact = Artifact("toy", "fp16", tmp_path, tmp_path / "toy.pte", "", (), ())
    request = RunRequest(artifact, Arm.OFF, timeout_seconds=5)
    runner = Sme2Runner("wheel", "linux-aarch64", "1.5.1", tmp_path)
    problem = describe_failure(finished, runner, request)
    assert problem is None if told is None else told in problem


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
def test_a_log_that_cannot_be_written_is_not_a_runner_that_cannot_be_started(tmp_path):
    with pytest.raises(StorageError, match=r"/dev/full: cannot be written: No space left.*Free"):
        run_logged(["true"], Path("/dev/full"), folder=tmp_path, timeout_seconds=600)
    with pytest.raises(RunError, match="could not be started"):
        run_logged(["/nowhere/at/all"], tmp_path / "log", folder=tmp_path, timeout_seconds=600)


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


@pytest.mark.parametrize(
    ("answers", "reason"),
    [
        (
            {"machdep.cpu.brand_string": "M2"},
            "this Mac's chip (M2) has no SME2; the M4 and newer have it.",
        ),
        ({"kern.hv_vmm_present": "1"}, "is a virtual machine that has no SME2"),
    ],
)
def test_why_a_mac_has_no_sme2(
    pretended: PretendedMac, answers: dict[str, str], reason: str
) -> None:
    pretended.sysctl({**M4, "hw.optional.arm.FEAT_SME2": "0", **answers})
    assert reason in this_machine().capabilities().reason


def test_auto_on_a_mac_without_sme2_sends_nobody_to_provision(
    pretended: PretendedMac, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pretended.sysctl({**M4, "hw.optional.arm.FEAT_SME2": "0"})
    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.setattr(device, "find_qemu", lambda: qemu.find_qemu(cache=tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    reason = choose_target(Settings(device="auto")).capabilities().reason
    assert "user mode does not exist on macOS" in reason
    assert "sme2 provision" not in reason


def test_it_is_kept_awake_until_it_is_restored(pretended: PretendedMac) -> None:
    target = MacTarget()
    target.prepare()
    target.prepare()
    awake = target._awake
    assert awake.poll() is None
    target.restore()
    target.restore()
    assert awake.poll() is not None


def test_heat_is_waited_for(pretended: PretendedMac, monkeypatch: pytest.MonkeyPatch) -> None:
    pretended.pressure(2, 1, 0)
    slept: list[float] = []
    monkeypatch.setattr("time.sleep", slept.append)
    MacTarget().cool_down()
    assert slept.count(local._INTERVAL_SECONDS) == 2


def test_a_mac_that_stays_hot_is_measured_with_a_warning(
    pretended: PretendedMac, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One without a fan may never get cool; its wait is nobody's time budget."""
    pretended.pressure(3)
    monkeypatch.setattr("time.sleep", lambda _: None)
    target = MacTarget()
    with pytest.warns(Sme2Warning, match=r"still hot after a wait of 300 s.*trapping"):
        target.cool_down()
    assert target.waited_seconds == 300
    target.cool_down()  # is not waited for again
    assert target.waited_seconds == 300


def test_a_linux_on_a_mac_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "PRODUCT", tmp_path / "product_name")
    assert "guest" not in local.LocalTarget().facts()
    local.PRODUCT.write_text("Apple Virtualization Generic Platform\n", encoding="utf-8")
    assert local.LocalTarget().facts()["guest"] == "of a Mac"


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
    assert MacTarget().run(None, run.request, Path()).throttled is throttled


def test_another_highest_clock_marks_a_run_of_this_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for core in range(os.cpu_count() or 1):
        folder = tmp_path / f"cpu{core}" / "cpufreq"
        folder.mkdir(parents=True)
        for name, khz in (("cpuinfo_max_freq", 3_000_000), ("scaling_max_freq", 2_000_000)):
            (folder / name).write_text(f"{khz}\n", encoding="utf-8")
    monkeypatch.setattr(local, "CPU_FOLDER", tmp_path)
    monkeypatch.setattr(local, "run_here", lambda *_, **__: make_run([1000]))
    monkeypatch.setattr(local, "check_request", lambda *_: None)
    target = local.LocalTarget()
    request = make_run([1000]).request
    assert "at 2.00 GHz" in dict(target.fingerprint().facts)["clock_caps"]
    assert target.run(None, request, Path()).clock_change == ""
    for cap in tmp_path.glob("*/cpufreq/scaling_max_freq"):
        cap.write_text("1000000\n", encoding="utf-8")
    change = target.run(None, request, Path()).clock_change
    assert change.endswith("was 1.00 GHz, and 2.00 GHz at the start")
    assert "at 1.00 GHz" in target.conditions()["clock caps"]


def test_a_generation_names_its_files_and_what_is_fed_back(tmp_path: Path) -> None:
    spec = TensorSpec("float32", (1, 4))
    plan = GenerationPlan(2, 3, prompt=(spec, spec), fed_back=(None, 1))
    artifact = Artifact(
        "net", "fp32", tmp_path, tmp_path / "net.pte", "", (spec, spec), (spec,), generation=plan
    )
    runner = Sme2Runner("wheel", "linux-aarch64", "1.5.1", tmp_path)

    def words(*, generate: bool) -> str:
        request = RunRequest(artifact, Arm.ON, generate=generate)
        return " ".join(command_here(Job(runner, request, tmp_path)))

    asked = words(generate=True)
    assert f"--prompt {tmp_path / 'prompt_0.bin'} --prompt {tmp_path / 'prompt_1.bin'}" in asked
    assert asked.endswith(f"--next {tmp_path / 'next_0.bin'} --next @1")
    assert "--prompt" not in words(generate=False)
    assert replace(artifact, generation=None).generation_files == ((), ())
