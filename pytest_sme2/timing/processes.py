"""What single processes and the two of a pair say: medians, ratios, interference, drift."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence

from pytest_sme2.errors import RunError, TargetError
from pytest_sme2.results import (
    Run,
)
from pytest_sme2.timing import stats

DRIFT_LIMIT = 0.01

THREADS_SLOWER_LIMIT = 0.02

FEWEST_ROUNDS = 3


def process_median(run: Run) -> float:
    """The median wall time of a process's runs: one replicate."""
    if run.emulated:
        raise TargetError(
            "Emulated times say nothing about hardware and cannot be measured as latency. "
            "Choose a real target with --device, or leave the timing checks out."
        )
    if not run.wall_ns or min(run.wall_ns) <= 0:
        raise RunError(
            f"The runner on {run.target} gave no usable run times. "
            f"See its log{f' {run.log}' if run.log else ''}."
        )
    return float(statistics.median(run.wall_ns))


def pair_log_ratio(reference: Run, candidate: Run) -> float:
    """The candidate's time over the reference's, as a logarithm."""
    turn = reference.request.turn
    if turn is None or candidate.request.turn != turn:
        return math.log(process_median(candidate) / process_median(reference))
    return rounds_log_ratio(reference.wall_ns, candidate.wall_ns, turn.runs)


def pair_cpu_log_ratio(reference: Run, candidate: Run) -> float | None:
    """The same of CPU time, which a neighbour on the core disturbs far less. None where it says
    nothing, or where its clock is too coarse.
    """
    if interference(reference) is None or interference(candidate) is None:
        return None
    if min(*reference.cpu_ns, *candidate.cpu_ns) <= 0:
        return None
    turn = reference.request.turn
    if turn is None or candidate.request.turn != turn:
        now, before = statistics.median(candidate.cpu_ns), statistics.median(reference.cpu_ns)
        return math.log(now / before)
    return rounds_log_ratio(reference.cpu_ns, candidate.cpu_ns, turn.runs)


def rounds_log_ratio(reference: Sequence[int], candidate: Sequence[int], turn_runs: int) -> float:
    """The same where the two took turns of so many runs: of each round's two turns, and of these
    the median over the quieter half of the rounds.

    Both turns of a round together say how quiet it was, so that swapping the arms would choose the
    same rounds.
    """
    rounds = sorted(
        zip(_turn_logs(reference, turn_runs), _turn_logs(candidate, turn_runs), strict=True),
        key=sum,
    )
    quiet = rounds[: max(min(len(rounds), FEWEST_ROUNDS), len(rounds) // 2)]
    return statistics.median(other - one for one, other in quiet)


def _turn_logs(wall_ns: Sequence[int], turn_runs: int) -> list[float]:
    return [
        math.log(statistics.median(wall_ns[first : first + turn_runs]))
        for first in range(0, len(wall_ns), turn_runs)
    ]


def interference(run: Run) -> float | None:
    """Wall time over CPU time, less 1: the share of time that something else had the core.

    None where it cannot be known: several threads, or a runner that gives no CPU time.
    """
    if run.request.threads != 1 or len(run.cpu_ns) != len(run.wall_ns) or sum(run.cpu_ns) <= 0:
        return None
    return sum(run.wall_ns) / sum(run.cpu_ns) - 1


def process_drift(run: Run) -> float | None:
    """The last third of a process's runs over the first third, less 1; None if too short."""
    third = len(run.wall_ns) // 3
    if third < 2:
        return None
    return statistics.median(run.wall_ns[-third:]) / statistics.median(run.wall_ns[:third]) - 1


def drifting(by_arm: Mapping[str, Sequence[float]]) -> tuple[tuple[str, float], ...]:
    """The arms whose processes drift by more than DRIFT_LIMIT, beyond chance."""
    found = []
    for arm, drifts in by_arm.items():
        if not drifts:
            continue
        centre = stats.hodges_lehmann(drifts)
        lower, upper = stats.signed_rank_interval(drifts, 0.01)
        if abs(centre) > DRIFT_LIMIT and (lower > 0 or upper < 0):
            found.append((arm, centre))
    return tuple(found)


def tracing_overhead(untraced_ns: Sequence[float], traced: Sequence[Run]) -> float:
    """How much longer a traced run takes than an untraced one, from process medians."""
    traced_ns = [process_median(run) for run in traced]
    return statistics.median(traced_ns) / statistics.median(untraced_ns) - 1


def thread_warnings(medians_ns: Mapping[int, Sequence[float]]) -> tuple[str, ...]:
    """A sentence for every thread count that is slower than a smaller one of a sweep."""
    warnings = []
    best: tuple[int, float] | None = None
    for threads, medians in sorted(medians_ns.items()):
        value = statistics.median(medians)
        if best is not None and value > best[1] * (1 + THREADS_SLOWER_LIMIT):
            warnings.append(
                f"{threads} threads are {value / best[1] - 1:.1%} slower than {best[0]}: "
                f"{value / 1e6:.3f} ms against {best[1] / 1e6:.3f} ms."
            )
        if best is None or value < best[1]:
            best = (threads, value)
    return tuple(warnings)
