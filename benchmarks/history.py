"""A simulation: histories of 500 commits with planted steps and drifts; found and missed.

    python -m benchmarks.history            # no machine is timed; a few minutes of CPU time

Nothing here is measured on hardware. Sessions differ by 0.5, 1 or 3 %, process medians by 0.4 %,
and on one machine every fiftieth session is 1.3 to 2.5 times slower. What looks for changes is the
product's own. All is drawn from seeds, so the figures are the same every time.

The limits were set before the first run. It missed the one for false alarms. Then the product's
test became stricter and learned that sessions may resemble the ones before them. That was tried on
other seeds than those here.

A step counts as found if a change point of its direction is told for commits at most 10 away from
it; any other change point is a false alarm. Ten times 1 %, and 0.1 % with each of 100 commits,
count as found if the sum that is told is 8 to 13 %.

Apache Otava, where it is installed, looks at the same series with its own defaults:

    pip install --no-deps apache-otava
"""

from __future__ import annotations

import importlib.metadata
import math
import random
import statistics
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from benchmarks.harness import Claim, finish, parser_of
from pytest_sme2.report.history_series import all_series, change_points
from tests.support.histories import run as history_run
from tests.support.pretended_device import PROCESS_SPREAD, Burst, PretendedDevice

COMMITS = 500
SERIES = 100
"""Of each kind, on each machine."""
PROCESSES = 10
FIRST_SEED = 10_000
NEAR = 10
STEPS = (1.01, 1.02, 1.03, 1.05, 1.10, 0.97)
SUM = 1.01**10

Detector = Callable[[Sequence[float]], list[tuple[int, int, int, float]]]
"""Positions (most likely, earliest, latest), each with the ratio of the two levels."""


@dataclass(frozen=True)
class Machine:
    """How much its sessions differ."""

    name: str
    spread: float
    wild: float = 0.0
    """The share of sessions with a neighbour."""


MACHINES = (
    Machine("sessions differ by 0.5 %", 0.005),
    Machine("sessions differ by 1 %", 0.01),
    Machine("sessions differ by 1 %, every fiftieth is wild", 0.01, wild=0.02),
    Machine("sessions differ by 3 %", 0.03),
)


@dataclass
class Score:
    """What became of the changes of one kind."""

    planted: int = 0
    found: int = 0
    held: int = 0
    """Of these, within the commits that were told."""
    alarms: int = 0
    series: int = 0
    alarmed: int = 0
    """Series with a false alarm."""


def simulate(truth: Sequence[float], machine: Machine, seed: int) -> list[float]:
    """What each run's latency is where its program takes the true time."""
    device = PretendedDevice(seed=seed, session_spread=machine.spread)
    chance = random.Random(seed)
    found = []
    for level in truth:
        device.new_session()
        state = device.common * device.apart
        medians = [math.exp(chance.gauss(0, PROCESS_SPREAD)) for _ in range(PROCESSES)]
        slower = chance.choice(Burst().factors) if chance.random() < machine.wild else 1.0
        found.append(level * state * statistics.median(medians) * slower)
    return found


def levels(planted: Mapping[int, float], count: int = COMMITS) -> list[float]:
    level, found = 10.0, []
    for number in range(count):
        level *= planted.get(number, 1.0)
        found.append(level)
    return found


def random_steps(seed: int) -> dict[int, float]:
    """All sizes in any order, 50 commits apart at least."""
    chance = random.Random(f"steps {seed}")
    sizes = chance.sample(STEPS, len(STEPS))
    room = COMMITS - 50 * (len(STEPS) + 1)
    extra = sorted(chance.randrange(room) for _ in STEPS)
    return {50 * (place + 1) + extra[place]: size for place, size in enumerate(sizes)}


TEN_TIMES = {150 + 20 * number: 1.01 for number in range(10)}
DRIFT = dict.fromkeys(range(200, 300), SUM**0.01)


def ours(values: Sequence[float]) -> list[tuple[int, int, int, float]]:
    return [
        (each.at, each.earliest, each.latest, each.new / each.old) for each in change_points(values)
    ]


def otava() -> Detector | None:
    try:
        from otava.analysis import compute_change_points  # type: ignore[import-not-found]
    except ImportError:
        return None

    def find(values: Sequence[float]) -> list[tuple[int, int, int, float]]:
        found, _ = compute_change_points(list(values))
        return [
            (each.index, each.index, each.index, each.stats.mean_2 / each.stats.mean_1)
            for each in found
        ]

    return find


def score_steps(detector: Detector, machine: Machine, series: int) -> dict[float, Score]:
    scores = {size: Score() for size in (*STEPS, 1.0)}
    for seed in range(FIRST_SEED, FIRST_SEED + series):
        planted = random_steps(seed)
        found = detector(simulate(levels(planted), machine, seed))
        used = set()
        for at, size in planted.items():
            scores[size].planted += 1
            near = [
                each
                for each in found
                if each[1] - NEAR <= at <= each[2] + NEAR
                and (each[3] > 1) == (size > 1)
                and each not in used
            ]
            if near:
                best = min(near, key=lambda each: abs(each[0] - at))
                used.add(best)
                scores[size].found += 1
                scores[size].held += best[1] <= at <= best[2]
        scores[1.0].alarms += len(found) - len(used)
    return scores


def score_equal(detector: Detector, machine: Machine, series: int, count: int = COMMITS) -> Score:
    score = Score(series=series)
    for seed in range(series):
        found = detector(simulate(levels({}, count), machine, 2 * FIRST_SEED + seed))
        score.alarms += len(found)
        score.alarmed += bool(found)
    return score


def score_sum(
    detector: Detector, machine: Machine, planted: Mapping[int, float], series: int
) -> Score:
    score = Score(planted=series)
    for seed in range(series):
        found = detector(simulate(levels(planted), machine, 3 * FIRST_SEED + seed))
        score.found += 0.08 <= math.prod(each[3] for each in found) - 1 <= 0.13
    return score


def exact() -> tuple[int, int, int]:
    """Counted instructions: planted, found, false alarms."""
    found = alarms = planted_at_all = 0
    for seed in range(10):
        planted, chance = random_steps(seed), random.Random(seed)
        # What the runner's own start adds differs by this much.
        runs = [
            history_run(number, 1e6 * level * (1 + chance.uniform(-1e-5, 1e-5)))
            for number, level in enumerate(levels(planted))
        ]
        (series,) = all_series(runs)
        places = {step.at for step in series.tracks[0].steps}
        found += len(places & set(planted))
        alarms += len(places - set(planted))
        planted_at_all += len(planted)
    return planted_at_all, found, alarms


def share(part: float, whole: float) -> float:
    return part / whole if whole else math.nan


def measure(detector: Detector, series: int) -> dict[str, dict[str, Any]]:
    """By machine, all figures of one detector."""
    found = {}
    for machine in MACHINES:
        steps = score_steps(detector, machine, series)
        equal = score_equal(detector, machine, series)
        sums = {
            "ten times 1 %": score_sum(detector, machine, TEN_TIMES, series),
            "0.1 % with each of 100 commits": score_sum(detector, machine, DRIFT, series),
        }
        found[machine.name] = {
            "equal": {"series": equal.series, "alarmed": equal.alarmed, "alarms": equal.alarms},
            "steps": {
                f"{size - 1:+.0%}": {
                    "planted": score.planted,
                    "found": score.found,
                    "held": score.held,
                }
                for size, score in steps.items()
                if score.planted
            },
            "alarms among steps": steps[1.0].alarms,
            "sums": {name: [score.found, score.planted] for name, score in sums.items()},
        }
        print(machine.name, flush=True)
    return found


def claims(
    measured: Mapping[str, Mapping[str, Any]],
    peer: Mapping[str, Mapping[str, Any]] | None,
    name: str,
    few: Score,
) -> list[Claim]:
    def over(
        figures: Mapping[str, Mapping[str, Any]],
        machines: Sequence[Machine],
        value: Callable[[Mapping[str, Any]], tuple[float, float]],
    ) -> float:
        pairs = [value(figures[machine.name]) for machine in machines]
        return share(sum(part for part, _ in pairs), sum(whole for _, whole in pairs))

    def claim(
        key: str,
        what: str,
        machines: Sequence[Machine],
        value: Callable[[Mapping[str, Any]], tuple[float, float]],
        **limits: Any,
    ) -> Claim:
        mine = Claim(key, what, over(measured, machines, value), "%", **limits)
        if peer is None:
            return mine
        return replace(mine, peer=name, peer_value=over(peer, machines, value))

    def found(*sizes: str) -> Callable[[Mapping[str, Any]], tuple[float, float]]:
        def value(figures: Mapping[str, Any]) -> tuple[float, float]:
            chosen = [figures["steps"][size] for size in sizes]
            return sum(each["found"] for each in chosen), sum(each["planted"] for each in chosen)

        return value

    def held(figures: Mapping[str, Any]) -> tuple[float, float]:
        chosen = figures["steps"].values()
        return sum(each["held"] for each in chosen), sum(each["found"] for each in chosen)

    def told(kind: str) -> Callable[[Mapping[str, Any]], tuple[float, float]]:
        return lambda figures: tuple(figures["sums"][kind])

    def alarmed(figures: Mapping[str, Any]) -> tuple[float, float]:
        return figures["equal"]["alarmed"], figures["equal"]["series"]

    def alarms(figures: Mapping[str, Any]) -> tuple[float, float]:
        return figures["alarms among steps"], figures["equal"]["series"]

    steady, unsteady = MACHINES[:3], MACHINES[3:]
    return [
        claim("alarmed", "simulated histories of 500 equal runs with a false alarm", MACHINES,
              alarmed, limit=0.01),
        Claim("few", "the same of 20 equal runs", share(few.alarmed, few.series), "%", limit=0.01),
        claim("alarms", "false alarms per history with 6 planted steps", MACHINES, alarms,
              limit=0.05),
        claim("large", "steps of 3 % or more found, sessions differ by up to 1 %", steady,
              found("+3%", "-3%", "+5%", "+10%"), limit=0.95, least=True),
        claim("unsteady", "steps of 5 % or more found, sessions differ by 3 %", unsteady,
              found("+5%", "+10%"), limit=0.8, least=True),
        claim("ten", "ten times 1 % reported as one sum, sessions differ by up to 1 %", steady,
              told("ten times 1 %"), limit=0.95, least=True),
        claim("drift", "0.1 % with each of 100 commits, sessions differ by up to 1 %", steady,
              told("0.1 % with each of 100 commits"), limit=0.95, least=True),
        Claim("held", "found steps that are within the named commits",
              over(measured, MACHINES, held), "%", limit=0.9, least=True),
    ]  # fmt: skip


def main(argv: Sequence[str] | None = None) -> int:
    parser = parser_of(__doc__)
    parser.add_argument("--series", type=int, default=SERIES, help="histories of each kind")
    arguments = parser.parse_args(argv)
    print("This is a simulation: no machine is timed.")
    measured = measure(ours, arguments.series)
    other = otava()
    name = "" if other is None else f"Apache Otava {importlib.metadata.version('apache-otava')}"
    print(name or "Apache Otava is not installed, so that it is not compared with.", flush=True)
    peer = None if other is None else measure(other, arguments.series)
    few = score_equal(ours, MACHINES[1], 4 * arguments.series, count=20)
    planted, found, alarms = exact()
    made = [
        *claims(measured, peer, name, few),
        Claim("exact", "steps of exact figures found", share(found, planted), "%", limit=1.0,
              least=True),
        Claim("exact alarms", "false alarms among exact figures", alarms, limit=0),
    ]  # fmt: skip
    details = {"ours": measured, "peer": peer}
    return finish(made, arguments.json, details)


if __name__ == "__main__":
    sys.exit(main())
