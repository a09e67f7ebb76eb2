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
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pytest_benchmark.utils import PercentageRegressionCheck

from benchmarks.detection_programs import layers_artifact
from benchmarks.harness import Claim, append_record, finish, parser_of, read_records
from pytest_sme2.results import Arm, Outcome, PairedTiming, Run, RunRequest
from pytest_sme2.runners.sme2 import wheel_runner
from pytest_sme2.session.device import choose_target
from pytest_sme2.session.settings import Settings
from pytest_sme2.targets.base import Job, Target
from pytest_sme2.targets.settings import parse_device
from pytest_sme2.timing import stats
from pytest_sme2.timing.arms import MakeJob, in_turns, one_at_a_time
from pytest_sme2.timing.pairs import measure_pairs
from pytest_sme2.timing.processes import rounds_log_ratio
from pytest_sme2.timing.sampling import SamplingPlan

Process = Sequence[int]


@dataclass(frozen=True)
class Trial:
    """One comparison's samples: process i of one list is the partner of process i of the other."""

    reference: tuple[Process, ...]
    candidate: tuple[Process, ...]
    turn: int | None = None
    """Runs a turn where partners took turns; None where one ran after the other."""

    def pairs(self) -> list[Trial]:
        """Every pair as a comparison of its own, for rules that take one process a side."""
        return [
            Trial((reference,), (candidate,), self.turn)
            for reference, candidate in zip(self.reference, self.candidate, strict=True)
        ]


def log_ratios(trial: Trial) -> list[float]:
    """One a pair, as the product itself takes them."""
    return [
        math.log(statistics.median(candidate) / statistics.median(reference))
        if trial.turn is None
        else rounds_log_ratio(reference, candidate, trial.turn)
        for reference, candidate in zip(trial.reference, trial.candidate, strict=True)
    ]


def pytest_benchmark_fails(field: str, limit_percent: float) -> Callable[[Trial], bool]:
    """``--benchmark-compare-fail=FIELD:N%`` by pytest-benchmark's own code, on all runs."""
    check = PercentageRegressionCheck(field, limit_percent)

    def figures(process: Process) -> dict[str, float]:
        return {"min": min(process), "mean": statistics.fmean(process)}

    def rule(trial: Trial) -> bool:
        return bool(check.fails(figures(trial.candidate[0]), figures(trial.reference[0])))

    return rule


PEER = "pytest-benchmark, mean:5%"
PEER_FAILS = pytest_benchmark_fails("mean", 5)


BASE_LAYERS = 100
EXTRA_LAYERS = (0, 3, 5)
"""Layers the candidate has more than the reference: per cent of real extra work."""
WEIGHTS = {0: 10, 3: 1, 5: 1}
"""Of twelve verdicts, ten are A/A: rare false alarms need the most trials."""
FEWEST_VERDICTS = 300
MOST_ALARMS, MOST_INCONCLUSIVE = 0.01, 0.05
LEAST_CAUGHT_3, LEAST_CAUGHT_5 = 0.80, 0.95

RULES = f"""\
Rules, set before any sample was taken
  programs   {BASE_LAYERS} equal convolution layers; the candidate has 0, 3 or 5 layers more
  plan       looks after {", ".join(map(str, stats.USUAL_LOOKS))} … pairs of fresh processes, \
tolerated slowdown {stats.TOLERATED_SLOWDOWN:.0%}, one-sided error \
{stats.FALSE_ALARM_RATE:.0%} in all
  A/A        at least {FEWEST_VERDICTS} verdicts on an idle machine: REGRESSED <= \
{MOST_ALARMS:.0%}, INCONCLUSIVE <= {MOST_INCONCLUSIVE:.0%}
  +3 %       caught (REGRESSED) >= {LEAST_CAUGHT_3:.0%}
  +5 %       caught (REGRESSED) >= {LEAST_CAUGHT_5:.0%}
"""


# --- collecting -----------------------------------------------------------------------------------


@dataclass
class Recorder:
    """Keeps every sample of the processes that count."""

    processes: list[dict[str, Any]] = field(default_factory=list)
    calls: int = 0

    def keep(self, arm: str, run: Run) -> None:
        self.calls += 1
        if self.calls > 2:  # the pilot's two processes do not count
            pair = (self.calls - 3) // 2
            self.processes.append(
                {"pair": pair, "arm": arm, "wall_ns": run.wall_ns, "cpu_ns": run.cpu_ns}
            )


def record(target: Target, make_job: MakeJob, plan: SamplingPlan) -> dict[str, Any]:
    """One verdict and its raw samples."""
    recorder = Recorder()
    measurement: PairedTiming = measure_pairs(
        one_at_a_time(target, make_job, recorder.keep),
        "A",
        "B",
        plan,
        in_turns=in_turns(target, make_job, able=True, keep=recorder.keep),
    )
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
        "processes": recorder.processes,
    }


def next_extra(records: Sequence[Mapping[str, Any]]) -> int:
    """The kind of comparison that lags most behind its weight."""
    done = Counter(entry["extra"] for entry in records)
    return min(EXTRA_LAYERS, key=lambda extra: done[extra] / WEIGHTS[extra])


@contextlib.contextmanager
def prepared_target(device: str) -> Iterator[tuple[Target, Callable[[int, str], Job]]]:
    """The target, and what makes the job of a process with so many extra layers."""
    target = choose_target(Settings(device=parse_device(device)))
    capabilities = target.capabilities()
    if not capabilities.timing:
        raise SystemExit(f"{target.name} cannot measure time: {capabilities.reason}")
    runner = wheel_runner(target.platform)
    artifacts = {extra: layers_artifact(BASE_LAYERS + extra) for extra in EXTRA_LAYERS}
    arm = Arm.ON if capabilities.sme2 else Arm.OFF
    with tempfile.TemporaryDirectory() as folder:

        def make_job(extra: int, label: str) -> Job:
            return Job(runner, RunRequest(artifacts[extra], arm), Path(folder, label))

        try:
            target.prepare()
            target.put([artifact.pte for artifact in artifacts.values()])
            yield target, make_job
        finally:
            target.restore()


def _job_of(make_job: Callable[[int, str], Job], layers: Mapping[str, int], label: str) -> Job:
    return make_job(layers[label], label)


def collect(arguments: argparse.Namespace) -> int:
    print(RULES)
    records = read_records(arguments.samples)
    longest = 0.0
    with prepared_target(arguments.device) as (target, job):
        deadline = time.monotonic() + 60 * arguments.minutes
        while time.monotonic() + longest < deadline:
            begun = time.monotonic()
            extra = next_extra(records)
            layers = {"A": 0, "B": extra}
            plan = SamplingPlan(seed=len(records), budget_seconds=arguments.budget)
            entry: dict[str, Any] = {"condition": "idle", "extra": extra, "layers": BASE_LAYERS}
            entry |= record(target, functools.partial(_job_of, job, layers), plan)
            records.append(append_record(arguments.samples, entry))
            longest = max(longest, time.monotonic() - begun)
            print(
                f"{len(records):5d}  +{extra} %  {entry['outcome']:12}  "
                f"{len(entry['kept'])} pairs, {len(entry['dropped'])} dropped, "
                f"{entry['seconds']:.1f} s",
                flush=True,
            )
    return 0


# --- reporting ------------------------------------------------------------------------------------


def trial_of(entry: Mapping[str, Any]) -> Trial:
    """The kept pairs, in the order in which they were measured."""
    by_pair: dict[tuple[int, str], list[int]] = {
        (process["pair"], process["arm"]): process["wall_ns"] for process in entry["processes"]
    }
    return Trial(
        tuple(by_pair[pair, "A"] for pair in entry["kept"]),
        tuple(by_pair[pair, "B"] for pair in entry["kept"]),
        entry["turn"],
    )


@dataclass(frozen=True)
class Scenario:
    """All verdicts with one amount of extra work."""

    trials: tuple[Trial, ...]
    outcomes: tuple[Outcome, ...]

    def share(self, outcome: Outcome) -> float:
        return _share(self.outcomes.count(outcome), len(self.outcomes))

    def peer_share(self) -> float:
        single = [pair for trial in self.trials for pair in trial.pairs()]
        return _share(sum(map(PEER_FAILS, single)), len(single))


def _share(count: int, trials: int) -> float:
    return count / trials if trials else math.nan


def make_scenario(records: Sequence[Mapping[str, Any]], extra: int) -> Scenario:
    trials = tuple(trial_of(entry) for entry in records if entry["extra"] == extra)
    outcomes = tuple(stats.decide_ratio(log_ratios(trial)).outcome for trial in trials)
    return Scenario(trials, outcomes)


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
    print(RULES)
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
