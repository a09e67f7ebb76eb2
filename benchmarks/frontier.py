"""How many threads to ship: wrong picks and the coverage of the interval, where the truth is known.

    python -m benchmarks.frontier       # 576 simulated, 12 on fake phones, 8 of real programs here

No SME2 chip is at hand, so one is pretended: cores of three kinds (1+3+4) that share an SME unit
with k slots. SME2's arm packs on its core and then takes a slot of the unit; the other arm takes
none. The clock has two speeds: it is 1.4 times slower in half of all quarters of a second.

Simulated: times and clock are made up. What starts cells, chooses, looks, stops and decides is the
product's own (``timing/frontier.py``). On fake phones all is the product's own, from the session
down to adb and adbd. The runner (``two_clocks.cpp``) takes the slots in virtual time and sleeps for
as long, so a busy machine does not change what it reports. A variable tells it its cores in place
of taskset, since this machine has too few. Here: real threads and real times of a real program; the
truth is what all frontiers together measured.

A pick is wrong if the cell to ship is over 3 % slower than the best of all cells. The limits were
set before the first run.
"""

from __future__ import annotations

import hashlib
import itertools
import math
import random
import statistics
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from unittest import mock

from benchmarks.harness import Claim, finish, parser_of
from pytest_sme2.fake_phone.lab import FakeLab, fake_target
from pytest_sme2.results import MATTERS, PAIR, Arm, Artifact, Frontier, Run, RunRequest, Ship, Turn
from pytest_sme2.runners.sme2 import PROGRAM as RUNNER_PROGRAM
from pytest_sme2.runners.sme2 import RUNNER_SOURCES, Sme2Runner
from pytest_sme2.session.bench import Bench
from pytest_sme2.session.cases import Case
from pytest_sme2.session.programs import program_case
from pytest_sme2.session.session import Session
from pytest_sme2.session.settings import Settings
from pytest_sme2.system.platforms import LINUX_AARCH64
from pytest_sme2.system.qemu import find_qemu
from pytest_sme2.system.toolchain import find_compiler
from pytest_sme2.targets.phone.answers import parse_cores
from pytest_sme2.targets.phone.silicon import READ_CORES, Core, pick_cores
from pytest_sme2.targets.phone.target import AndroidTarget
from pytest_sme2.timing.arms import Starter
from pytest_sme2.timing.frontier import Cell, MeasuredRounds
from pytest_sme2.timing.sampling import SamplingPlan
from pytest_sme2.timing.selfcheck import PROGRAM
from tests.support.phones import start_lab

MOST_WRONG = 0.01
LEAST_COVERED = 0.98
FEWEST = 400

KHZ = (2_000_000,) * 4 + (2_800_000,) * 3 + (3_300_000,)
PARTS = 32
SPELL_SECONDS, SLOW = 0.25, 1.4
COUNTS = (1, 2, 4)
RATIOS = (0.5, 0.7, 0.85, 0.95, 0.98, 1.0, 1.02, 1.05, 1.15, 1.4, 1.8, 2.5)
SLOTS = (1, 2)
MORE = (0.004, 0.1, None)
"""What a thread more costs, as a share of all work. None: all cells of an arm are equal, which is
where choosing the best of them would bias an interval of the same rounds most."""
SPREADS = (0.004, 0.015)
"""Of process medians."""
DATA = Path(__file__).parents[1] / "tests" / "data" / "programs"
PROGRAMS = (PROGRAM, DATA / "toy_fp16.pte")


def build(folder: Path) -> Sme2Runner:
    """The runner for phones, linked statically: they have no C library of ours."""
    folder.mkdir()
    sources = [
        Path(__file__).with_name("two_clocks.cpp"),
        *(RUNNER_SOURCES / name for name in ("giver.cpp", "turns.cpp", "failure.cpp")),
    ]
    compiler = find_compiler(LINUX_AARCH64)
    subprocess.run(
        [compiler.cxx, "-O1", "-std=c++17", "-static", f"-I{RUNNER_SOURCES}", "-o",
         str(folder / RUNNER_PROGRAM), *map(str, sources)],
        check=True,
    )  # fmt: skip
    return Sme2Runner("two clocks", LINUX_AARCH64, "none", folder)


# --- the chip -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Chip:
    """A program on a chip whose cores share an SME unit; ``two_clocks.cpp`` has the same."""

    nanoseconds: float = 4e6
    """Of one inference without SME2, by one thread of a core of speed 1."""
    slots: int = 1
    gain: float = 1.0
    """How much faster the unit is than the fastest core."""
    serial: float = 0.02
    packing: float = 0.1
    """The share of a part that a thread does outside of the unit."""
    more: float = 0.004
    """What a thread more costs, as a share."""

    def text(self) -> str:
        """As the runner reads it."""
        speeds = " ".join(f"{khz / KHZ[-1]:.9g}" for khz in KHZ)
        numbers = f"{self.gain:.9g} {self.serial} {self.packing} {self.more}"
        return f"{self.nanoseconds:.0f} {self.slots} {numbers} {speeds}\n"

    def latency(self, arm: Arm, threads: int, cores: Sequence[int]) -> float:
        speeds = sorted((KHZ[core] / KHZ[-1] for core in cores), reverse=True)[:threads]
        begun = self.nanoseconds * self.serial / speeds[0]
        part = self.nanoseconds * (1 - self.serial) / PARTS
        free, unit = [begun] * threads, [begun] * self.slots
        for _ in range(PARTS):
            thread = free.index(min(free))
            if arm is Arm.ON:
                slot = unit.index(min(unit))
                packed = free[thread] + part * self.packing / speeds[thread]
                unit[slot] = max(packed, unit[slot]) + part * (1 - self.packing) / self.gain
                free[thread] = unit[slot]
            else:
                free[thread] += part / speeds[thread]
        return max(free) + self.more * self.nanoseconds * (threads - 1)

    def cells(self) -> dict[Cell, float]:
        """The true time of each cell, on the cores that a phone would give it."""
        cores = phone_cores()
        return {
            (arm, threads): self.latency(arm, threads, pick_cores((), cores, threads))
            for threads in COUNTS
            for arm in PAIR
        }

    def ratio(self) -> float:
        """The best without SME2 over the best with it."""
        best = {
            arm: min(time for cell, time in self.cells().items() if cell[0] is arm) for arm in PAIR
        }
        return best[Arm.OFF] / best[Arm.ON]


def phone_cores() -> tuple[Core, ...]:
    folder = "/sys/devices/system/cpu/cpu{}/cpufreq/cpuinfo_max_freq:{}"
    return parse_cores("\n".join(folder.format(core, khz) for core, khz in enumerate(KHZ)))


def chip_of(ratio: float, slots: int, more: float = 0.004) -> Chip:
    """A chip on which the best with SME2 is so many times as fast as the best without."""
    chip, low, high = Chip(slots=slots, more=more), 0.01, 1000.0
    for _ in range(60):
        middle = math.sqrt(low * high)
        if replace(chip, gain=middle).ratio() < ratio:
            low = middle
        else:
            high = middle
    return replace(chip, gain=low)


# --- trials ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Trial:
    """What was true, and what a frontier said."""

    kind: str
    ratio: float
    """The true one, best against best."""
    ship: Ship
    slower: float | None
    """By how much the cell to ship is slower than the best of all; None where none is named."""
    covered: bool
    """Whether the interval holds the true ratio of the two chosen cells."""
    rounds: int


def trial(kind: str, found: Frontier, truth: Mapping[Cell, float]) -> Trial:
    best, other = (
        truth[found.cells[index].arm, found.cells[index].threads]
        for index in (found.candidate, found.reference)
    )
    # Where there is no difference that matters, either may be shipped: the slower one counts.
    shipped = {Ship.CANDIDATE: best, Ship.REFERENCE: other, Ship.EITHER: max(best, other)}
    fastest = min(truth.values())
    arms = {arm: min(truth[cell] for cell in truth if cell[0] is arm) for arm, _ in truth}
    return Trial(
        kind,
        arms[Arm.OFF] / arms.get(Arm.ON, arms[Arm.OFF]),
        found.ship,
        shipped[found.ship] / fastest - 1 if found.ship in shipped else None,
        found.speedup.low <= other / best <= found.speedup.high,
        found.rounds,
    )


class PretendedChip:
    """Cells of known times on a virtual clock with two speeds."""

    def __init__(self, truth: Mapping[str, float], spread: float, seed: int) -> None:
        self.truth = truth
        self.spread = spread
        self.random = random.Random(seed)
        self.now = 0.0
        self.spells: dict[int, bool] = {}

    def clock(self) -> float:
        return self.now

    def infer(self, level: float) -> int:
        spell = int(self.now / SPELL_SECONDS)
        slow = self.spells.setdefault(spell, self.random.random() < 0.5)
        taken = level * (SLOW if slow else 1.0) * (1 + abs(self.random.gauss(0, 0.005)))
        self.now += taken / 1e9
        return round(taken)

    def start(self, label: str, warmup: int) -> float:
        self.now += 0.02
        level = self.truth[label] * math.exp(self.random.gauss(0, self.spread))
        for _ in range(warmup):
            self.infer(level)
        return level

    def alone(self, label: str, /, *, warmup: int, runs: int) -> Run:
        level = self.start(label, warmup)
        return made_run([self.infer(level) for _ in range(runs)])

    def in_turns(
        self, labels: Sequence[str], /, *, warmup: int, runs: int, turn: Turn
    ) -> dict[str, Run]:
        levels = {label: self.start(label, warmup) for label in labels}
        times: dict[str, list[int]] = {label: [] for label in labels}
        order = list(labels)
        for begun in range(0, runs, turn.runs):
            for label in order:
                for _ in range(turn.lead):
                    self.infer(levels[label])
                for _ in range(min(turn.runs, runs - begun)):
                    times[label].append(self.infer(levels[label]))
            order.reverse()
        return {label: made_run(found) for label, found in times.items()}


def made_run(wall_ns: Sequence[int]) -> Run:
    artifact = Artifact("chip", "fp32", Path(), Path("chip.pte"), "0" * 64, (), ())
    return Run(
        request=RunRequest(artifact, Arm.OFF), target="chip", runner="none", emulated=False,
        sme2_effective=None, wall_ns=tuple(wall_ns), cpu_ns=(), load_ns=None,
        peak_rss_load_bytes=None, peak_rss_bytes=None, outputs=(),
    )  # fmt: skip


def simulate(asked: tuple[float, int, float | None, float, int]) -> Trial:
    """One frontier of made-up times."""
    ratio, slots, more, spread, seed = asked
    truth = chip_of(ratio, slots, more or 0.0).cells()
    if more is None:
        truth = {cell: min(truth[arm, n] for arm, n in truth if arm is cell[0]) for cell in truth}
    labels = {f"{arm} {threads}": (arm, threads) for arm, threads in truth}
    chip = PretendedChip({label: truth[cell] for label, cell in labels.items()}, spread, seed)
    plan = SamplingPlan(threshold=None, budget_seconds=90.0)
    found = MeasuredRounds(Starter(chip.alone, chip.in_turns, chip.clock), labels, plan).measure()
    return trial("simulated", found, truth)


# --- on fake phones -------------------------------------------------------------------------------


class PhoneBench(Bench):
    """A bench with a phone and a runner of its own."""

    own: AndroidTarget
    chosen = property(lambda self: self.own)
    target = property(lambda self: self.own)
    runner: Sme2Runner


def told_cores(command: Sequence[str], cores: Sequence[int]) -> tuple[str, ...]:
    """In place of taskset, whose cores this machine does not have."""
    mask = f"{sum(1 << core for core in cores):x}"
    return (
        ("sh", "-c", 'PRETENDED_CORES="$0" exec "$@"', mask, *command) if cores else tuple(command)
    )


@contextmanager
def pretended_phone(lab: FakeLab) -> Iterator[AndroidTarget]:
    """A fake phone that has all its cores, whatever this machine has."""
    # Times of a fake phone are never latency. This one's are made, so it may claim to be real.
    target = fake_target(lab.add(max_frequencies_khz=KHZ), emulated=False)
    target.prepare()
    text = target.device.shell(READ_CORES).text
    target.cores = parse_cores(text.partition("Cpus_allowed_list")[0])
    try:
        with mock.patch("pytest_sme2.targets.phone.processes.on_cores", told_cores):
            yield target
    finally:
        target.restore()


def on_phone(
    target: AndroidTarget, runner: Sme2Runner, chip: Chip, folder: Path, budget: float
) -> Frontier:
    """One frontier, from the session down to adb."""
    folder.mkdir(parents=True)
    path = folder / "chip.pte"
    path.write_text(chip.text(), "utf-8")
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    artifact = Artifact("chip", "fp32", folder, path, digest, (), ())
    settings = Settings(device="android", threads=COUNTS, out=folder, budget_seconds=budget)
    session = Session(settings)
    session.bench = PhoneBench(settings, lambda: "run", session.say)
    session.bench.own, session.bench.runner = target, runner
    return session.frontier(Case("chip", None, COUNTS[0], program=artifact))


def phones(trials: int, budget: float) -> list[Trial]:
    found = []
    # Each ratio first with one number of slots, then with the other.
    size = len(RATIOS)
    plan = [(RATIOS[n % size], SLOTS[(n + n // size) % len(SLOTS)]) for n in range(trials)]
    with tempfile.TemporaryDirectory() as name, start_lab(emulator=find_qemu().path) as lab:
        runner = build(Path(name) / "runner")
        with pretended_phone(lab) as target:
            for number, (ratio, slots) in enumerate(plan):
                chip = chip_of(ratio, slots)
                frontier = on_phone(target, runner, chip, Path(name) / str(number), budget)
                found.append(trial("on fake phones", frontier, chip.cells()))
                print(f"{number + 1} of {trials} on fake phones: {found[-1]}", flush=True)
    return found


# --- real programs on this machine ----------------------------------------------------------------


def here(program: Path, counts: tuple[int, ...], trials: int, budget: float) -> list[Trial]:
    """Frontiers of one program without SME2; together they are the truth."""
    frontiers = []
    for number in range(trials):
        with tempfile.TemporaryDirectory() as name:
            settings = Settings(
                device="linux", threads=counts, out=Path(name), budget_seconds=budget
            )
            session = Session(settings)
            frontiers.append(session.frontier(program_case(program, counts[0])))
            session.close()
        print(f"{number + 1} of {trials} here: {program.stem}: {frontiers[-1].ship}", flush=True)
    truth = {
        (Arm.OFF, threads): statistics.median(
            time
            for frontier in frontiers
            for cell in frontier.cells
            if cell.threads == threads
            for time in cell.medians_ns
        )
        for threads in counts
    }
    return [trial("real programs here", frontier, truth) for frontier in frontiers]


# --- what is claimed ------------------------------------------------------------------------------


def claims(trials: Sequence[Trial]) -> list[Claim]:
    found = []
    for kind in dict.fromkeys(entry.kind for entry in trials):
        of_kind = [entry for entry in trials if entry.kind == kind]
        wrong = sum(entry.slower is not None and entry.slower > MATTERS for entry in of_kind)
        covered = sum(entry.covered for entry in of_kind)
        unclear = sum(entry.ship is Ship.UNCLEAR for entry in of_kind)
        many = kind == "simulated"
        found += [
            Claim(f"frontiers {kind}", f"frontiers, {kind}", len(of_kind),
                  limit=FEWEST if many else None, least=True),
            Claim(f"wrong {kind}", f"wrong picks, {kind}", wrong / len(of_kind), "%",
                  limit=MOST_WRONG),
            # Few frontiers cannot show a share of hundredths.
            Claim(f"covered {kind}", f"intervals that hold the true ratio, {kind}",
                  covered / len(of_kind), "%", limit=LEAST_COVERED if many else None, least=True),
            Claim(f"unclear {kind}", f"too close to tell, {kind}", unclear / len(of_kind), "%"),
            Claim(f"rounds {kind}", f"rounds of the usual frontier, {kind}",
                  statistics.median(entry.rounds for entry in of_kind)),
        ]  # fmt: skip
    return found


def account(trials: Sequence[Trial]) -> dict[str, dict[str, dict[str, int]]]:
    """By kind and true ratio, how often each answer was given."""
    found: dict[str, dict[str, Counter[str]]] = {}
    for entry in trials:
        by_ratio = found.setdefault(entry.kind, {})
        by_ratio.setdefault(f"{entry.ratio:.2f}", Counter())[str(entry.ship)] += 1
    return {
        kind: {ratio: dict(counts) for ratio, counts in by_ratio.items()}
        for kind, by_ratio in found.items()
    }


def main(argv: Sequence[str] | None = None) -> int:
    parser = parser_of(__doc__)
    parser.add_argument("--repeats", type=int, default=4, help="of each simulated chip")
    parser.add_argument("--phones", type=int, default=12, help="frontiers on fake phones")
    parser.add_argument("--here", type=int, default=8, help="frontiers of real programs here")
    parser.add_argument("--budget", type=float, default=30.0, help="seconds for each number")
    arguments = parser.parse_args(argv)
    asked = itertools.product(RATIOS, SLOTS, MORE, SPREADS, range(arguments.repeats))
    with ProcessPoolExecutor(2) as pool:
        trials = list(pool.map(simulate, asked, chunksize=4))
    print(f"simulated: {len(trials)} frontiers", flush=True)
    if arguments.phones:
        trials += phones(arguments.phones, arguments.budget)
    for program in PROGRAMS if arguments.here else ():
        trials += here(program, (1, 2), arguments.here // len(PROGRAMS), arguments.budget)
    details = account(trials)
    for kind, by_ratio in details.items():
        print(kind)
        for ratio, counts in by_ratio.items():
            told = ", ".join(f"{count} {answer}" for answer, count in sorted(counts.items()))
            print(f"  {ratio:>5}x  {told}")
    return finish(claims(trials), arguments.json, {"answers": details})


if __name__ == "__main__":
    sys.exit(main())
