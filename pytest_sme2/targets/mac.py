"""A Mac as a target: kept awake while it measures, waited for while it is hot."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from pytest_sme2.errors import TargetError
from pytest_sme2.results import Run, RunRequest
from pytest_sme2.runners.base import Runner
from pytest_sme2.system import macos
from pytest_sme2.system.platforms import MACOS_ARM64, host_platform
from pytest_sme2.targets.base import Job
from pytest_sme2.targets.local import LocalTarget

COOL_SECONDS = 300.0
_INTERVAL_SECONDS = 5.0


class MacTarget(LocalTarget):
    """A Mac with Apple silicon."""

    def __init__(self, *, note: str = "", sleep: Callable[[float], None] = time.sleep) -> None:
        super().__init__(note=note)
        self._sleep = sleep
        self._awake: subprocess.Popen[bytes] | None = None
        self._power_mode = ""

    @property
    def cpu(self) -> str:
        return macos.sysctl("machdep.cpu.brand_string")

    def missing_sme2(self) -> str:
        """Why there is no SME2."""
        if macos.is_virtual_machine():
            return (
                f"this Mac ({self.cpu}) is a virtual machine that has no SME2. Use the Mac itself, "
                "if it is an M4 or newer."
            )
        return f"this Mac's chip ({self.cpu}) has no SME2; the M4 and newer have it."

    def prepare(self) -> None:
        """Keep it awake until ``restore``, or until this process ends."""
        if self._awake is None and Path(macos.CAFFEINATE).exists():
            self._awake = subprocess.Popen([macos.CAFFEINATE, "-dims", "-w", str(os.getpid())])

    def restore(self) -> None:
        awake, self._awake = self._awake, None
        if awake is not None:
            awake.terminate()
            awake.wait()

    def cool_down(self) -> None:
        """Wait until the system does not slow the chip down against heat."""
        waited = 0.0
        while macos.slows_down(pressure := macos.read_pressure()):
            if waited >= COOL_SECONDS:
                raise TargetError(
                    f"This Mac is still too hot to measure after {COOL_SECONDS:.0f} s: thermal "
                    f"pressure is {pressure}. Stop what else runs on it, and let it cool."
                )
            self._sleep(_INTERVAL_SECONDS)
            waited += _INTERVAL_SECONDS

    def state(self) -> dict[str, str]:
        return {"macOS": macos.macos_version(), **macos.read_power().facts()}

    def conditions(self) -> dict[str, str]:
        return {**super().conditions(), **macos.read_power().facts()}

    def run(self, runner: Runner, request: RunRequest, folder: Path) -> Run:
        return self._watched([super().run(runner, request, folder)])[0]

    def run_in_turns(self, jobs: Sequence[Job]) -> list[Run]:
        return self._watched(super().run_in_turns(jobs))

    def _watched(self, runs: list[Run]) -> list[Run]:
        """Marked where the system slowed the chip down; it takes longer to cool than to measure."""
        hot = macos.slows_down(macos.read_pressure())
        return [replace(run, throttled=True) for run in runs] if hot else runs

    def facts(self) -> dict[str, str]:
        """Low power mode makes another machine of it, so it belongs to the fingerprint."""
        if not self._power_mode:
            mode = macos.read_power().mode
            # A Mac that does not tell has no other mode.
            self._power_mode = "normal" if mode == macos.UNKNOWN else mode
        return {
            "cores": str(os.cpu_count()),
            "cpu": self.cpu,
            "model": macos.sysctl("hw.model"),
            "os": f"macOS {macos.macos_version().partition('.')[0]}",
            "power_mode": self._power_mode,
        }


def this_machine(*, note: str = "") -> LocalTarget:
    """The machine that this runs on."""
    if host_platform() == MACOS_ARM64:
        return MacTarget(note=note)
    return LocalTarget(note=note)
