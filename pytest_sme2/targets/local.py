"""This machine as a target, and a Mac: kept awake while it measures, waited for while it is hot."""

from __future__ import annotations

import ctypes
import os
import platform
import re
import secrets
import subprocess
import time
import warnings
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from pytest_sme2.errors import Sme2Warning
from pytest_sme2.results.run import SME1_ONLY, Capabilities, Fingerprint, Run, RunRequest
from pytest_sme2.runners.base import Runner
from pytest_sme2.system import platforms
from pytest_sme2.system.platforms import LINUX_AARCH64, MACOS_ARM64, host_platform, sysctl
from pytest_sme2.targets.base import (
    Job,
    Target,
    Thermal,
    check_request,
    run_here,
    run_here_in_turns,
)
from pytest_sme2.targets.phone.answers import (
    Core,
    below_highest,
    caps_text,
    clock_change,
    parse_core_parts,
    pick_cores,
)

_AT_HWCAP2 = 26
_HWCAP2 = {"sme": 1 << 23, "sme2": 1 << 37}
PRODUCT = Path("/sys/class/dmi/id/product_name")
CPU_FOLDER = Path("/sys/devices/system/cpu")


class LocalTarget(Target):
    """The machine that this runs on; its CPU says whether it has SME2."""

    name = platform = ""

    def __init__(self, *, note: str = "") -> None:
        """``note`` is added to the reason why SME2 is missing."""
        self.platform = host_platform()
        self.name = "mac" if self.platform == MACOS_ARM64 else "linux"
        self._sme2 = cpu_has("sme2", self.platform)
        self._sme1 = not self._sme2 and cpu_has("sme", self.platform)
        self._note = note
        self._at_start = self.cores

    def capabilities(self) -> Capabilities:
        if self._sme2:
            return Capabilities(timing=True, sme2=True)
        reason = f"{self.missing_sme2()} {self._note}".strip()
        return Capabilities(timing=True, sme2=False, reason=reason, sme1=self._sme1)

    def missing_sme2(self) -> str:
        """Why there is no SME2."""
        return f"this machine's CPU ({platform.machine()}) has no SME2."

    def run(self, runner: Runner, request: RunRequest, folder: Path) -> Run:
        job = Job(runner, request, folder)
        check_request(self, job)
        return self._watched([run_here(self.name, job, emulated=False)])[0]

    def run_in_turns(self, jobs: Sequence[Job]) -> list[Run]:
        """One process per job, on one core if the system can pin processes.

        On two cores each process would have different noise. Several threads need several cores.
        """
        for job in jobs:
            check_request(self, job)
        alone = all(job.request.threads == 1 and not job.request.cpus for job in jobs)
        fastest = self.pinned(threads=1) if alone else ()
        cpus = (secrets.choice(fastest),) if fastest else ()
        return self._watched(run_here_in_turns(self.name, jobs, cpus=cpus))

    def _watched(self, runs: list[Run]) -> list[Run]:
        """Marked where a core's highest clock is not what it was at the start."""
        now = {core.number: {core.cap_khz} for core in self.cores}
        changes = [clock_change(self._at_start, now, run.request.cpus) for run in runs]
        return [
            replace(run, clock_change=change) if change else run
            for run, change in zip(runs, changes, strict=True)
        ]

    @property
    def cores(self) -> tuple[Core, ...]:
        if not hasattr(os, "sched_getaffinity"):
            return tuple(Core(number, 0) for number in range(os.cpu_count() or 1))
        available = sorted(os.sched_getaffinity(0))
        return tuple(_read_core(core, CPU_FOLDER / f"cpu{core}") for core in available)

    def pinned(self, threads: int, *, mixed: bool = True) -> tuple[int, ...]:
        can_pin = hasattr(os, "sched_getaffinity")
        return pick_cores((), self.cores, threads) if can_pin else ()

    def conditions(self) -> dict[str, str]:
        caps = caps_text(self.cores)
        return {**local_conditions(), **({"clock caps": caps} if caps else {})}

    def thermal(self) -> Thermal:
        caps = [core.cap_khz for core in self.cores if core.cap_khz]
        return Thermal(_celsius(SYSTEM), max(caps) / 1e6 if caps else None)

    def fingerprint(self) -> Fingerprint:
        facts = self.facts()
        facts["platform"] = self.platform
        facts["sme2"] = "yes" if self._sme2 else SME1_ONLY if self._sme1 else "no"
        return Fingerprint(target=self.name, facts=tuple(sorted(facts.items())))

    def facts(self) -> dict[str, str]:
        """What its times depend on."""
        return {
            "cores": str(os.cpu_count()),
            "cpu": cpu_name(_read(Path("/proc/cpuinfo"))),
            "os": "Linux",
            # A Linux on a Mac: its cores are virtual, and macOS decides where they run.
            **({"guest": "of a Mac"} if _read(PRODUCT).startswith("Apple Virtual") else {}),
            **below_highest(self._at_start),
        }


def cpu_has(feature: str, platform_name: str) -> bool:
    """Whether the system reports ``sme`` or ``sme2`` for the CPU of this machine."""
    if platform_name == LINUX_AARCH64:
        return _hwcap2() & _HWCAP2[feature] != 0
    if platform_name == MACOS_ARM64:
        return sysctl(f"hw.optional.arm.FEAT_{feature.upper()}") == "1"
    return False


def _hwcap2() -> int:
    """The CPU features that Linux tells this process."""
    getauxval = ctypes.CDLL(None).getauxval
    getauxval.restype = ctypes.c_ulong
    return int(getauxval(ctypes.c_ulong(_AT_HWCAP2)))


def _read_core(number: int, folder: Path) -> Core:
    texts = (_read(folder / "cpufreq" / f"{name}_max_freq") for name in ("cpuinfo", "scaling"))
    return Core(number, *(int(text) if text.isdecimal() else 0 for text in texts))


def cpu_name(cpuinfo: str) -> str:
    """What ``/proc/cpuinfo`` says the cores are: model names, else Arm implementers and parts."""
    names = re.findall(r"^model name\s*:\s*(.+?)\s*$", cpuinfo, re.MULTILINE)
    counts = sorted(Counter(names or parse_core_parts(cpuinfo)).items())
    return ", ".join(f"{count}x {name}" for name, count in counts) or "unknown"


SYSTEM = Path("/sys")
VECTOR_LENGTH = Path("/proc/sys/abi/sme_default_vector_length")


def local_conditions(system: Path = SYSTEM) -> dict[str, str]:
    """Kernel, governor, clock and temperature; what the system does not show is left out."""
    frequency = system / "devices" / "system" / "cpu" / "cpu0" / "cpufreq"
    clock = _read(frequency / "scaling_cur_freq")
    found = {
        "kernel": f"{platform.system()} {platform.release()}",
        "governor": _read(frequency / "scaling_governor"),
        "clock": f"{int(clock) / 1e3:.0f} MHz" if clock.isdigit() else "",
        "temperature": "" if (celsius := _celsius(system)) is None else f"{celsius:.0f} C",
    }
    return {name: value for name, value in found.items() if value}


def sme_vector_bits(path: Path = VECTOR_LENGTH) -> int | None:
    """The streaming vector length that Linux gives a new process; None where there is no SME."""
    text = _read(path)
    return 8 * int(text) if text.isdigit() and int(text) > 0 else None


def _celsius(system: Path) -> float | None:
    """Of the hottest zone that is named after the CPU."""
    zones = sorted((system / "class" / "thermal").glob("thermal_zone*"))
    values = [_read(zone / "temp") for zone in zones if "cpu" in _read(zone / "type").lower()]
    known = [int(value) for value in values if value.isdigit()]
    return max(known) / 1e3 if known else None


def _read(path: Path) -> str:
    """What a file of the system says; nothing where there is none, as without /proc."""
    try:
        return path.read_text("utf-8", "replace").strip()
    except OSError:
        return ""


COOL_SECONDS = 300.0
_INTERVAL_SECONDS = 5.0


class MacTarget(LocalTarget):
    """A Mac with Apple silicon."""

    _awake: subprocess.Popen[bytes] | None = None
    _power_mode = ""
    _given_up = False
    waited = 0.0

    @property
    def cpu(self) -> str:
        return platforms.sysctl("machdep.cpu.brand_string")

    def missing_sme2(self) -> str:
        if platforms.is_virtual_machine():
            return (
                f"this Mac ({self.cpu}) is a virtual machine that has no SME2. Use the Mac itself, "
                "if it is an M4 or newer."
            )
        return f"this Mac's chip ({self.cpu}) has no SME2; the M4 and newer have it."

    def prepare(self) -> None:
        """Keep it awake until ``restore``, or until this process ends."""
        if self._awake is None and Path(platforms.CAFFEINATE).exists():
            self._awake = subprocess.Popen([platforms.CAFFEINATE, "-dims", "-w", str(os.getpid())])

    def restore(self) -> None:
        awake, self._awake = self._awake, None
        if awake is not None:
            awake.terminate()
            awake.wait()

    def cool_down(self) -> None:
        """Wait until the system does not slow the chip down against heat."""
        waited = 0.0
        while platforms.slows_down(pressure := platforms.read_pressure()):
            if waited >= COOL_SECONDS or self._given_up:
                if not self._given_up:
                    text = (
                        f"This Mac was still hot after a wait of {COOL_SECONDS:.0f} s: thermal "
                        f"pressure is {pressure}. It is measured all the same, and throttled pairs "
                        "are repeated. Stop what else runs on it, and let it cool."
                    )
                    warnings.warn(Sme2Warning(text), stacklevel=2)
                self._given_up = True
                return
            time.sleep(_INTERVAL_SECONDS)
            waited += _INTERVAL_SECONDS
            self.waited += _INTERVAL_SECONDS
        self._given_up = False

    @property
    def waited_seconds(self) -> float:
        return self.waited

    def state(self) -> dict[str, str]:
        guest = {"virtual machine": "yes"} if platforms.is_virtual_machine() else {}
        return {"macOS": platforms.macos_version(), **guest, **platforms.read_power().facts()}

    def conditions(self) -> dict[str, str]:
        return {**super().conditions(), **platforms.read_power().facts()}

    def _watched(self, runs: list[Run]) -> list[Run]:
        """Marked where the system slowed the chip down; it takes longer to cool than to measure."""
        hot = platforms.slows_down(platforms.read_pressure())
        return [replace(run, throttled=True) for run in runs] if hot else runs

    def facts(self) -> dict[str, str]:
        """Low power mode makes another machine of it, so it belongs to the fingerprint."""
        if not self._power_mode:
            mode = platforms.read_power().mode
            # A Mac that does not tell has no other mode.
            self._power_mode = "normal" if mode == platforms.UNKNOWN else mode
        return {
            "cores": str(os.cpu_count()),
            "cpu": self.cpu,
            "model": platforms.sysctl("hw.model"),
            "os": f"macOS {platforms.macos_version().partition('.')[0]}",
            "power_mode": self._power_mode,
            **({"guest": "yes"} if platforms.is_virtual_machine() else {}),
        }


def this_machine(*, note: str = "") -> LocalTarget:
    """The machine that this runs on."""
    return (MacTarget if host_platform() == MACOS_ARM64 else LocalTarget)(note=note)
