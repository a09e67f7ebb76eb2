"""A pretended device for the real session: known programs, a virtual clock, noise from a seed.

Everything above the device is the product's own: measuring, baselines, gate, reports. The spreads
are those seen on real machines: process medians vary by 0.4 %, runs by 0.5 %, sessions by up to
several percent, and a neighbour on the same core makes everything slower for tenths of a second.
"""

from __future__ import annotations

import contextlib
import math
import random
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pytest_sme2.results.run import Arm, Artifact, Capabilities, Fingerprint, Run, RunRequest
from pytest_sme2.runners.base import Runner
from pytest_sme2.session.device import HeldDevice
from pytest_sme2.session.reference import OpenReference
from pytest_sme2.session.session import Session
from pytest_sme2.session.settings import Reference
from pytest_sme2.targets.base import Job, Target
from pytest_sme2.timing.processes import PROGRAM, selfcheck_artifact
from tests.support import ETDUMPS

PLATFORM = "linux-aarch64"
YARDSTICK_NS = 1e6
PROCESS_SPREAD, RUN_SPREAD = 0.004, 0.005
START_SECONDS = 0.02


@dataclass
class Burst:
    """A neighbour that comes and goes; no clock of the process shows it."""

    quiet_seconds: float = 0.4
    busy_seconds: float = 0.1
    factors: tuple[float, ...] = (1.3, 1.7, 2.5)


@dataclass
class PretendedDevice(Target):
    """Runs programs whose time is known: in nanoseconds, by hash and arm."""

    programs: dict[str, Mapping[Arm, float]] = field(default_factory=dict)
    seed: int = 0
    session_spread: float = 0.0
    """How far one session's speed strays from another's; most of it the yardstick feels, too."""
    burst: Burst | None = None
    interference: float = 0.0
    """Wall time over CPU time, less 1, of every process."""
    speed: float = 1.0
    """How much slower the whole machine is."""
    sme2: bool = True
    now: float = 0.0
    name: str = "linux"
    platform: str = PLATFORM

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        self.until, self.factor = 0.0, 1.0
        self.new_session()

    def new_session(self) -> None:
        """Another time of day: heat, memory layout and neighbours are not what they were."""
        self.common = math.exp(self.random.gauss(0, 0.9 * self.session_spread))
        # Programs feel the machine's state differently from the yardstick, but like each other.
        self.apart = math.exp(self.random.gauss(0, 0.4 * self.session_spread))

    def clock(self) -> float:
        return self.now

    def capabilities(self) -> Capabilities:
        return Capabilities(timing=True, sme2=self.sme2, reason="" if self.sme2 else "It has none.")

    def fingerprint(self) -> Fingerprint:
        return Fingerprint("linux", (("cpu", "pretended"),))

    def run(self, runner: Runner, request: RunRequest, folder: Path) -> Run:
        self.now += START_SECONDS
        level = self._level(request)
        for _ in range(request.warmup):
            self._infer(level)
        return self._ended(request, [self._infer(level) for _ in range(request.runs)], folder)

    def run_in_turns(self, jobs: Sequence[Job]) -> list[Run]:
        """Run by run; who goes first alternates, as it does on a real machine."""
        self.now += START_SECONDS * len(jobs)
        levels = [self._level(job.request) for job in jobs]
        times: list[list[float]] = [[] for _ in jobs]
        request = jobs[0].request
        for level in levels:
            for _ in range(request.warmup):
                self._infer(level)
        turn = request.turn.runs if request.turn else 1
        lead = request.turn.lead if request.turn else 0
        order = list(range(len(jobs)))
        while len(times[0]) < request.runs:
            for index in order:
                for _ in range(lead):
                    self._infer(levels[index])
                for _ in range(min(turn, request.runs - len(times[index]))):
                    times[index].append(self._infer(levels[index]))
            order.reverse()
        return [
            self._ended(job.request, found, job.folder)
            for job, found in zip(jobs, times, strict=True)
        ]

    def _level(self, request: RunRequest) -> float:
        sha = request.artifact.sha256
        if sha == selfcheck_artifact().sha256:
            known = YARDSTICK_NS * self.common
        else:
            known = self.programs[sha][request.arm] * self.common * self.apart
        return known * self.speed * math.exp(self.random.gauss(0, PROCESS_SPREAD))

    def _infer(self, level: float) -> float:
        work = level * (1 + abs(self.random.gauss(0, RUN_SPREAD))) * (1 + self.interference) / 1e9
        begun = self.now
        # A long run lasts through several spells of the neighbour.
        while self.burst is not None:
            self._meet_neighbour(self.burst)
            left = self.until - self.now
            if work * self.factor <= left:
                break
            work -= left / self.factor
            self.now = self.until
        self.now += work * self.factor
        return (self.now - begun) * 1e9 / (1 + self.interference)

    def _meet_neighbour(self, burst: Burst) -> None:
        while self.now >= self.until:
            comes = self.factor == 1.0
            self.factor = self.random.choice(burst.factors) if comes else 1.0
            usual = burst.busy_seconds if comes else burst.quiet_seconds
            self.until = max(self.until, self.now) + self.random.expovariate(1 / usual)

    def _ended(self, request: RunRequest, times: Sequence[float], folder: Path) -> Run:
        etdump = None
        if request.traced:
            folder.mkdir(parents=True, exist_ok=True)
            etdump = folder / "run.etdump"
            shutil.copy(ETDUMPS / f"cpp_toy_fp32_{request.arm}.etdump", etdump)
        return Run(
            request=request,
            target=self.name,
            runner="wheel",
            emulated=False,
            sme2_effective=request.arm is Arm.ON,
            wall_ns=tuple(round(value * (1 + self.interference)) for value in times),
            cpu_ns=tuple(round(value) for value in times),
            load_ns=round(5e6 * math.exp(self.random.gauss(0, PROCESS_SPREAD))),
            peak_rss_load_bytes=10_000_000,
            peak_rss_bytes=20_000_000,
            etdump=etdump,
        )


@dataclass(frozen=True)
class PretendedRunner:
    """What the session asks of a runner; a pretended device starts no process."""

    kind: str = "wheel"
    platform: str = PLATFORM
    executorch: str = "1.5.1"
    sha256: str = "f" * 64
    takes_turns: bool = True
    generates: bool = False


def program(name: str) -> Artifact:
    """A program of this name; another name is another program."""
    digest = name.encode().hex().ljust(64, "0")[:64]
    return replace(selfcheck_artifact(), model="toy", pte=PROGRAM, sha256=digest)


def pretend(
    patch: Any, device: PretendedDevice, current: Artifact, kept: Artifact | None = None
) -> None:
    """Let every session measure ``current`` on the device. ``kept`` is what the baseline measured,
    where it is still at hand. ``patch`` is pytest's monkeypatch, or has its ``setattr``.
    """
    runner: Any = PretendedRunner()

    def reference(_session: Session, case: Any) -> OpenReference | None:
        if kept is None:
            return None
        key = (case.model, str(case.variant))
        return OpenReference(Reference("baseline", "the baseline's program"), runner, {key: kept})

    patch.setattr(HeldDevice, "target", property(lambda _bench: device))
    patch.setattr(HeldDevice, "chosen", property(lambda _bench: device))
    patch.setattr(HeldDevice, "runner", runner)
    patch.setattr(
        Session,
        "artifact",
        lambda _session, case: replace(current, model=case.model, variant=str(case.variant)),
    )
    patch.setattr(Session, "baseline_reference", reference)
    patch.setattr(HeldDevice, "clock", staticmethod(device.clock))
    # Nobody else is on a pretended device.
    patch.setattr(HeldDevice, "exclusively", lambda _bench: contextlib.nullcontext())
