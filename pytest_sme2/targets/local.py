"""This machine as a target; what only a Mac has is in mac.py."""

from __future__ import annotations

import os
import platform
import re
import secrets
import struct
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from pytest_sme2.errors import TargetError
from pytest_sme2.results import SME1_ONLY, Capabilities, Fingerprint, Run, RunRequest
from pytest_sme2.runners.base import Runner
from pytest_sme2.system.conditions import local_conditions
from pytest_sme2.system.macos import sysctl
from pytest_sme2.system.platforms import LINUX_AARCH64, MACOS_ARM64, host_platform
from pytest_sme2.targets.base import Job, check_request, run_here, run_here_in_turns
from pytest_sme2.targets.phone.cores import Core, pick_cores

_AT_HWCAP2 = 26
_HWCAP2 = {"sme": 1 << 23, "sme2": 1 << 37}
CPU_FOLDER = Path("/sys/devices/system/cpu")


class LocalTarget:
    """The machine that this runs on; its CPU says whether it has SME2."""

    def __init__(self, *, note: str = "") -> None:
        """``note`` is added to the reason why SME2 is missing."""
        self._platform = host_platform()
        self._sme2 = cpu_has("sme2", self._platform)
        self._sme1 = not self._sme2 and cpu_has("sme", self._platform)
        self._note = note

    @property
    def name(self) -> str:
        return "mac" if self._platform == MACOS_ARM64 else "linux"

    @property
    def platform(self) -> str:
        return self._platform

    def capabilities(self) -> Capabilities:
        if self._sme2:
            return Capabilities(timing=True, sme2=True)
        reason = f"{self.missing_sme2()} {self._note}".strip()
        return Capabilities(timing=True, sme2=False, reason=reason, sme1=self._sme1)

    def missing_sme2(self) -> str:
        """Why there is no SME2."""
        return f"this machine's CPU ({platform.machine()}) has no SME2."

    def prepare(self) -> None:
        """A measurement changes nothing on this machine."""

    def put(self, files: Sequence[Path]) -> None:
        """The files are already here."""

    def restore(self) -> None:
        """Nothing was changed."""

    def run(self, runner: Runner, request: RunRequest, folder: Path) -> Run:
        check_request(self.name, self.platform, self.capabilities(), runner, request)
        check_cpus(request.cpus)
        return run_here(self.name, runner, request, folder, emulated=False, cpus=request.cpus)

    def run_in_turns(self, jobs: Sequence[Job]) -> list[Run]:
        """One process per job, on one core if the system can pin processes.

        On two cores each process would have different noise. Several threads need several cores.
        """
        for job in jobs:
            check_request(self.name, self.platform, self.capabilities(), job.runner, job.request)
            check_cpus(job.request.cpus)
        alone = all(job.request.threads == 1 and not job.request.cpus for job in jobs)
        cpus: tuple[int, ...] = ()
        if alone and hasattr(os, "sched_getaffinity"):
            cpus = (secrets.choice(fastest_cores(os.sched_getaffinity(0))),)
        return run_here_in_turns(self.name, jobs, cpus=cpus)

    @property
    def cores(self) -> tuple[Core, ...]:
        """Those that a process may run on."""
        if not hasattr(os, "sched_getaffinity"):
            return tuple(Core(number, 0) for number in range(os.cpu_count() or 1))
        available = sorted(os.sched_getaffinity(0))
        return tuple(Core(core, _highest_clock(CPU_FOLDER / f"cpu{core}")) for core in available)

    def pinned(self, threads: int) -> tuple[int, ...]:
        """The fastest cores for so many threads; none where the system cannot pin."""
        can_pin = hasattr(os, "sched_getaffinity")
        return pick_cores((), self.cores, threads) if can_pin else ()

    def conditions(self) -> dict[str, str]:
        return local_conditions()

    def fingerprint(self) -> Fingerprint:
        facts = self.facts()
        facts["platform"] = self._platform
        facts["sme2"] = "yes" if self._sme2 else SME1_ONLY if self._sme1 else "no"
        return Fingerprint(target=self.name, facts=tuple(sorted(facts.items())))

    def facts(self) -> dict[str, str]:
        """What its times depend on."""
        return {
            "cores": str(os.cpu_count()),
            "cpu": cpu_name(_processors()),
            "os": "Linux",
        }


def cpu_has(feature: str, platform_name: str) -> bool:
    """Whether the system reports ``sme`` or ``sme2`` for the CPU of this machine."""
    if platform_name == LINUX_AARCH64:
        return _hwcap2(Path("/proc/self/auxv").read_bytes()) & _HWCAP2[feature] != 0
    if platform_name == MACOS_ARM64:
        return sysctl(f"hw.optional.arm.FEAT_{feature.upper()}") == "1"
    return False


def _hwcap2(auxiliary_vector: bytes) -> int:
    """The CPU features of an auxiliary vector: pairs of 64-bit numbers, a kind and a value."""
    whole = len(auxiliary_vector) // 16 * 16
    pairs: dict[int, int] = dict(struct.iter_unpack("=QQ", auxiliary_vector[:whole]))
    return pairs.get(_AT_HWCAP2, 0)


def check_cpus(cpus: Sequence[int]) -> None:
    """Refuse to pin to missing cores, or on a system that cannot pin."""
    if not cpus:
        return
    if not hasattr(os, "sched_getaffinity"):
        raise TargetError("This system cannot pin a process to cores. Do not choose cores.")
    available = os.sched_getaffinity(0)
    missing = sorted(set(cpus) - available)
    if missing:
        raise TargetError(
            f"This process may not use core {missing[0]}. "
            f"Choose from: {', '.join(map(str, sorted(available)))}."
        )


def fastest_cores(available: Iterable[int], system: Path = CPU_FOLDER) -> list[int]:
    """The cores with the highest clock; all cores if the system does not report clocks."""
    clocks = {core: _highest_clock(system / f"cpu{core}") for core in available}
    return sorted(core for core, clock in clocks.items() if clock == max(clocks.values()))


def _highest_clock(core: Path) -> int:
    try:
        return int((core / "cpufreq" / "cpuinfo_max_freq").read_text())
    except (OSError, ValueError):
        return 0


def _processors(file: Path = Path("/proc/cpuinfo")) -> str:
    """What the system tells about its cores; nothing where there is no /proc."""
    try:
        return file.read_text(errors="replace")
    except OSError:
        return ""


def cpu_name(cpuinfo: str) -> str:
    """What ``/proc/cpuinfo`` says the cores are: model names, else Arm implementers and parts."""
    names = re.findall(r"^model name\s*:\s*(.+?)\s*$", cpuinfo, re.MULTILINE)
    if not names:
        implementers = re.findall(r"^CPU implementer\s*:\s*(\S+)", cpuinfo, re.MULTILINE)
        parts = re.findall(r"^CPU part\s*:\s*(\S+)", cpuinfo, re.MULTILINE)
        names = [
            f"{implementer}:{part}" for implementer, part in zip(implementers, parts, strict=False)
        ]
    counts = sorted(Counter(names).items())
    return ", ".join(f"{count}x {name}" for name, count in counts) or "unknown"
