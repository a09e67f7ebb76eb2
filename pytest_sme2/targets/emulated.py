"""SME2 on a machine without it: a Linux process in QEMU's user mode.

The instructions are real, so operators, kernels and outputs are exact; times mean nothing.
"""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from pathlib import Path

from pytest_sme2.errors import UsageError
from pytest_sme2.results import SME1_ONLY, Arm, Capabilities, Fingerprint, Run, RunRequest
from pytest_sme2.runners.base import Runner
from pytest_sme2.system.platforms import LINUX_AARCH64
from pytest_sme2.system.qemu import DEFAULT_CPU, EmulatedCpu, Qemu
from pytest_sme2.targets.base import check_request, run_here
from pytest_sme2.targets.guest import guest_options
from pytest_sme2.targets.local import check_cpus

SWITCHES = ("cpu", "runner")

# On x86, QEMU's translated code uses 256-bit AVX and its own functions plain SSE. Where one of them
# calls the C library's fused multiply-add, in AVX again, the processor changes states at every
# step: without it, emulated SME2 in fp32 is six times faster, and the same to the last bit.
_FAST_ON_X86 = {"GLIBC_TUNABLES": "glibc.cpu.hwcaps=-FMA,-FMA4"}


class EmulatedTarget:
    """An emulated CPU with SME2, and one without.

    ``switch`` says what turns SME2 off: ``cpu``, the emulated CPU has none; ``runner``, the CPU
    keeps it and the runner alone hides it, as it must on hardware.
    """

    name = "emulated"
    platform = LINUX_AARCH64

    def __init__(
        self,
        qemu: Qemu,
        *,
        switch: str = "cpu",
        options: Sequence[str] = (),
        before: Sequence[str] = (),
        cpu: EmulatedCpu = DEFAULT_CPU,
    ) -> None:
        """``options`` are further ones of QEMU, such as those that log what it executes.

        ``before`` stands before QEMU in its command: a program that starts it.
        """
        if switch not in SWITCHES:
            raise UsageError(
                f"{switch!r} does not switch SME2. Choose one of: {', '.join(SWITCHES)}."
            )
        self.qemu = qemu
        self.cpu = cpu
        self._switch = switch
        self._options = tuple(options)
        self._before = tuple(before)

    def with_options(self, *options: str, before: Sequence[str] = ()) -> EmulatedTarget:
        """The same target, with these options of QEMU on top."""
        return EmulatedTarget(
            self.qemu,
            switch=self._switch,
            options=(*self._options, *options),
            before=before,
            cpu=self.cpu,
        )

    def capabilities(self) -> Capabilities:
        return Capabilities(
            timing=False,
            sme2=not self.cpu.sme1,
            reason="the CPU is emulated, so its times say nothing about hardware.",
            sme1=self.cpu.sme1,
        )

    def prepare(self) -> None:
        """An emulator has no settings to change."""

    def put(self, files: Sequence[Path]) -> None:
        """The files are already here."""

    def restore(self) -> None:
        """Nothing was changed."""

    def launcher(self, arm: Arm) -> tuple[str, ...]:
        """What stands before the runner's own command."""
        cpu = self.cpu.model(arm if self._switch == "cpu" else Arm.ON)
        pinned = guest_options()
        emulator = str(self.qemu.path.absolute())
        return (*self._before, emulator, "-cpu", cpu, *pinned, *self._options)

    @property
    def environment(self) -> Mapping[str, str]:
        """What the emulator itself needs to see, beside the usual."""
        return _FAST_ON_X86 if platform.machine() in ("x86_64", "AMD64") else {}

    def run(self, runner: Runner, request: RunRequest, folder: Path) -> Run:
        check_request(self.name, self.platform, self.capabilities(), runner, request)
        check_cpus(request.cpus)
        return run_here(
            self.name,
            runner,
            request,
            folder,
            emulated=True,
            launcher=self.launcher(request.arm),
            environment=self.environment,
            cpus=request.cpus,
        )

    def fingerprint(self) -> Fingerprint:
        facts = {"cpu": self.cpu.model(Arm.ON), "qemu": self.qemu.version}
        if self.cpu.sme1:
            facts["sme2"] = SME1_ONLY
        return Fingerprint(target=self.name, facts=tuple(sorted(facts.items())))
