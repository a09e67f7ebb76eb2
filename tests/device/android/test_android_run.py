"""The whole path on a real adbd: pushed once, run with SME2 on and off, pulled, cleared up."""

from __future__ import annotations

import dataclasses
import itertools
import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pytest_sme2.errors import RunError, Sme2Warning, TargetError, UsageError
from pytest_sme2.fake_phone.lab import FakeLab, FakePhone
from pytest_sme2.results.run import PAIR, Arm, Artifact, Run, RunRequest
from pytest_sme2.results.timing import PairedTiming
from pytest_sme2.runners.base import ProcessFiles
from pytest_sme2.runners.sme2 import Sme2Runner
from pytest_sme2.system.qemu import find_qemu
from pytest_sme2.targets.base import on_cores
from pytest_sme2.targets.emulated import EmulatedTarget
from pytest_sme2.targets.phone.adb import AdbDevice
from pytest_sme2.targets.phone.answers import ShellResult
from pytest_sme2.targets.phone.processes import RUNS, PhoneRun
from pytest_sme2.targets.phone.target import AndroidTarget
from pytest_sme2.timing.pairs import measure_pairs
from pytest_sme2.timing.processes import SamplingPlan, Starter
from pytest_sme2.trace.etdump import read_etdump
from tests.support.phones import MakeRunner, MakeTarget, StartRun, leftovers, make_artifact

HOSTILE = "a b'c\"d;$(touch pwned)`id`&|<script>\n.."


def operators(run: Run) -> set[str]:
    return set(read_etdump(run.etdump).names)


def test_a_pair_shows_sme2_on_and_off(
    sme2_lab: FakeLab, make_target: MakeTarget, bundle: Sme2Runner, toy: Artifact, tmp_path: Path
) -> None:
    phone = sme2_lab.add()
    target = make_target(phone)
    assert target.capabilities().sme2
    assert not target.capabilities().timing
    runs = {}
    for arm in PAIR:
        request = RunRequest(toy, arm, warmup=0, runs=2, traced=True, keep_outputs=True)
        runs[arm] = target.run(bundle, request, tmp_path / str(arm))
    assert any("PF32" in name for name in operators(runs[Arm.ON]))
    assert not any("PF32" in name for name in operators(runs[Arm.OFF]))
    assert runs[Arm.ON].sme2_effective is True
    assert runs[Arm.OFF].sme2_effective is False
    for run in runs.values():
        assert run.vector_bits == 512
        assert run.emulated
        # No counter here, as on a phone that refuses one: that is said, and nothing is guessed.
        assert run.clock_ghz is None
        assert run.uncounted.startswith("perf_event_open: ")
        assert run.target == "android"
        assert len(run.wall_ns) == 2
        assert run.log.is_file()
        for output in run.outputs:
            assert output.file.stat().st_size > 0
    target.restore()
    assert leftovers(phone) == []


def test_on_is_sme1_on_a_phone_without_sme2(
    sme2_lab: FakeLab, make_target: MakeTarget, bundle: Sme2Runner, toy: Artifact, tmp_path: Path
) -> None:
    phone = sme2_lab.add()
    cpuinfo = "data/system/fake/cpuinfo"
    phone.write(cpuinfo, phone.read(cpuinfo).replace(" sme2\n", "\n"))
    target = make_target(phone)
    assert target.fingerprint().sme1
    request = RunRequest(toy, Arm.ON, warmup=0, runs=1, traced=True, sme1=True)
    run = target.run(bundle, request, tmp_path)
    assert any("PF32" in name for name in operators(run))
    assert run.sme2_effective is False


def test_the_phone_answers_as_the_emulator_here_does(
    sme2_lab: FakeLab, make_target: MakeTarget, bundle: Sme2Runner, toy: Artifact, tmp_path: Path
) -> None:
    request = RunRequest(toy, Arm.ON, warmup=0, runs=1)
    there = make_target(sme2_lab.add()).run(bundle, request, tmp_path / "there")
    here = EmulatedTarget(find_qemu()).run(bundle, request, tmp_path / "here")
    assert [output.sha256 for output in there.outputs] == [output.sha256 for output in here.outputs]


def test_a_phone_without_sme2_runs_the_off_arm_and_names_its_soc(
    sme2_lab: FakeLab, make_target: MakeTarget, bundle: Sme2Runner, toy: Artifact, tmp_path: Path
) -> None:
    phone = sme2_lab.add(
        sme2=False, properties={"ro.soc.model": "Old 8", "ro.soc.manufacturer": "X"}
    )
    target = make_target(phone)
    capabilities = target.capabilities()
    assert not capabilities.sme2
    assert "X Old 8" in capabilities.reason
    off = target.run(bundle, RunRequest(toy, Arm.OFF, warmup=0, runs=1), tmp_path)
    assert off.sme2_effective is False
    with pytest.raises(TargetError, match=r"cannot run with SME2 on.*X Old 8"):
        target.run(bundle, RunRequest(toy, Arm.ON), tmp_path)


def test_a_second_run_pushes_nothing(
    phone: FakePhone, make_target: MakeTarget, start: StartRun
) -> None:
    first = make_target(phone)
    start(first)
    assert first.storage.pushed_bytes > 0
    first.restore()
    second = make_target(phone)
    start(second, arm=Arm.OFF)
    assert second.storage.pushed_bytes == 0


def test_an_untraced_run_is_one_round_trip(
    target: AndroidTarget, start: StartRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    start(target)
    calls = []
    shell = AdbDevice.shell

    def counted(*args: Any, **options: Any) -> ShellResult:
        calls.append(1)
        return shell(*args, **options)

    monkeypatch.setattr(AdbDevice, "shell", counted)
    start(target)
    assert len(calls) == 1


def test_hostile_names_stay_names(
    phone: FakePhone, target: AndroidTarget, make_runner: MakeRunner, tmp_path: Path
) -> None:
    path = tmp_path / f"{HOSTILE}.pte"
    path.write_bytes(b"content")
    values = tmp_path / f"-{HOSTILE}.bin"
    values.write_bytes(b"values")
    artifact = dataclasses.replace(make_artifact(path, model=HOSTILE), input_files=(values,))
    target.run(make_runner(0), RunRequest(artifact, Arm.ON), tmp_path / HOSTILE)
    pushed = [name.split("/", 3)[-1] for name in phone.files() if name.count("/") == 3]
    assert path.name in pushed
    assert values.name in pushed
    assert not [name for name in phone.files("data") if Path(name).name == "pwned"]


def test_words_reach_the_real_shell_unchanged(device: AdbDevice) -> None:
    for word in (HOSTILE, "-n", "", "*", "~", "\\", "%s", "é\x7f", "$HOME"):
        assert device.shell(["printf", "%s", word]).stdout == word.encode()


def test_pushed_files_are_checked(
    phone: FakePhone, target: AndroidTarget, artifact: Artifact, monkeypatch: pytest.MonkeyPatch
) -> None:
    push = AdbDevice.push

    def damage(self: AdbDevice, source: Path, remote: str, **options: object) -> None:
        push(self, b"other content", remote)

    monkeypatch.setattr(AdbDevice, "push", damage)
    with pytest.raises(TargetError, match=r"'anything.pte' arrived damaged"):
        target.storage.put({"anything.pte": artifact.pte})
    assert not [name for name in phone.files() if name.endswith(".pte")]


def test_too_little_space_is_found_out_before_pushing(
    lab: FakeLab, make_target: MakeTarget, tmp_path: Path
) -> None:
    phone = lab.add(storage_bytes=8 << 20)
    target = make_target(phone)
    big = tmp_path / "big.pte"
    big.write_bytes(bytes(7 << 20))
    with pytest.raises(TargetError, match=r"Not enough space.*'big.pte' needs 7.3 MB.*sme2 clean"):
        target.storage.put({"big.pte": big})
    assert target.storage.pushed_bytes == 0


ERRORS = [
    (
        "./r: error while loading shared libraries: libx.so: cannot open shared object file",
        127,
        "it needs the library libx.so",
    ),
    (
        'CANNOT LINK EXECUTABLE "./r": library "liby.so" not found: needed by main executable',
        1,
        "it needs the library liby.so",
    ),
    (
        'CANNOT LINK EXECUTABLE "./r": "./r": program alignment (4096) cannot be smaller than '
        "system page size (16384)",
        1,
        "it is aligned for smaller pages than this phone has",
    ),
    ("sh: ./r: not executable: 64-bit ELF file", 126, "it is not a program for this phone"),
    ("sh: ./r: not found", 127, "it or its loader was not found on the phone"),
    ("", 139, "it crashed on an invalid memory access (SIGSEGV)"),
    ("sme2_runner: out of memory", 13, "out of memory."),
    ("strange", 77, "it ended with exit code 77; its last message: strange"),
]


def test_error_of_a_phone_is_one_line(
    phone: FakePhone, target: AndroidTarget, start: StartRun
) -> None:
    for said, code, message in ERRORS:
        with pytest.raises(RunError) as caught:
            start(target, f"cat >&2 <<'SAID'\n{said}\nSAID\nexit {code}\n")
        assert message in str(caught.value)
        assert "\n" not in str(caught.value)
        log = Path(str(caught.value).rpartition("Its log is ")[2])
        assert said in log.read_text(encoding="utf-8")
    assert leftovers(phone, prepared=True) == []


def test_a_runner_that_hangs_is_ended_on_the_phone(
    phone: FakePhone, target: AndroidTarget, start: StartRun
) -> None:
    with pytest.raises(RunError, match=r"did not finish within 2 s"):
        start(target, 600, timeout_seconds=2)
    assert leftovers(phone, prepared=True) == []


def test_a_runner_killed_on_the_phone_is_a_clear_error(
    phone: FakePhone, target: AndroidTarget, start: StartRun
) -> None:

    def kill() -> None:
        deadline = time.monotonic() + 300
        while time.monotonic() < deadline:
            for pid, words in phone.processes().items():
                if words[:2] == ["/system/bin/sh", "./sme2_runner"]:
                    os.kill(pid, signal.SIGKILL)
                    return
            time.sleep(0.05)

    killer = threading.Thread(target=kill)
    killer.start()
    with pytest.raises(RunError, match="it was killed"):
        start(target, 600, timeout_seconds=400)
    killer.join()
    assert leftovers(phone, prepared=True) == []


def test_a_throttled_run_says_so_and_the_next_waits(
    phone: FakePhone, make_target: MakeTarget, start: StartRun
) -> None:
    target = make_target(phone, cool_seconds=0)
    assert not start(target).throttled
    phone.write("data/system/fake/thermal_status", "2\n")
    assert start(target).throttled
    with pytest.warns(Sme2Warning, match=r"still warm.*thermal status 2"):
        assert start(target).throttled
    phone.write("data/system/fake/thermal_status", "0\n")
    assert not start(target).throttled


def test_heat_that_passes_during_a_run_is_seen(
    phone: FakePhone, target: AndroidTarget, start: StartRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pytest_sme2.targets.phone.processes._WATCH_SECONDS", 1)
    # Hot while it runs, until the watcher has looked; cool before and after.
    state, seen = "/data/system/fake/thermal_status", "/data/local/tmp/pytest-sme2/runs/*/heat"
    hot = (
        f"echo 3 > {state}; until grep -q 'Status: 3' {seen}; do sleep 0.1; done; echo 0 > {state}"
    )
    assert start(target, hot, timeout_seconds=600).throttled
    assert leftovers(phone, prepared=True) == []


PLAN = SamplingPlan(threshold=None, looks=(3,), split=(1.0,), runs=3, warmup=0, budget_seconds=3600)


def measured(target: AndroidTarget, start: StartRun, before: Callable[[int], None]) -> PairedTiming:
    """Three pairs after two pilots, one of them twice; ``before`` gets each process's number."""
    numbers = itertools.count(1)

    def run_arm(label: str, /, *, warmup: int, runs: int) -> Run:
        before(next(numbers))
        return start(target, arm=Arm(label), warmup=warmup, runs=runs)

    measurement = measure_pairs(Starter(run_arm), "off", "on", PLAN)
    assert next(numbers) - 1 == 2 + 2 * 4
    return measurement


def test_a_throttled_pair_is_dropped_and_measured_again(
    phone: FakePhone, make_target: MakeTarget, start: StartRun
) -> None:
    status = "data/system/fake/thermal_status"
    told: list[str] = []

    def cool(line: str) -> None:
        told.append(line)
        phone.write(status, "0\n")

    def heat(number: int) -> None:
        # Two pilots and one pair have been: this is a process of the second pair.
        if number == 5:
            phone.write(status, "2\n")

    target = make_target(phone, emulated=False, progress=cool)
    measurement = measured(target, start, heat)
    assert len(measurement.pairs) == 3
    (dropped,) = measurement.dropped
    assert dropped.reason == "the device slowed itself down against heat"
    assert len(told) == 1
    assert "waiting to cool down (thermal status 2" in told[0]


def test_a_pair_under_another_clock_cap_does_not_count(
    phone: FakePhone, make_target: MakeTarget, start: StartRun
) -> None:
    """At thermal status 0: some makers lower the cap without a word."""
    cap = "sys/devices/system/cpu/cpu0/cpufreq/scaling_max_freq"
    target = make_target(phone, emulated=False)
    before = target.fingerprint()

    def slow(number: int) -> None:
        # Two pilots and one pair have been; the second process of the next one is slowed down.
        phone.write(cap, "1200000\n" if number == 6 else "3600000\n")

    measurement = measured(target, start, slow)
    assert [entry.reason for entry in measurement.dropped] == [
        "the highest clock of core 0 was 1.20 GHz, and 3.60 GHz at the start"
    ]
    assert "at 3.60 GHz" in target.conditions()["clock caps"]
    assert target.fingerprint() == before
    # Phones start with one cap today and another tomorrow: a condition, and the same machine.
    phone.write(cap, "1200000\n")
    capped = make_target(phone)
    assert capped.fingerprint() == before
    assert "0 at 1.20 GHz" in capped.conditions()["clock caps"]


def test_the_cap_that_counts_is_the_one_under_load(lab: FakeLab, make_target: MakeTarget) -> None:
    """Stock phones lower it within a second of one busy thread, at any temperature."""
    phone = lab.add()
    cap = "sys/devices/system/cpu/cpu0/cpufreq/scaling_max_freq"
    phone.write(cap, "4320000\n")
    # The maker's governor: it lowers the cap once it sees a busy process.
    seen = "ps -A -o ARGS | grep -q '[k]ill -0'"
    device = make_target(phone).device

    def governor() -> None:
        device.shell(f"until {seen}; do sleep 0.05; done", timeout=600)
        phone.write(cap, "2438000\n")

    thread = threading.Thread(target=governor)
    thread.start()
    target = make_target(phone, emulated=False)
    thread.join()
    assert {core.cap_khz for core in target.cores if core.number == 0} == {2438000}
    assert device.shell(f"{seen} && echo busy").text == ""  # the load is gone


@pytest.mark.parametrize(
    ("cpus", "mask", "fact"), [("little", "1", "0"), ((), "2", "fastest kind")]
)
def test_cores_are_pinned(
    lab: FakeLab, make_target: MakeTarget, start: StartRun,
    cpus: str | tuple[int, ...], mask: str, fact: str,
) -> None:  # fmt: skip
    target = make_target(lab.add(max_frequencies_khz=(2_000_000, 3_600_000)), cpus=cpus)
    run = start(target, "taskset -p $$ >&2")
    assert f"affinity mask: {mask}\n" in run.log.read_text(encoding="utf-8")
    assert dict(target.fingerprint().facts)["cpus"] == fact


def test_too_many_threads_for_the_cores_are_refused_before_anything_is_pushed(
    lab: FakeLab, make_target: MakeTarget, start: StartRun
) -> None:
    target = make_target(lab.add(max_frequencies_khz=(2_000_000, 3_600_000)), cpus="big")
    with pytest.raises(UsageError, match="cpus=big means core 1 of this phone"):
        start(target, threads=2)
    assert target.storage.pushed_bytes == 0


def test_another_abi_is_refused(lab: FakeLab, make_target: MakeTarget) -> None:
    phone = lab.add(properties={"ro.product.cpu.abilist": "x86_64,x86"})
    with pytest.raises(TargetError, match="runs x86_64,x86, not arm64-v8a"):
        make_target(phone)


def test_another_platforms_runner_is_refused(
    phone: FakePhone, target: AndroidTarget, make_runner: MakeRunner, start: StartRun
) -> None:
    runner = dataclasses.replace(make_runner(0), platform="macos-arm64")
    with pytest.raises(TargetError, match=r"for macos-arm64.*sme2 bundle --phone"):
        start(target, runner)


def test_old_files_go_and_used_ones_stay(
    phone: FakePhone, make_target: MakeTarget, artifact: Artifact, device: AdbDevice
) -> None:
    target = make_target(phone)
    used = target.storage.put({"used": artifact.pte})
    old = target.storage.put({"old": artifact.pte})
    device.check(f"touch -d '2020-01-01 00:00' {old} {used}")
    make_target(phone, prepare=False).storage.put({"used": artifact.pte})
    target.storage.tidy()
    names = {Path(name).name for name in phone.files()}
    assert "used" in names
    assert "old" not in names


def code_of(
    target: AndroidTarget, name: str, command: tuple[str, ...], longest_seconds: int = 600
) -> int:
    """The exit code of a program that is run on the phone."""
    place = f"{RUNS}/{name}"
    files = ProcessFiles("model.pte", (), f"{place}/runner.json", None, None)
    run = PhoneRun(name, place, "/data/local/tmp", command, files, longest_seconds)
    (answer,) = run.parse(target.serial, target.device.shell(run.script(), timeout=600))
    return answer.code


@pytest.mark.parametrize(("command", "code"), [("no-such-program", 127), ("false", 1)])
def test_a_run_that_ends_at_once_tells_its_code_and_does_not_wait_for_its_watcher(
    phone: FakePhone, target: AndroidTarget, command: str, code: int
) -> None:
    """The phone's shell loses a signal that comes between fork and exec, more often than not.

    toybox's ``timeout`` would tell 127 of half of those that say 1.
    """
    assert {code_of(target, f"at-once-{number}", (command,)) for number in range(10)} == {code}


def test_a_process_that_hangs_is_ended_without_us(target: AndroidTarget) -> None:
    assert code_of(target, "hangs", on_cores(("sleep", "600"), (0,)), longest_seconds=1) == -9
