"""What the whole gate says about real programs on this machine, where the truth is known.

    python -m benchmarks.detection_gate collect --minutes 60   # as often as you like; it resumes
    python -m benchmarks.detection_gate report

Every verdict is the product's own from end to end: a session measures the program with real
processes, compares it with three stored sessions of the reference, and decides doubts by pairs, all
with the default time budget. The programs are chains of equal convolutions, so the true slowdown is
known by construction. An equal program has other weights, so that its bytes differ.

A verdict is green where the test passes, with or without a warning. The limits: no slowdown of 5 %
or more is green, and at most one of 500 equal programs is red, whatever its verdict is called. The
first version missed both: at a load of 15 on two cores, pairs of slow models ruled nothing out.

The load is recorded with every verdict. Sessions are stored even if the machine is busy, which a
user would have to force. Where only the off arm is slower, the on arm is a stand-in that always
runs the reference, so that no SME2 is needed.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.metadata
import math
import os
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.harness import (
    Verdict,
    account,
    append_record,
    finish,
    gate_claims,
    parser_of,
    read_records,
)
from pytest_sme2.export.variant import parse_variant
from pytest_sme2.results.run import Arm, Artifact, Capabilities, Run, RunRequest, TensorSpec
from pytest_sme2.runners.base import Runner
from pytest_sme2.session.cases import Case
from pytest_sme2.session.gate import Gate
from pytest_sme2.session.reference import OpenReference
from pytest_sme2.session.session import Session
from pytest_sme2.session.settings import Reference, Settings
from pytest_sme2.system.cache import cache_folder
from pytest_sme2.targets.base import Job
from pytest_sme2.targets.local import LocalTarget
from pytest_sme2.verdict import baselines
from pytest_sme2.verdict.judging import combine, failing
from tests.support.etdump_programs import lowered

STORED_SESSIONS = 3
VARIANT = "fp32"
EQUAL = 1.0

BURSTS = """
import random, sys, time
busy, quiet, least, most = map(float, sys.argv[1:])
block = bytearray(range(256)) * 4096
def draw(mean):
    return min(most, max(least, random.expovariate(1 / mean)))
while True:
    until = time.monotonic() + draw(busy)
    while time.monotonic() < until:
        block.reverse()
    time.sleep(draw(quiet))
"""


class Bursts(NamedTuple):
    """How long a neighbour is busy and quiet, in seconds; there is one such neighbour a core."""

    busy: float
    quiet: float
    least: float = 0.0
    most: float = math.inf


@dataclass(frozen=True)
class Programs:
    """A reference and slower ones: chains of equal layers."""

    layers: int
    side: int
    channels: int
    slower: Mapping[float, tuple[int, int]]
    """By how many times slower a program is: its layers, and their side."""

    def reference(self) -> Artifact:
        return self.made(self.layers, self.side)

    def candidate(self, factor: float) -> Artifact:
        if factor == EQUAL:
            return self.made(self.layers, self.side, seed=1)
        return self.made(*self.slower[factor])

    def made(self, layers: int, side: int, seed: int = 0) -> Artifact:
        """Exported once. Another seed gives other bytes of the same work."""
        version = importlib.metadata.version("executorch")
        folder = cache_folder() / "benchmarks" / f"executorch-{version}"
        path = folder / f"layers_{layers}_{self.channels}x{side}x{side}_{seed}.pte"
        if not path.is_file():
            folder.mkdir(parents=True, exist_ok=True)
            unfinished = path.with_suffix(".part")
            unfinished.write_bytes(export_layers(layers, side, self.channels, seed))
            unfinished.replace(path)
        tensor = TensorSpec("float32", (1, self.channels, side, side))
        return Artifact(
            model=f"layers_{layers}", variant=VARIANT, folder=folder, pte=path,
            sha256=hashlib.sha256(path.read_bytes()).hexdigest(), inputs=(tensor,),
            outputs=(tensor,), versions={"executorch": version}, weights=f"random (seed {seed})",
        )  # fmt: skip


def export_layers(layers: int, side: int, channels: int, seed: int = 0) -> bytes:
    """A chain of equal 3x3 convolutions, each with its ReLU: what is not a layer is below 0.3 % of
    a hundred of them, so 103 layers are 3 % more work than 100.
    """
    import torch

    torch.manual_seed(seed)
    blocks = []
    for _ in range(layers):
        blocks += [torch.nn.Conv2d(channels, channels, 3, padding=1), torch.nn.ReLU()]
    inputs = (torch.randn(1, channels, side, side),)
    return lowered(torch.export.export(torch.nn.Sequential(*blocks).eval(), inputs))


# 40 of 38 layers: 5 % more also after what is not a layer. Large factors are made of few large
# layers, which are quick to export; the work is that of the factor, to within 1 %.
QUICK = Programs(38, 12, 8, {1.05: (40, 12), 1.3: (50, 12), 2.0: (76, 12)})
SLOW = Programs(20, 64, 64, {1.05: (21, 64), 1.3: (4, 163), 2.0: (4, 202), 3.0: (4, 248)})
MIDDLE = Programs(20, 26, 16, {1.05: (21, 26)})
LONG = Programs(20, 36, 64, {1.05: (21, 36)})
SLOWER = Programs(20, 117, 64, {1.05: (21, 117), 1.3: (4, 298), 2.0: (4, 370), 3.0: (4, 453)})


@dataclass(frozen=True)
class Setting:
    """One kind of program, machine and run, and how many verdicts are planned."""

    name: str
    programs: Programs
    planned: Mapping[float, int]
    bursts: Bursts | None = None
    only_off: bool = False
    cases: int = 1
    against: bool = False
    """Whether the reference is named with --against, and no stored time is asked."""


SETTINGS = (
    Setting("a model of 0.3 s per inference", SLOW, {EQUAL: 4, 1.05: 3, 1.3: 3, 2.0: 3, 3.0: 3}),
    Setting("a model of 1 s per inference", SLOWER, {EQUAL: 2, 1.05: 2, 1.3: 2, 2.0: 2, 3.0: 2}),
    Setting("stored path, bursty neighbour", QUICK, {EQUAL: 100, 1.05: 20, 1.3: 10},
            Bursts(0.1, 0.4)),
    Setting("stored path, both cores busy for 0.2 to 3 s", QUICK, {EQUAL: 24, 1.05: 24},
            Bursts(1.0, 1.0, 0.2, 3.0)),
    Setting("--against, both cores busy half of the time", QUICK, {EQUAL: 20, 1.05: 10},
            Bursts(1.0, 1.0, 0.2, 3.0), against=True),
    Setting("--against, both cores busy half of the time, 3 ms", MIDDLE, {EQUAL: 10, 1.05: 5},
            Bursts(1.0, 1.0, 0.2, 3.0), against=True),
    Setting("--against, both cores busy half of the time, 95 ms", LONG, {EQUAL: 10, 1.05: 5},
            Bursts(1.0, 1.0, 0.2, 3.0), against=True),
    Setting("only the off arm is slower", QUICK, {EQUAL: 40, 1.05: 8, 2.0: 6}, only_off=True),
    Setting("27 cases in one run", QUICK, {EQUAL: 160, 1.05: 56}, cases=27),
)  # fmt: skip
BY_NAME = {setting.name: setting for setting in SETTINGS}


class TwoArms(LocalTarget):
    """This machine, with an on arm that always runs one and the same program."""

    def __init__(self, on: Artifact) -> None:
        super().__init__()
        self.on = on

    def capabilities(self) -> Capabilities:
        return Capabilities(timing=True, sme2=True)

    def _real(self, request: RunRequest) -> RunRequest:
        artifact = self.on if request.arm is Arm.ON else request.artifact
        return replace(request, artifact=artifact, arm=Arm.OFF)

    def _told(self, run: Run, request: RunRequest) -> Run:
        return replace(run, request=request, sme2_effective=request.arm is Arm.ON)

    def run(self, runner: Runner, request: RunRequest, folder: Path) -> Run:
        return self._told(super().run(runner, self._real(request), folder), request)

    def run_in_turns(self, jobs: Sequence[Job]) -> list[Run]:
        runs = super().run_in_turns([replace(job, request=self._real(job.request)) for job in jobs])
        return [self._told(run, job.request) for run, job in zip(runs, jobs, strict=True)]


class GateSession(Session):
    """A session on chosen cases, with the reference at hand as a cache would have it."""

    def __init__(self, settings: Settings, setting: Setting, chosen: Sequence[Case]) -> None:
        super().__init__(settings)
        self.chosen_cases = list(chosen)
        self.reference_program = setting.programs.reference()
        self.against = setting.against
        if setting.only_off:
            self.bench._target = TwoArms(self.reference_program)

    def cases(self, *_: object, **__: object) -> list[Case]:
        return self.chosen_cases

    @property
    def reference(self) -> OpenReference:
        programs = {
            (case.model, VARIANT): replace(self.reference_program, model=case.model)
            for case in self.chosen_cases
        }
        return OpenReference(Reference("bundle", "the baseline's program"), None, programs)

    def baseline_reference(self, case: Case) -> OpenReference | None:
        return self.reference if self.baseline(case) else None


@contextlib.contextmanager
def neighbours(bursts: Bursts | None) -> Iterator[None]:
    words = [sys.executable, "-c", BURSTS, *map(str, bursts or ())]
    started = [subprocess.Popen(words) for _ in range((os.cpu_count() or 1) if bursts else 0)]
    try:
        yield
    finally:
        for process in started:
            process.kill()
            process.wait()


def models(setting: Setting) -> list[str]:
    return [f"case_{number:02}" for number in range(1, setting.cases + 1)]


@dataclass
class Collector:
    """The verdicts so far, and what is needed for the next."""

    samples: Path
    """One verdict a line; stored sessions are beside it."""
    records: list[dict[str, Any]] = field(default_factory=list)

    def stored(self, setting: Setting) -> Path:
        """Three stored sessions of the reference; measured when they are first needed."""
        place = self.samples.parent / "baselines" / setting.name.replace(" ", "_")
        if place.is_dir():
            return place
        unfinished = place.with_name(f"{place.name}.part")
        shutil.rmtree(unfinished, ignore_errors=True)
        for _ in range(STORED_SESSIONS):
            case = _case(setting.programs.reference(), models(setting)[0])
            with self.session(setting, [case], unfinished) as session:
                measured = session.measured(case, timed=True)
                for model in models(setting):
                    # A stand-in for the on arm has no evidence of SME2.
                    named = replace(measured, model=model, evidence=None)
                    baselines.store(unfinished, named, force=True)
        unfinished.rename(place)
        return place

    @contextlib.contextmanager
    def session(
        self, setting: Setting, chosen: Sequence[Case], stored: Path
    ) -> Iterator[GateSession]:
        out = self.samples.parent / f"out-{os.getpid()}"
        settings = Settings(device="linux", out=out, baseline_dir=stored)
        session = GateSession(settings, setting, chosen)
        try:
            with neighbours(setting.bursts):
                yield session
        finally:
            session.close()
            shutil.rmtree(out, ignore_errors=True)

    def done(self, setting: Setting) -> Counter[float]:
        return Counter(
            entry["factor"] for entry in self.records if entry["setting"] == setting.name
        )

    def lagging(self, settings: Sequence[Setting]) -> tuple[Setting, float] | None:
        """What lags most behind its plan; None where all is done."""
        kinds = [
            (self.done(setting)[factor] / count, index, factor, setting)
            for index, setting in enumerate(settings)
            for factor, count in setting.planned.items()
        ]
        share, _, factor, setting = min(kinds, key=lambda kind: kind[:3])
        return None if share >= 1 else (setting, factor)

    def collect(self, settings: Sequence[Setting], minutes: float) -> None:
        deadline = time.monotonic() + 60 * minutes
        while time.monotonic() < deadline:
            following = self.lagging(settings)
            if following is None:
                break
            setting, factor = following
            factors = [factor] if setting.cases == 1 else _mixture(setting)
            chosen = [
                _case(setting.programs.candidate(one), model)
                for one, model in zip(factors, models(setting), strict=True)
            ]
            with self.session(setting, chosen, self.stored(setting)) as session:
                for one, case in zip(factors, chosen, strict=True):
                    if time.monotonic() < deadline:
                        self.keep(setting, one, judge(session, case))

    def keep(self, setting: Setting, factor: float, verdict: dict[str, Any]) -> None:
        kind = {"setting": setting.name, "factor": factor}
        entry = append_record(self.samples, {**kind, **verdict})
        self.records.append(entry)
        print(
            f"{len(self.records):4d}  {setting.name}  {factor:g}x  {entry['outcome']:12}"
            f"{'green' if entry['green'] else 'red':6} {entry['seconds']:.0f} s  "
            f"load {entry['load']:.0f}  {entry['messages'][-1]}",
            flush=True,
        )


def _case(program: Artifact, model: str) -> Case:
    return Case(model, parse_variant(VARIANT), program=replace(program, model=model))


def _mixture(setting: Setting) -> list[float]:
    """A run with many cases: about one in four is slower, as in the plan."""
    slower = max(setting.planned)
    return [EQUAL if index % 4 else slower for index in range(setting.cases)]


def judge(session: GateSession, case: Case) -> dict[str, Any]:
    """What the gate says about the latency of one case, and how it got there."""
    begun = time.monotonic()
    gate = Gate(session, case, lambda checks: None)
    if session.against:
        gate.check_against()
    else:
        gate.check_latency()
    latencies = [check for check in gate.checks if check.metric.startswith("latency")]
    return {
        "outcome": str(combine(gate.checks)),
        "green": not failing(gate.checks, strict=False),
        "seconds": round(time.monotonic() - begun, 1),
        "messages": [f"{check.metric}: {check.message}" for check in latencies],
    }


def report(samples: Path, path: Path | None) -> int:
    verdicts = [
        Verdict(*(entry[name] for name in ("setting", "factor", "outcome", "green")))
        for entry in read_records(samples)
    ]
    return finish(gate_claims("real", verdicts), path, account(verdicts))


def main(argv: Sequence[str] | None = None) -> int:
    parser = parser_of(__doc__, "sme2-out/detection_gate/verdicts.jsonl")
    parser.add_argument("--only", action="append", choices=sorted(BY_NAME), help="a setting")
    arguments = parser.parse_args(argv)
    samples = arguments.samples.resolve()
    if arguments.command == "report":
        return report(samples, arguments.json)
    # To be told to end is to be interrupted: neighbours must not go on alone.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    settings = [BY_NAME[name] for name in arguments.only or BY_NAME]
    Collector(samples, read_records(samples)).collect(settings, arguments.minutes)
    return 0


if __name__ == "__main__":
    sys.exit(main())
