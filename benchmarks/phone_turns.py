"""What turns change on a phone whose clock has two speeds: slowdowns caught, and false alarms.

    python -m benchmarks.phone_turns                    # 40 verdicts of each kind
    python -m benchmarks.phone_turns --verdicts 2

Everything is real but the clock: adb server, adbd, the emulator, the program that gives the turns,
pairs, statistics and verdict. The runner (``two_clocks.cpp``) runs no model. It reports times from
a clock that is 1.4 times slower in half of all quarters of a second, and sleeps for as long. Other
work on this machine does not change what it reports. Each kind of verdict is taken with turns and
with one process after the other, on the same phones.
"""

from __future__ import annotations

import hashlib
import itertools
import queue
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from benchmarks.harness import Claim, finish, parser_of
from pytest_sme2.fake_phone.lab import FakeLab, fake_target
from pytest_sme2.results import Arm, Artifact, Outcome, RunRequest
from pytest_sme2.runners.sme2 import PROGRAM, RUNNER_SOURCES, Sme2Runner
from pytest_sme2.system.platforms import LINUX_AARCH64
from pytest_sme2.system.qemu import find_qemu
from pytest_sme2.system.toolchain import find_compiler
from pytest_sme2.targets.base import Job
from pytest_sme2.targets.phone.target import AndroidTarget
from pytest_sme2.timing.arms import in_turns, one_at_a_time
from pytest_sme2.timing.pairs import measure_pairs
from pytest_sme2.timing.sampling import SamplingPlan
from pytest_sme2.verdict import times
from pytest_sme2.verdict.limits import default_limits
from tests.support.phones import start_lab

SOURCE = Path(__file__).with_name("two_clocks.cpp")
NANOSECONDS = 2_000_000
SLOWER = 1.05
LEAST_CAUGHT = 0.95


@dataclass(frozen=True)
class Kind:
    """What is asked: which programs, and how they are run."""

    slower: bool
    turns: bool

    def __str__(self) -> str:
        return f"{'5 % slower' if self.slower else 'equal'}, {'in' if self.turns else 'no'} turns"


KINDS = tuple(Kind(slower, turns) for slower in (True, False) for turns in (True, False))


def build(folder: Path) -> Sme2Runner:
    """The runner for phones, linked statically: they have no C library of ours."""
    folder.mkdir()
    sources = [
        SOURCE,
        *(RUNNER_SOURCES / name for name in ("giver.cpp", "turns.cpp", "failure.cpp")),
    ]
    compiler = find_compiler(LINUX_AARCH64)
    subprocess.run(
        [compiler.cxx, "-O1", "-std=c++17", "-static", f"-I{RUNNER_SOURCES}", "-o",
         str(folder / PROGRAM), *map(str, sources)],
        check=True,
    )  # fmt: skip
    return Sme2Runner("two clocks", LINUX_AARCH64, "none", folder)


def program(folder: Path, nanoseconds: int) -> Artifact:
    path = folder / f"{nanoseconds}.pte"
    path.write_text(str(nanoseconds), "utf-8")
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    return Artifact(path.stem, "fp32", folder, path, digest, (), ())


def verdict(
    target: AndroidTarget, runner: Sme2Runner, kind: Kind, folder: Path, budget_seconds: float
) -> Outcome:
    """One verdict of the gate: the program of before against that of now."""
    now = round(NANOSECONDS * SLOWER) if kind.slower else NANOSECONDS
    programs = {"before": program(folder, NANOSECONDS), "now": program(folder, now)}

    def make_job(label: str) -> Job:
        return Job(runner, RunRequest(programs[label], Arm.OFF), folder / label)

    found = measure_pairs(
        one_at_a_time(target, make_job),
        "before",
        "now",
        SamplingPlan(budget_seconds=budget_seconds),
        in_turns=in_turns(target, make_job, kind.turns),
    )
    return times.check_against(found, default_limits()).verdict


def collect(
    lab: FakeLab, runner: Sme2Runner, folder: Path, *, phones: int, verdicts: int, budget: float
) -> dict[Kind, Counter[Outcome]]:
    # Times of a fake phone are never latency. This one's are made, so it may claim to be real.
    free: queue.SimpleQueue[AndroidTarget] = queue.SimpleQueue()
    targets = [fake_target(lab.add(), emulated=False) for _ in range(phones)]
    found: dict[Kind, Counter[Outcome]] = {kind: Counter() for kind in KINDS}

    def one(numbered: tuple[int, Kind]) -> tuple[Kind, Outcome]:
        number, kind = numbered
        place = folder / str(number)
        place.mkdir()
        target = free.get()
        try:
            return kind, verdict(target, runner, kind, place, budget)
        finally:
            free.put(target)

    try:
        for target in targets:
            target.prepare()
            free.put(target)
        wanted = enumerate(itertools.islice(itertools.cycle(KINDS), verdicts * len(KINDS)))
        with ThreadPoolExecutor(phones) as pool:
            for done, (kind, outcome) in enumerate(pool.map(one, wanted), start=1):
                found[kind][outcome] += 1
                print(f"{done} of {verdicts * len(KINDS)}: {kind}: {outcome}", flush=True)
    finally:
        for target in targets:
            target.restore()
    return found


def claims_of(found: dict[Kind, Counter[Outcome]]) -> list[Claim]:
    claims = []
    for turns in (True, False):
        how = "in turns" if turns else "one process after the other"
        slower, equal = found[Kind(True, turns)], found[Kind(False, turns)]
        claims += [
            Claim(
                f"caught {how}",
                f"5 % slower, {how}: REGRESSED, of {slower.total()}",
                slower[Outcome.REGRESSED] / slower.total(),
                "%",
                limit=LEAST_CAUGHT if turns else None,
                least=True,
            ),
            Claim(
                f"alarms {how}",
                f"equal programs, {how}: REGRESSED, of {equal.total()}",
                equal[Outcome.REGRESSED],
                limit=0,
            ),
        ]
    return claims


def main(arguments: Sequence[str] | None = None) -> int:
    parser = parser_of(__doc__)
    parser.add_argument("--verdicts", type=int, default=40, help="of each kind (%(default)s)")
    parser.add_argument("--phones", type=int, default=6, help="at the same time (%(default)s)")
    parser.add_argument("--budget", type=float, default=30.0, help="seconds (%(default)s)")
    chosen = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as name, start_lab(emulator=find_qemu().path) as lab:
        runner = build(Path(name) / "runner")
        found = collect(
            lab, runner, Path(name), phones=chosen.phones, verdicts=chosen.verdicts,
            budget=chosen.budget,
        )  # fmt: skip
    details = {
        str(kind): {str(outcome): count for outcome, count in sorted(counts.items())}
        for kind, counts in found.items()
    }
    return finish(claims_of(found), chosen.json, {"verdicts": details})


if __name__ == "__main__":
    sys.exit(main())
