"""Counted for real: one inference in a real emulator, and what the emulated program sees."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from pathlib import Path

import pytest

from pytest_sme2.profile.beside import keep_shapes, kept_shapes
from pytest_sme2.profile.build import build_profiles
from pytest_sme2.profile.cost import build_cost, tile_use, work_coverage
from pytest_sme2.results.evidence import InferenceCost
from pytest_sme2.results.run import Arm, RunRequest
from pytest_sme2.system.platforms import LINUX_AARCH64
from pytest_sme2.system.provision import find_compiler
from pytest_sme2.system.qemu import parse_cpu
from pytest_sme2.targets import emulated
from pytest_sme2.targets.base import Job
from pytest_sme2.targets.emulated import EmulatedTarget, _counted_once, observed_run
from pytest_sme2.trace.etdump import read_etdump
from tests.device import provision


def count(
    variant: str, arm: Arm, folder: Path, cpu: str = "strict", cores: tuple[int, ...] = ()
) -> InferenceCost:
    target = EmulatedTarget(provision.emulator().qemu, cpu=parse_cpu(cpu))
    request = RunRequest(
        provision.artifact(variant), arm, warmup=0, runs=1, traced=True, counted=True, cpus=cores
    )
    made = observed_run(target, provision.runner(), request, folder)
    keep_shapes(made.run.etdump, request.artifact.pte, print)
    columns = read_etdump(made.run.etdump)
    profile = build_profiles(columns, census=made.census, shapes=kept_shapes(made.run.etdump))[0]
    return build_cost(
        made.counted,
        columns,
        profile,
        cpu=target.cpu.model(arm),
        toolchain=provision.runner().toolchain,
    )


_CPU = "sys/devices/system/cpu"
# As on a server with 64 cores of another kind.
MANY_CORES = {
    **{f"{_CPU}/{name}": "0-63\n" for name in ("possible", "present", "online")},
    **{
        f"{_CPU}/cpu{core}/regs/identification/midr_el1": "0x00000000413fd0c1\n"
        for core in range(64)
    },
}


@pytest.mark.parametrize(
    "arm", [Arm.ON, *(pytest.param(arm, marks=pytest.mark.nightly) for arm in (Arm.OFF, Arm.SME1))]
)
def test_a_log_from_the_inference_on_counts_the_same_as_a_whole_one(
    arm: Arm, tmp_path: Path
) -> None:
    target = EmulatedTarget(provision.emulator().qemu)
    request = RunRequest(
        provision.artifact("int8"), arm, warmup=0, runs=1, traced=True, counted=True
    )

    def segments(name: str, *, late: bool) -> list[tuple[str, object]]:
        folder = tmp_path / name
        job = Job(provision.runner(), request, folder)
        _, counted = _counted_once(target, job, folder / "qemu.log", late=late)
        assert not counted.problem
        return [(segment.mark, segment.code) for segment in counted.segments]

    late = segments("late", late=True)
    assert late == segments("whole", late=False)
    assert any(code for _, code in late)


def test_where_the_log_cannot_be_switched_on_the_whole_one_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = count("int8", Arm.ON, tmp_path / "late").total
    # Another number than QEMU has: nothing in its memory is like it.
    monkeypatch.setattr(emulated, "_LEVEL", emulated._LEVEL ^ 1 << 30)
    assert count("int8", Arm.ON, tmp_path / "whole").total == expected


def test_the_counts_of_the_toy_model(tmp_path: Path) -> None:
    on = count("fp32", Arm.ON, tmp_path / "on")
    off = count("fp32", Arm.OFF, tmp_path / "off")
    # What the convolutions and matrix products need, whatever else a version of them does.
    assert on.total.outer_products == 65_472
    assert off.total.outer_products == off.total.sme2_other == 0
    assert 600_000 < on.total.instructions < 900_000
    assert 5_000_000 < off.total.instructions < 7_000_000
    assert work_coverage(on) == 1
    assert work_coverage(off) == 0
    use = tile_use(on)
    assert 0.95 < use <= 1
    assert all(entry.counts.instructions > 0 for entry in on.operators)
    assert any(kernel.name.endswith("sme2_mopa") for kernel in on.kernels)


def test_the_same_counts_wherever_it_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = count("int8", Arm.ON, tmp_path)
    monkeypatch.setenv("LANG", "xx_YY.UTF-8")
    monkeypatch.setenv("LC_ALL", "C" * 100)
    core = min(os.sched_getaffinity(0))
    assert count("int8", Arm.ON, tmp_path / ("long" * 20), cores=(core,)) == first
    # What it sees of the machine reaches the C library's heap, and no further.
    for name, text in MANY_CORES.items():
        monkeypatch.setitem(emulated.FILES, name, text)
    other = count("int8", Arm.ON, tmp_path)
    assert [entry.counts.instructions - entry.system for entry in other.operators] == [
        entry.counts.instructions - entry.system for entry in first.operators
    ]
    assert other.total.instructions - other.system == first.total.instructions - first.system


def test_shorter_vectors_need_more_outer_products(tmp_path: Path) -> None:
    short = count("fp32", Arm.ON, tmp_path, cpu="strict:256")
    assert short.total.outer_products > 2 * 65_472
    assert short.vector_bits == 256


SEES = r"""
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
extern char **environ;
static void show(const char *path) {
  char text[256] = "none\n";
  FILE *file = fopen(path, "r");
  if (file != NULL) { text[fread(text, 1, 255, file)] = 0; fclose(file); }
  printf("%s", text);
}
int main(void) {
  show("/sys/devices/system/cpu/possible");
  show("/sys/devices/system/cpu/online");
  show("/sys/devices/system/cpu/cpu0/regs/identification/midr_el1");
  printf("%ld %ld\n", sysconf(_SC_PAGESIZE), sysconf(_SC_NPROCESSORS_ONLN));
  for (char **each = environ; *each; ++each) puts(*each);
  return 0;
}
"""
# smstart sm; fmla v0.4s, v1.4s, v2.4s; smstop sm
NEON_IN_STREAMING_MODE = """
int main(void) {
  __asm__ volatile(".inst 0xd503437f\\n.inst 0x4e22cc20\\n.inst 0xd503427f" ::: "memory");
  return 0;
}
"""


def compiled(folder: Path, source: str) -> Path:
    program = folder / "program"
    (folder / "program.c").write_text(source)
    compiler = find_compiler(LINUX_AARCH64).cxx
    command = [compiler, "-x", "c", "-static", "-O1", "-w", "program.c", "-o", program.name]
    subprocess.run(command, check=True, timeout=120, cwd=folder)
    return program


def seen(target: EmulatedTarget, program: Path) -> list[str]:
    done = subprocess.run(
        [*target.launcher(Arm.ON), program], capture_output=True, text=True, check=True, timeout=60
    )
    return done.stdout.splitlines()


def test_the_program_sees_the_same_machine_everywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target, program = provision.emulator(), compiled(tmp_path, SEES)
    expected = ["0", "0", "0x00000000000f0510", "4096 1"]
    answer = seen(target, program)
    assert answer[:4] == expected
    told = dict(line.split("=", 1) for line in answer[4:])
    assert told["LD_BIND_NOW"] == "1"
    assert not {"PATH", "HOME", "LANG", "GLIBC_TUNABLES"} & set(told)
    # It is these files that it sees: another machine would change what it chooses.
    other = {**emulated.FILES, "sys/devices/system/cpu/possible": "0-63\n"}
    monkeypatch.setattr(emulated, "FILES", other)
    assert seen(target, program)[0] == "0-63"


def test_the_program_reads_no_other_file_about_the_machine(tmp_path: Path) -> None:
    log = tmp_path / "log"
    target = provision.emulator(options=("-d", "strace", "-D", str(log)))
    request = RunRequest(provision.artifact("int8"), Arm.ON, warmup=0, runs=1, traced=True)
    target.run(provision.runner(), request, tmp_path)
    read = set(re.findall(r'openat\([^"]*"(/(?:sys|proc)/[^"]*)"', log.read_text()))
    assert "/sys/devices/system/cpu/possible" in read
    # Where instructions are counted, the runner looks for no unit that counts cycles.
    read = {name for name in read if not name.startswith("/sys/bus/event_source/")}
    # QEMU itself writes the first; the second is the runner's own memory, after the inference.
    assert read - {f"/{name}" for name in emulated.FILES} == {"/proc/cpuinfo", "/proc/self/status"}


def test_neon_in_streaming_mode_ends_as_on_a_real_cpu(tmp_path: Path) -> None:
    target, program = provision.emulator(), compiled(tmp_path, NEON_IN_STREAMING_MODE)
    here = [str(target.qemu.path)]
    lenient = subprocess.run([*here, "-cpu", "max,sme512=on", program], timeout=60)
    strict = subprocess.run(
        [*target.launcher(Arm.ON), program], timeout=60, capture_output=True, check=False
    )
    assert lenient.returncode == 0
    assert strict.returncode == -signal.SIGILL
