"""What a case is run with: the device, the runner, and the request for one process."""

from __future__ import annotations

import contextlib
import functools
import importlib.metadata
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from pytest_sme2.errors import NotMeasurableError, Sme2Error, TargetError
from pytest_sme2.results import (
    PAIR,
    Arm,
    Artifact,
    Capabilities,
    KernelCensus,
    PairedTiming,
    Run,
    RunRequest,
)
from pytest_sme2.session.device import HeldDevice
from pytest_sme2.session.settings import Settings
from pytest_sme2.system import platforms
from pytest_sme2.system.locks import machine_lock, shared_lock
from pytest_sme2.targets.local import MacTarget
from pytest_sme2.targets.phone.silicon import check_threads
from pytest_sme2.timing.pairs import StillOpen, measure_pairs
from pytest_sme2.timing.processes import Starter, starter_on
from pytest_sme2.timing.sampling import BLOCK_PAIRS, SamplingPlan

if TYPE_CHECKING:
    from pytest_sme2.runners.base import Runner
    from pytest_sme2.targets.base import Job, Target

_Value = TypeVar("_Value")

# An emulator is some hundred times slower than a device, and slower still on a busy machine.
EMULATED_SECONDS = 3600.0


class Bench(HeldDevice):
    """One device with its runner."""

    clock = staticmethod(time.monotonic)
    """What time budgets are measured with."""
    blocks_due = BLOCK_PAIRS
    """How many pairs in long blocks the run still owes; its first pairs in turns pay them."""

    @property
    def target(self) -> Target:
        """The target, ready to run."""
        target = self.prepared
        if self.settings.require_sme2 and not target.capabilities().sme2:
            self.missing = TargetError(
                f"--sme2-require: {target.name} has no SME2: {target.capabilities().reason} "
                "Choose another device with --device, or leave --sme2-require out."
            )
            raise self.missing
        return target

    @functools.cached_property
    def runner(self) -> Runner:
        from pytest_sme2.runners.sme2 import wheel_runner
        from pytest_sme2.runners.stock import pair_runner
        from pytest_sme2.session.bundle import open_bundle, phone_runner

        settings, phone = self.settings, self.settings.device == "android"
        if settings.runners is not None:
            return pair_runner(*settings.runners)
        if phone and settings.device_bundle is not None:
            return open_bundle(settings.device_bundle).runner
        make = phone_runner if phone else wheel_runner
        return make(self.target.platform, progress=self.say, fresh=settings.fresh)

    def check_runner(self) -> None:
        """An error if the runner cannot be made, without making it. A missing device is reported by
        what needs it, and a phone is not taken for this.
        """
        from pytest_sme2.runners.sme2 import check_wheel_runner

        settings = self.settings
        if "runner" in self.__dict__ or settings.runners or settings.device == "android":
            return
        with contextlib.suppress(TargetError, NotMeasurableError):
            check_wheel_runner(self.chosen.platform)

    @property
    def arms(self) -> tuple[Arm, ...]:
        """Both arms and the one that was asked for; the off arm alone where there is no SME."""
        able = self.target.capabilities()
        if not able.switches:
            return (Arm.OFF,)
        # On a chip without SME2, on is SME1 already.
        if Arm.SME1 not in self.settings.arms or not able.sme2:
            return PAIR
        if able.timing:
            raise TargetError(
                f"The arm sme1 is for the emulator: {self.target.name} is timed in pairs of on and "
                "off. Give --device=emulated, or leave --sme2-arms out."
            )
        return (*PAIR, Arm.SME1)

    @property
    def timed(self) -> bool:
        """Whether times of the target mean anything."""
        return self.target.capabilities().timing

    def require_timing(self) -> None:
        able = self.target.capabilities()
        if not able.timing:
            raise NotMeasurableError(f"{self.target.name} cannot measure time: {able.reason}")

    def require_sme2(self) -> None:
        able = self.target.capabilities()
        if not able.switches:
            raise NotMeasurableError(f"{self.target.name} has no SME2: {able.reason}")

    def request(self, artifact: Artifact, arm: Arm, threads: int, **choices: Any) -> RunRequest:
        """One process; ``choices`` are further fields of the request."""
        request = RunRequest(artifact=artifact, arm=arm, threads=threads)
        if not self.timed:
            sme1 = self.target.capabilities().sme1
            request = replace(request, timeout_seconds=EMULATED_SECONDS, sme1=sme1)
        else:
            check_threads(threads, self.target.cores)
        return replace(request, **choices)

    def redo(self, measure: Callable[[], _Value]) -> _Value:
        """``measure()``, again from the start where the connection to the device was lost."""
        from pytest_sme2.targets.phone.leases import Recoverable, redo_when_lost

        if not isinstance(self.target, Recoverable):
            return measure()
        patience = self.settings.patience_seconds
        return redo_when_lost(self.target, measure, patience_seconds=patience, progress=self.say)

    def run(self, request: RunRequest, folder: Path, runner: Runner | None = None) -> Run:
        """One process of the runner, or of another one, on the target."""
        return self.redo(lambda: self.target.run(runner or self.runner, request, folder))

    def kernels(
        self, request: RunRequest, folder: Path, runner: Runner | None = None
    ) -> KernelCensus:
        """The kernels of one inference."""
        from pytest_sme2.targets.census import collect_census

        return self.redo(
            lambda: collect_census(self.target, runner or self.runner, request, folder)
        )

    @contextlib.contextmanager
    def exclusively(self) -> Iterator[None]:
        """One measurement at a time on one machine, across all processes; a phone is leased."""
        if self.settings.device == "android":
            yield
            return
        # One for the machine, not for the cache: two caches share the same cores.
        lock = machine_lock("measuring")
        with shared_lock(lock, "measuring on this machine", say=self.say, timeout_seconds=-1):
            yield

    def cool_down(self) -> None:
        """Before a block of timed processes: wait for a device that gets hot."""
        self.redo(self.target.cool_down)

    def conditions(self) -> Mapping[str, str]:
        """What may change the speed of the device from day to day, where it shows that."""
        return self.redo(self.target.conditions)

    def plan(self, **choices: Any) -> SamplingPlan:
        """For so long as the run's settings say; only the ratio is asked for unless chosen."""
        given: dict[str, Any] = {
            "threshold": None,
            "budget_seconds": self.settings.budget_seconds,
            "limit_seconds": self.settings.limit_seconds,
        }
        return SamplingPlan(**given | choices)

    def starter(self, jobs: Mapping[str, Job], **choices: Any) -> Starter:
        """Starts processes on the target; ``choices`` are further ones of ``starter_on``."""
        return starter_on(self.target, jobs, clock=self.clock, redo=self.redo, **choices)

    def measure_pairs(
        self, title: str, starter: Starter, plan: SamplingPlan, still_open: StillOpen | None = None
    ) -> PairedTiming:
        """Of the starter's two jobs, the reference first."""
        reference, candidate = starter.runs

        def progress(line: str) -> None:
            self.say(f"{title}: {line}")

        return measure_pairs(starter, reference, candidate, plan, progress, still_open)


def sme_word(able: Capabilities) -> str:
    """What a device has of SME."""
    return "SME2" if able.sme2 else "SME1, no SME2" if able.sme1 else "no SME2"


def header_lines(bench: Bench) -> list[str]:
    settings = bench.settings
    if settings.device == "android":
        return [f"sme2: device android ({_phone_words(settings)})"]
    try:
        target = bench.chosen
        able = target.capabilities()
    except Sme2Error as error:
        return [f"sme2: --device={settings.device} cannot be used: {error}"]
    times = "timing" if able.timing else "structure only, no timing"
    try:
        version = f"ExecuTorch {importlib.metadata.version('executorch')}"
    except importlib.metadata.PackageNotFoundError:
        version = "ExecuTorch not installed"
    chosen = "auto: " if settings.device == "auto" else ""
    lines = [
        *(f"sme2: {note}" for note in bench.notes),
        f"sme2: device {chosen}{target.name} ({sme_word(able)}, {times}), {version}",
    ]
    if isinstance(target, MacTarget):
        state = ", ".join(f"{name} {value}" for name, value in target.state().items())
        lines.append(f"sme2: {target.cpu}, {state}")
        lines += [f"sme2: warning: {warning}" for warning in platforms.read_power().warnings]
    return lines


def _phone_words(settings: Settings) -> str:
    """Which phones, without reaching for one: a worker leases it when it measures."""
    if settings.fake_phone:
        return "a fake phone in a sandbox on this machine, emulated: no timing"
    if settings.lab is not None:
        tags = ", ".join(f"{name}={value}" for name, value in settings.lab_filter.items())
        return f"from the labgrid coordinator {settings.lab}; {tags or 'any place'}"
    serials = ", ".join(settings.serials) or "the attached one"
    return f"{serials}; power mode {settings.power_mode}"
