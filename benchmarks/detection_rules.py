"""Rules that say "slower" or not from the same raw samples: ours, and the peers' habits.

A trial is two lists of processes, each a list of run times: the reference's and the candidate's.
Nothing is measured or printed here.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import scipy.stats
from pytest_benchmark.utils import PercentageRegressionCheck

from pytest_sme2.timing.processes import rounds_log_ratio

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


def mean_of_ten(limit_percent: float) -> Callable[[Trial], bool]:
    """A script that runs ten times and compares means."""

    def rule(trial: Trial) -> bool:
        now = statistics.fmean(trial.candidate[0][:10])
        before = statistics.fmean(trial.reference[0][:10])
        return now > before * (1 + limit_percent / 100)

    return rule


def t_test_on_values(trial: Trial) -> bool:
    """As ``pyperf compare_to`` does: values of many processes, Student's t-test at 95 %.

    pyperf takes three values a process by default; here each is the mean of a third of the runs.
    """
    now = [value for process in trial.candidate for value in _three_values(process)]
    before = [value for process in trial.reference for value in _three_values(process)]
    significant = scipy.stats.ttest_ind(now, before).pvalue < 0.05
    return bool(significant and statistics.fmean(now) > statistics.fmean(before))


def _three_values(process: Process) -> list[float]:
    third = len(process) // 3
    return [statistics.fmean(process[start * third : (start + 1) * third]) for start in range(3)]


def mann_whitney_on_runs(trial: Trial) -> bool:
    """Mann and Whitney's test with every run as a replicate, one-sided at 1 %."""
    now = [value for process in trial.candidate for value in process]
    before = [value for process in trial.reference for value in process]
    result = scipy.stats.mannwhitneyu(now, before, alternative="greater", method="asymptotic")
    return bool(result.pvalue < 0.01)


ONE_PAIR_RULES: Mapping[str, Callable[[Trial], bool]] = {
    "pytest-benchmark, mean:5%": pytest_benchmark_fails("mean", 5),
    "pytest-benchmark, mean:2%": pytest_benchmark_fails("mean", 2),
    "pytest-benchmark, min:5%": pytest_benchmark_fails("min", 5),
    "pytest-benchmark, min:2%": pytest_benchmark_fails("min", 2),
    "mean of ten runs, 5%": mean_of_ten(5),
    "mean of ten runs, 2%": mean_of_ten(2),
}
"""Each pair of processes is a trial of its own."""

ALL_PAIRS_RULES: Mapping[str, Callable[[Trial], bool]] = {
    "t-test on three values a process, 95%": t_test_on_values,
    "Mann-Whitney on all runs, 1%": mann_whitney_on_runs,
}
"""All pairs that our own verdict used are one trial."""
