"""SME2 on a machine without it: a Linux process in QEMU's user mode.

The instructions are real, so operators, kernels and outputs are exact; times mean nothing.
"""

from __future__ import annotations

import hashlib
import json
import platform
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pytest_sme2.results import SME1_ONLY, Arm, Capabilities, Fingerprint, Run, RunRequest
from pytest_sme2.runners.base import Runner
from pytest_sme2.system.cache import cache_folder, made_once
from pytest_sme2.system.platforms import LINUX_AARCH64
from pytest_sme2.system.processes import BASIC_ENVIRONMENT
from pytest_sme2.system.qemu import DEFAULT_CPU, EmulatedCpu, Qemu
from pytest_sme2.targets.base import Job, Target, check_request, run_here

_CPU = "sys/devices/system/cpu"
# One core that reports no caches. The CPU is QEMU's "max" (implementer 0, part 0x051).
FILES: dict[str, str] = {
    f"{_CPU}/possible": "0\n",
    f"{_CPU}/present": "0\n",
    f"{_CPU}/online": "0\n",
    f"{_CPU}/kernel_max": "255\n",
    f"{_CPU}/cpu0/regs/identification/midr_el1": "0x00000000000f0510\n",
    f"{_CPU}/cpu0/topology/physical_package_id": "0\n",
    f"{_CPU}/cpu0/topology/cluster_cpus_list": "0\n",
    f"{_CPU}/cpu0/topology/core_siblings_list": "0\n",
    f"{_CPU}/cpu0/topology/package_cpus_list": "0\n",
    f"{_CPU}/cpu0/cpufreq/cpuinfo_max_freq": "1000000\n",
    f"{_CPU}/cpu0/cpufreq/cpuinfo_min_freq": "1000000\n",
    "sys/devices/soc0/image_version": "\n",
    # Nothing of the host's is loaded into it. An Arm machine may name a library here.
    "etc/ld.so.preload": "",
}
# Symbols are looked up when a library is loaded, not when one is first called in an inference.
_VARIABLES = ("LD_BIND_NOW=1",)
# What is set for this process or for QEMU itself, and is not meant for the program.
_HIDDEN = (*BASIC_ENVIRONMENT, "GLIBC_TUNABLES")
_SEED = "1"


def guest_options() -> tuple[str, ...]:
    """The options of QEMU that pin what the program sees."""
    return (
        *("-L", str(guest_root())),
        *("-seed", _SEED),
        *("-U", ",".join(_HIDDEN)),
        *("-E", ",".join(_VARIABLES)),
    )


def guest_root() -> Path:
    """The folder with the files that stand in for the host's; made where it is missing."""
    digest = hashlib.sha256(json.dumps(FILES, sort_keys=True).encode()).hexdigest()[:12]
    folder = cache_folder() / "tools" / f"guest-{digest}"
    return made_once(folder, "making the emulator's files", _write_files)


def _write_files(folder: Path) -> Path:
    for name, text in FILES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="ascii")
    return folder


# On x86, QEMU's translated code uses 256-bit AVX and its own functions plain SSE. Where one of them
# calls the C library's fused multiply-add, in AVX again, the processor changes states at every
# step: without it, emulated SME2 in fp32 is six times faster, and the same to the last bit.
_FAST_ON_X86 = {"GLIBC_TUNABLES": "glibc.cpu.hwcaps=-FMA,-FMA4"}


@dataclass(frozen=True)
class EmulatedTarget(Target):
    """An emulated CPU with SME2, and one without."""

    qemu: Qemu
    cpu: EmulatedCpu = DEFAULT_CPU
    switch_cpu: bool = True
    """Whether the CPU of the off arm has no SME2; if not, the runner alone hides it, as it must on
    hardware."""
    options: tuple[str, ...] = ()
    """Further ones of QEMU, such as those that log what it executes."""
    before: tuple[str, ...] = ()
    """What stands before QEMU in its command: a program that starts it."""

    name = "emulated"
    platform = LINUX_AARCH64

    def capabilities(self) -> Capabilities:
        return Capabilities(
            timing=False,
            sme2=not self.cpu.sme1,
            reason="the CPU is emulated, so its times say nothing about hardware.",
            sme1=self.cpu.sme1,
        )

    def launcher(self, arm: Arm) -> tuple[str, ...]:
        """What stands before the runner's own command."""
        cpu = self.cpu.model(arm if self.switch_cpu else Arm.ON)
        emulator = str(self.qemu.path.absolute())
        return (*self.before, emulator, "-cpu", cpu, *guest_options(), *self.options)

    @property
    def environment(self) -> Mapping[str, str]:
        """What the emulator itself needs to see, beside the usual."""
        return _FAST_ON_X86 if platform.machine() in ("x86_64", "AMD64") else {}

    def run(self, runner: Runner, request: RunRequest, folder: Path) -> Run:
        job = Job(runner, request, folder)
        check_request(self, job)
        launcher = self.launcher(request.arm)
        return run_here(
            self.name, job, emulated=True, launcher=launcher, environment=self.environment
        )

    def fingerprint(self) -> Fingerprint:
        facts = {"cpu": self.cpu.model(Arm.ON), "qemu": self.qemu.version}
        if self.cpu.sme1:
            facts["sme2"] = SME1_ONLY
        return Fingerprint(target=self.name, facts=tuple(sorted(facts.items())))
