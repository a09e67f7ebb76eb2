"""A device of known times on a virtual clock, for tests of what a session does with a device."""

from __future__ import annotations

import contextlib
import random
import shutil
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from pytest_sme2.results.run import Arm, Capabilities, Fingerprint, Run, RunRequest
from pytest_sme2.runners.base import LeftFiles, ProcessFiles, Runner
from pytest_sme2.session.device import HeldDevice
from pytest_sme2.targets.base import Target
from pytest_sme2.targets.phone.answers import Core, pick_cores
from tests.support import ETDUMPS

BASE_NS = 3e6


@dataclass(frozen=True)
class PretendedRunner(Runner):
    """Has no files, and is never started."""

    kind: str = "wheel"
    platform: str = "linux-aarch64"
    executorch: str = "1.5.1"
    folder: Path = Path("runner")
    generates = True

    def files(self, arm: Arm) -> tuple[Path, ...]:
        return ()

    def command(self, request: RunRequest, files: ProcessFiles) -> tuple[str, ...]:
        raise AssertionError("a pretended target starts nothing")

    def explain(self, returncode: int, stderr: str) -> str | None:
        return None

    def read_result(self, request: RunRequest, left: LeftFiles) -> Run:
        raise AssertionError("a pretended target starts nothing")


@dataclass
class PretendedTarget(Target):
    """SME2 makes programs twice as fast; traced runs leave the ETDumps of a real one."""

    sme2: bool = True
    timing: bool = True
    slower: dict[str, float] = field(default_factory=dict)
    """By the hash of a program: how many times longer it takes."""
    dumps: dict[str, str] = field(default_factory=dict)
    """By the hash of a program: which ETDump it leaves, ``toy_fp16_{arm}`` where none is named."""
    factors: dict[tuple[Arm, int], float] = field(default_factory=dict)
    """By the arm and the number of threads: how many times longer it takes."""
    steps: dict[str, tuple[float, ...]] = field(default_factory=dict)
    """By the hash of a program: how many times longer each step of a generation takes."""
    cores: tuple[Core, ...] = ()
    stuck: bool = False
    """Whether the runner says that SME2 was off in either arm."""
    failures: list[Exception] = field(default_factory=list)
    """What the next runs raise."""
    requests: list[tuple[RunRequest, Path]] = field(default_factory=list)
    events: list[str] = field(default_factory=list)
    now: float = 0.0

    name = "linux"
    platform = "linux-aarch64"

    def __post_init__(self) -> None:
        self.random = random.Random(5)

    def clock(self) -> float:
        return self.now

    def capabilities(self) -> Capabilities:
        return Capabilities(self.timing, self.sme2, "It is pretended.")

    def fingerprint(self) -> Fingerprint:
        return Fingerprint(self.name, (("cpu", "pretended"),))

    def pinned(self, threads: int, *, mixed: bool = True) -> tuple[int, ...]:
        return pick_cores((), self.cores, threads)

    def prepare(self) -> None:
        self.events.append("prepare")

    def restore(self) -> None:
        self.events.append("restore")

    def run(self, runner: Runner, request: RunRequest, folder: Path) -> Run:
        self.requests.append((request, folder))
        if self.failures:
            raise self.failures.pop(0)
        program = request.artifact.sha256
        level = BASE_NS * self.slower.get(program, 1.0) / (2 if request.arm is Arm.ON else 1)
        level *= self.factors.get((request.arm, request.threads), 1.0)
        level *= 1 + self.random.gauss(0, 0.003)
        wall = tuple(
            int(level * (1 + abs(self.random.gauss(0, 0.003)))) for _ in range(request.runs)
        )
        steps: tuple[int, ...] = ()
        if request.generate:
            every = self.steps[program] * request.runs
            steps = tuple(int(level * by * (1 + self.random.gauss(0, 0.02))) for by in every)
            each = request.inferences // request.runs
            wall = tuple(sum(steps[at : at + each]) for at in range(0, len(steps), each))
            level *= each
        self.now += 0.02 + (sum(wall) + request.warmup * level) / 1e9
        folder.mkdir(parents=True, exist_ok=True)
        log = folder / "runner.log"
        log.write_text("pretended\n")
        etdump = None
        if request.traced:
            dump = self.dumps.get(program, "toy_fp16_{arm}").format(arm=request.arm)
            etdump = Path(shutil.copy(ETDUMPS / f"cpp_{dump}.etdump", folder / "run.etdump"))
        return Run(
            request=request,
            target=self.name,
            runner=runner.kind,
            emulated=not self.timing,
            sme2_effective=request.arm is Arm.ON and not self.stuck,
            wall_ns=wall,
            cpu_ns=wall,
            peak_rss_bytes=50_000_000,
            step_wall_ns=steps,
            step_peak_bytes=(50_000_000,) * len(steps),
            etdump=etdump,
            log=log,
        )


def use(target: PretendedTarget, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every session of this test runs on ``target``, with its clock, alone on this machine."""
    monkeypatch.setattr(
        "pytest_sme2.session.device.choose_target", lambda *arguments, **choices: target
    )
    monkeypatch.setattr(
        "pytest_sme2.runners.sme2.wheel_runner", lambda platform, **choices: PretendedRunner()
    )
    monkeypatch.setattr(HeldDevice, "clock", staticmethod(target.clock))
    monkeypatch.setattr(HeldDevice, "exclusively", lambda bench: contextlib.nullcontext())
