"""What somebody would try by hand on a phone that is borrowed for an hour, one step after another.

Each step says what it expects, and whether that came. A step that fails does not end the others.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from pytest_sme2.errors import NotMeasurableError, Sme2Error
from pytest_sme2.results.run import PAIR, Arm, Artifact, RunRequest
from pytest_sme2.results.timing import PairedTiming
from pytest_sme2.session.cases import Case
from pytest_sme2.session.device import HeldDevice, measure_sustained
from pytest_sme2.session.gate import Gate
from pytest_sme2.session.session import Session
from pytest_sme2.targets.base import Job
from pytest_sme2.targets.phone.answers import caps_text, kinds, parse_cores, read_cores_under_load
from pytest_sme2.targets.phone.power import NOTE
from pytest_sme2.targets.phone.processes import ROOT
from pytest_sme2.targets.phone.target import AndroidTarget
from pytest_sme2.verdict import baselines
from pytest_sme2.verdict.judging import combine, failing
from pytest_sme2.verdict.times import load_text

EQUAL, HOT, BY_HAND = 0.01, 0.02, 0.05
"""How far two ratios of the same arms may be apart."""
HAND_SECONDS = 2.0
LOAD_SECONDS = 180.0
PULL_SECONDS = 60.0


@dataclass(frozen=True)
class Step:
    """One thing that was tried."""

    what: str
    expected: str
    found: str
    came: bool | None
    """None where it could not be tried."""

    def __str__(self) -> str:
        mark = {True: "ok", False: "no", None: "--"}[self.came]
        return f"  {mark}  {self.what}: expected {self.expected}; {self.found}"


Found = tuple[str, bool | None]


@dataclass
class Trial:
    """All steps on one phone that is prepared, with a program that never changes."""

    bench: HeldDevice
    target: AndroidTarget
    artifact: Artifact
    folder: Path
    """Its files stay there, to be sent in."""
    tell: Callable[[str], None]
    proven: bool | None
    """Whether the doctor's own pair showed what it claims."""
    ratios: dict[str, float] = field(default_factory=dict)

    def steps(self) -> Iterator[tuple[str, str, Callable[[], Found]]]:
        yield "self-check", "SME2 kernels with SME2 on alone", self.self_check
        yield "caps under load", "the same with the screen on and off", self.caps
        yield "the same twice", f"ratios equal within {EQUAL:.0%}", self.twice
        yield "another core", f"the same ratio within {EQUAL:.0%}", self.other_core
        yield "two threads", "as fast as one, or faster", self.two_threads
        yield "by hand", f"off, on, on, off: the same ratio within {BY_HAND:.0%}", self.by_hand
        yield "store and compare", "a baseline, and then no complaint", self.store_and_compare
        yield "minutes under load", "what it loses", self.under_load
        yield "hot", f"the same ratio within {HOT:.0%}", self.hot
        yield "pulled cable", "the pair is measured again", self.pulled_cable
        yield "clean-up", "nothing of ours is left", self.clean_up

    def run(self) -> list[Step]:
        done = []
        for what, expected, step in self.steps():
            self.tell(f"{what}: expecting {expected}")
            try:
                found, came = step()
            except NotMeasurableError as error:
                found, came = str(error), None
            except Sme2Error as error:
                found, came = str(error), False
            done.append(Step(what, expected, found, came))
            self.tell(str(done[-1]))
        return done

    def self_check(self) -> Found:
        return "the doctor's own pair, above", self.proven

    def caps(self) -> Found:
        found = {}
        try:
            for screen in ("on", "off"):
                (self.target.power.wake if screen == "on" else self.target.power.sleep)()
                text = self.target.device.shell(read_cores_under_load(HAND_SECONDS)).text
                found[screen] = caps_text(parse_cores(text))
        finally:
            self.target.power.wake()
        told = "; ".join(f"screen {screen}: {caps}" for screen, caps in found.items())
        return told, len(set(found.values())) == 1 if all(found.values()) else None

    def measure(self, name: str, threads: int = 1, cpus: tuple[int, ...] = ()) -> PairedTiming:
        """Off against on, as the product measures them."""
        bench = self.bench
        bench.require_timing()
        bench.require_sme2()
        jobs = {
            str(arm): Job(
                bench.runner,
                bench.request(self.artifact, arm, threads, cpus=cpus),
                self.folder / name / arm,
            )
            for arm in (Arm.OFF, Arm.ON)
        }
        timing = bench.measure_pairs(name, bench.starter(jobs), bench.plan())
        self.ratios[name] = timing.speedup
        return timing

    def request(self, arm: Arm) -> RunRequest:
        return self.bench.request(self.artifact, arm, threads=1)

    def compared(self, ratio: float, with_name: str, margin: float) -> Found:
        usual = self.ratios.get(with_name)
        if usual is None:
            return f"{ratio:.3f}, with nothing to compare it with", None
        apart = math.expm1(abs(math.log(ratio / usual)))
        return f"{ratio:.3f} and {usual:.3f}, {apart:.1%} apart", apart <= margin

    def twice(self) -> Found:
        self.measure("first")
        return self.compared(self.measure("second").speedup, "first", EQUAL)

    def other_core(self) -> Found:
        (fastest, *_) = kinds(self.target.cores) or [()]
        if len(fastest) < 2:
            return "it has but one core of its fastest kind", None
        for core in fastest[:2]:
            timing = self.measure(f"core_{core}", cpus=(core,))
        return self.compared(timing.speedup, f"core_{fastest[0]}", EQUAL)

    def two_threads(self) -> Found:
        times = []
        for threads in (1, 2):
            pairs = self.measure(f"threads_{threads}", threads=threads).pairs
            times.append(statistics.median(pair.candidate_ns for pair in pairs))
        return f"{times[0] / times[1]:.2f} times as fast", times[1] <= times[0] * (1 + BY_HAND)

    def by_hand(self) -> Found:
        self.bench.require_timing()
        medians: dict[Arm, list[float]] = {arm: [] for arm in PAIR}
        for number, arm in enumerate((Arm.OFF, Arm.ON, Arm.ON, Arm.OFF)):
            request, folder = self.request(arm), self.folder / f"hand_{number}"
            self.bench.cool_down()
            pilot = self.bench.run(replace(request, warmup=1, runs=3), folder)
            runs = max(5, round(HAND_SECONDS * 1e9 / statistics.median(pilot.wall_ns)))
            run = self.bench.run(replace(request, warmup=runs // 5, runs=runs), folder)
            medians[arm].append(statistics.median(run.wall_ns))
        ratio = math.sqrt(math.prod(medians[Arm.OFF]) / math.prod(medians[Arm.ON]))
        return self.compared(ratio, "first", BY_HAND)

    def store_and_compare(self) -> Found:
        self.bench.require_timing()
        case, stored = Case("selfcheck", None, program=self.artifact), self.folder / "baselines"
        for number in range(2):
            settings = replace(
                self.bench.settings, out=self.folder / f"session_{number}", baseline_dir=stored
            )
            session = Session(settings, self.tell, identity=str(number))
            session.bench = self.bench
            measured = session.measured(case, timed=True)
            if not number:
                baselines.store(stored, measured)
        gate = Gate(session, case, lambda checks: None)
        gate.check_latency()
        gate.check_speedup()
        told = "; ".join(f"{check.metric}: {check.verdict}" for check in gate.checks)
        return told or str(combine(gate.checks)), not failing(gate.checks, strict=False)

    def under_load(self) -> Found:
        self.bench.settings = replace(self.bench.settings, sustain_seconds=LOAD_SECONDS)
        found = measure_sustained(self.bench, "load", self.request(Arm.ON), self.folder / "load")
        return load_text(found), None if found.ended else True

    def hot(self) -> Found:
        self.target.pauses = False
        try:
            return self.compared(self.measure("hot").speedup, "first", HOT)
        finally:
            self.target.pauses = True

    def pulled_cable(self) -> Found:
        self.tell(f"pull the cable out now, and plug it in again within {PULL_SECONDS:.0f} s")
        until, known = time.monotonic() + PULL_SECONDS, len(self.target.events)
        request = replace(self.request(Arm.OFF), warmup=0, runs=1)
        while time.monotonic() < until:
            self.bench.run(request, self.folder / "cable")
            if told := self.target.events[known:]:
                return "; ".join(told), any("was away" in event for event in told)
        return "nobody pulled it", None

    def clean_up(self) -> Found:
        """The phone is released here: nothing comes after it."""
        self.target.storage.clean()
        self.bench.close()
        find = ["find", ROOT, NOTE, "!", "-path", ROOT]
        names = self.target.device.shell(find).text.split()
        return ", ".join(names) or "nothing is left", not names
