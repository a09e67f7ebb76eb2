"""How often the gate cries wolf, and how often it misses: measured on this machine.

    python -m benchmarks.detection collect --minutes 30          # as often as you like; it resumes
    python -m benchmarks.detection report

Every verdict is a real measurement by pytest_sme2.timing.pairs with its own processes. It is
appended with its raw samples as one line of JSON. The report decides anew from the raw samples,
and lets pytest-benchmark's --benchmark-compare-fail decide on the same ones, by its own code.

Fair, because both see the same processes of the same programs, whose true difference is known by
construction. pytest-benchmark gets each pair of processes as a trial of its own, which is how it is
used. The samples of a pair are close together in time: drift does not count against it.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import math
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pytest_benchmark.utils import PercentageRegressionCheck

from benchmarks.detection_programs import layers_artifact
from benchmarks.harness import Claim, append_record, finish, parser_of, read_records
from pytest_sme2.results import Arm, Outcome, PairedTiming, RunRequest
from pytest_sme2.runners.sme2 import wheel_runner
from pytest_sme2.session.device import choose_target
from pytest_sme2.session.settings import Settings
from pytest_sme2.targets.base import Job, Target
from pytest_sme2.targets.settings import parse_device
from pytest_sme2.timing import stats
from pytest_sme2.timing.pairs import measure_pairs
from pytest_sme2.timing.processes import SamplingPlan, rounds_log_ratio, starter_on

Process = Sequence[int]
"""The times of its runs."""

PEER = "pytest-benchmark, mean:5%"
_PEER_CHECK = PercentageRegressionCheck("mean", 5)


def peer_fails(reference: Process, candidate: Process) -> bool:
    """``--benchmark-compare-fail=mean:5%`` by pytest-benchmark's own code, on all runs."""
    means = ({"mean": statistics.fmean(process)} for process in (candidate, reference))
    return bool(_PEER_CHECK.fails(*means))


def log_ratio(reference: Process, candidate: Process, turn: int | None) -> float:
    """As the product itself takes it; ``turn`` is None where one ran after the other."""
    if turn is None:
        return math.log(statistics.median(candidate) / statistics.median(reference))
    return rounds_log_ratio(reference, candidate, turn)


BASE_LAYERS = 100
EXTRA_LAYERS = (0, 3, 5)
"""Layers the candidate has more than the reference: per cent of real extra work."""
WEIGHTS = {0: 10, 3: 1, 5: 1}
"""Of twelve verdicts, ten are A/A: rare false alarms need the most trials."""
FEWEST_VERDICTS = 300
MOST_ALARMS, MOST_INCONCLUSIVE = 0.01, 0.05
LEAST_CAUGHT_3, LEAST_CAUGHT_5 = 0.80, 0.95


def record(target: Target, make_job: Callable[[str], Job], plan: SamplingPlan) -> dict[str, Any]:
    """One verdict and its raw samples."""
    jobs = {label: make_job(label) for label in ("A", "B")}
    starter = starter_on(target, jobs)
    measurement: PairedTiming = measure_pairs(starter, "A", "B", plan)
    decision = measurement.decision
    return {
        "seed": plan.seed,
        "outcome": str(decision.outcome if decision else Outcome.INCONCLUSIVE),
        "stopped": measurement.stopped_because,
        "seconds": round(measurement.seconds, 3),
        "noise_floor": measurement.noise_floor,
        "warmup": measurement.warmup,
        "runs": measurement.runs,
        "turn": measurement.turn.runs if measurement.turn else None,
        "kept": [pair.index for pair in measurement.pairs],
        "dropped": {entry.pair.index: entry.reason for entry in measurement.dropped},
        "processes": [
            {"pair": pair, "arm": arm, "wall_ns": run.wall_ns, "cpu_ns": run.cpu_ns}
            # The pilot's two processes do not count.
            for pair, both in enumerate(zip(*(starter.runs[arm][1:] for arm in jobs), strict=True))
            for arm, run in zip(jobs, both, strict=True)
        ],
    }


def next_extra(records: Sequence[Mapping[str, Any]]) -> int:
    """The kind of comparison that lags most behind its weight."""
    done = Counter(entry["extra"] for entry in records)
    return min(EXTRA_LAYERS, key=lambda extra: done[extra] / WEIGHTS[extra])


@contextlib.contextmanager
def prepared_target(device: str) -> Iterator[tuple[Target, Callable[[int, str], Job]]]:
    """The target, and what makes the job of a process; those of B have so many extra layers."""
    target = choose_target(Settings(device=parse_device(device)))
    capabilities = target.capabilities()
    if not capabilities.timing:
        raise SystemExit(f"{target.name} cannot measure time: {capabilities.reason}")
    runner = wheel_runner(target.platform)
    artifacts = {extra: layers_artifact(BASE_LAYERS + extra) for extra in EXTRA_LAYERS}
    arm = Arm.ON if capabilities.sme2 else Arm.OFF
    with tempfile.TemporaryDirectory() as folder:

        def make_job(extra: int, label: str) -> Job:
            artifact = artifacts[extra if label == "B" else 0]
            return Job(runner, RunRequest(artifact, arm), Path(folder, label))

        try:
            target.prepare()
            yield target, make_job
        finally:
            target.restore()


def collect(arguments: argparse.Namespace) -> int:
    records = read_records(arguments.samples)
    longest = 0.0
    with prepared_target(arguments.device) as (target, make_job):
        deadline = time.monotonic() + 60 * arguments.minutes
        while time.monotonic() + longest < deadline:
            begun = time.monotonic()
            extra = next_extra(records)
            plan = SamplingPlan(seed=len(records), budget_seconds=arguments.budget)
            entry: dict[str, Any] = {"condition": "idle", "extra": extra, "layers": BASE_LAYERS}
            entry |= record(target, functools.partial(make_job, extra), plan)
            records.append(append_record(arguments.samples, entry))
            longest = max(longest, time.monotonic() - begun)
            print(
                f"{len(records):5d}  +{extra} %  {entry['outcome']:12}  "
                f"{len(entry['kept'])} pairs, {len(entry['dropped'])} dropped, "
                f"{entry['seconds']:.1f} s",
                flush=True,
            )
    return 0


@dataclass(frozen=True)
class Scenario:
    """All verdicts with one amount of extra work, and what the peer said of each pair."""

    outcomes: Sequence[Outcome]
    peer: Sequence[bool]

    def share(self, outcome: Outcome) -> float:
        return self.outcomes.count(outcome) / len(self.outcomes) if self.outcomes else math.nan

    def peer_share(self) -> float:
        return statistics.fmean(self.peer) if self.peer else math.nan


def make_scenario(records: Sequence[Mapping[str, Any]], extra: int) -> Scenario:
    """Decided anew, from the kept pairs in the order in which they were measured."""
    outcomes, peer = [], []
    for entry in records:
        if entry["extra"] == extra:
            times = {(one["pair"], one["arm"]): one["wall_ns"] for one in entry["processes"]}
            pairs = [(times[pair, "A"], times[pair, "B"]) for pair in entry["kept"]]
            ratios = [log_ratio(*pair, entry["turn"]) for pair in pairs]
            outcomes.append(stats.decide_ratio(ratios).outcome)
            peer += [peer_fails(*pair) for pair in pairs]
    return Scenario(outcomes, peer)


def claims(scenarios: Mapping[int, Scenario]) -> list[Claim]:
    """The pre-set rules, and what the idle machine's verdicts say to them."""
    count = len(scenarios[0].outcomes)

    def slower(extra: int, key: str, what: str, **limit: Any) -> Claim:
        """How often it was said that the candidate is slower; by the peer, too."""
        scenario = scenarios[extra]
        share, peer = scenario.share(Outcome.REGRESSED), scenario.peer_share()
        return Claim(key, what, share, "%", peer=PEER, peer_value=peer, **limit)

    def caught(extra: int, limit: float) -> Claim:
        what = f"+{extra} % of work caught, of {len(scenarios[extra].outcomes)} verdicts"
        return slower(extra, f"caught {extra}", what, limit=limit, least=True)

    equal = f"of {count} verdicts on equal programs"
    undecided = scenarios[0].share(Outcome.INCONCLUSIVE)
    return [
        Claim("verdicts", "verdicts on equal programs", count, limit=FEWEST_VERDICTS, least=True),
        slower(0, "alarms", f"false alarms, {equal}", limit=MOST_ALARMS),
        Claim("inconclusive", f"undecided, {equal}", undecided, "%", limit=MOST_INCONCLUSIVE),
        caught(3, LEAST_CAUGHT_3),
        caught(5, LEAST_CAUGHT_5),
    ]


def report(arguments: argparse.Namespace) -> int:
    records = [entry for entry in read_records(arguments.samples) if entry["condition"] == "idle"]
    scenarios = {extra: make_scenario(records, extra) for extra in EXTRA_LAYERS}
    details = {
        str(extra): {"verdicts": Counter(map(str, scenario.outcomes))}
        for extra, scenario in scenarios.items()
    }
    return finish(claims(scenarios), arguments.json, details)


def main(argv: Sequence[str] | None = None) -> int:
    parser = parser_of(__doc__, "sme2-out/detection.jsonl")
    parser.add_argument("--device", default="linux", help="to collect, as for sme2; default: linux")
    parser.add_argument("--budget", type=float, default=60.0, help="seconds a verdict")
    arguments = parser.parse_args(argv)
    return collect(arguments) if arguments.command == "collect" else report(arguments)


if __name__ == "__main__":
    sys.exit(main())
