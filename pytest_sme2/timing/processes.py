"""What single processes and the two of a pair say: medians, ratios, interference, drift."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from pytest_sme2.errors import RunError, TargetError
from pytest_sme2.results import Run
from pytest_sme2.timing import stats

DRIFT_LIMIT = 0.01

FEWEST_ROUNDS = 3

CALM = 0.05
"""How much longer than its CPU time a run may take that had the core to itself."""


def process_median(run: Run) -> float:
    """The median wall time of a process's calm runs, or of all where too few are: one replicate."""
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
    calm = [wall for wall in _calm_ns(run) if wall is not None]
    return float(statistics.median(calm if len(calm) >= FEWEST_ROUNDS else run.wall_ns))


def _calm_ns(run: Run) -> list[int | None]:
    """The runs' wall times; None where another process had the core for a part of the run, or
    where the run was on a core that it was not meant for.

    A core that is shared takes a run that is longer than the scheduler's slice away in its middle:
    then twice the work takes ten times as long. All are calm where CPU time says nothing.
    """
    lost = _lost_ns(run) or [0] * len(run.wall_ns)
    return [
        wall if not stray and less <= CALM * (wall - less) else None
        for wall, less, stray in zip(run.wall_ns, lost, run.strayed, strict=True)
    ]


def _lost_ns(run: Run) -> Sequence[int] | None:
    """For how long others had the core in each run; None where nothing tells.

    Of one thread, CPU time tells, where its clock is fine; of several, how long they waited.
    """
    if run.request.threads != 1:
        return run.waited_ns or None
    if len(run.cpu_ns) != len(run.wall_ns) or min(run.cpu_ns, default=0) <= 0:
        return None
    return [wall - cpu for wall, cpu in zip(run.wall_ns, run.cpu_ns, strict=True)]


def why_spoiled(run: Run) -> str:
    """Why a pair with this process should be measured again, whatever its times are."""
    if 2 * sum(run.strayed) > len(run.wall_ns):
        meant = ", ".join(map(str, run.meant_for))
        return f"most runs were on other cores than {meant}"
    return run.spoiled


class PairRatio(NamedTuple):
    """The candidate's time over the reference's."""

    logarithm: float
    preempted: bool
    """Whether others had the core in nearly every round, so that it is of CPU time."""


def turn_runs_of(reference: Run, candidate: Run) -> int:
    """How many runs a turn has; all of them where one process ran after the other."""
    turn = reference.request.turn
    if turn is not None and candidate.request.turn == turn:
        # A generation takes several.
        return 1 if reference.request.generate else turn.runs
    return max(len(reference.wall_ns), len(candidate.wall_ns))


def pair_ratio(reference: Run, candidate: Run) -> PairRatio:
    """Of wall time where enough runs are calm, else of CPU time, which others disturb far less."""
    turn_runs = turn_runs_of(reference, candidate)
    longest = max(len(reference.wall_ns), len(candidate.wall_ns))
    calm = _rounds(_calm_ns(reference), _calm_ns(candidate), turn_runs)
    if len(calm) >= min(FEWEST_ROUNDS, -(-longest // turn_runs)):
        return PairRatio(_of_quiet_rounds(calm), preempted=False)
    if any(run.request.threads != 1 or _lost_ns(run) is None for run in (reference, candidate)):
        wall = rounds_log_ratio(reference.wall_ns, candidate.wall_ns, turn_runs)
        return PairRatio(wall, preempted=False)
    cpu = rounds_log_ratio(reference.cpu_ns, candidate.cpu_ns, turn_runs)
    return PairRatio(cpu, preempted=True)


def rounds_log_ratio(reference: Sequence[int], candidate: Sequence[int], turn_runs: int) -> float:
    """The candidate's time over the reference's, as a logarithm, where the two took turns of so
    many runs.
    """
    return _of_quiet_rounds(_rounds(reference, candidate, turn_runs))


def _of_quiet_rounds(rounds: Sequence[tuple[float, float]]) -> float:
    """The median over the quieter half of the rounds, as logarithms of their two turns.

    Both turns of a round together say how quiet it was, so that swapping the arms would choose the
    same rounds.
    """
    quiet = sorted(rounds, key=sum)[: max(min(len(rounds), FEWEST_ROUNDS), len(rounds) // 2)]
    return statistics.median(other - one for one, other in quiet)


def _rounds(
    reference: Sequence[int | None], candidate: Sequence[int | None], turn_runs: int
) -> list[tuple[float, float]]:
    """The logarithms of each round's two turns; rounds with a turn that is mostly None are out."""

    def turns(times_ns: Sequence[int | None]) -> Iterator[float | None]:
        for first in range(0, len(times_ns), turn_runs):
            turn = times_ns[first : first + turn_runs]
            calm = [time for time in turn if time is not None]
            enough = len(calm) >= min(FEWEST_ROUNDS, len(turn))
            yield math.log(statistics.median(calm)) if enough else None

    pairs = zip(turns(reference), turns(candidate), strict=True)
    return [(one, other) for one, other in pairs if one is not None and other is not None]


def interference(run: Run) -> float | None:
    """Wall time over CPU time, less 1: the share of time that something else had the core. Of
    several threads, for how long they waited for one, over the wall time.

    None where it cannot be known: a runner or a system that does not tell it.
    """
    if run.request.threads != 1:
        return sum(run.waited_ns) / sum(run.wall_ns) if run.waited_ns else None
    if len(run.cpu_ns) != len(run.wall_ns) or sum(run.cpu_ns) <= 0:
        return None
    return sum(run.wall_ns) / sum(run.cpu_ns) - 1


def energy_per_run(run: Run) -> float | None:
    """In nanojoules, as the system estimates it; None where it does not."""
    used = run.cores
    return None if used is None or not used.energy_nj else used.energy_nj / len(run.wall_ns)


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
