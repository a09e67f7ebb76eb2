"""What pairs of processes showed about time."""

from __future__ import annotations

import statistics
from dataclasses import dataclass

from pytest_sme2.results.run import Arm, Turn, Word


class Outcome(Word):
    """What a check found."""

    PASS = "PASS"  # noqa: S105  (a verdict, not a password)
    REGRESSED = "REGRESSED"
    FAILED = "FAILED"
    """Not as asked for. Nothing is known of how it was before, so it is not a regression."""
    IMPROVED = "IMPROVED"
    INCONCLUSIVE = "INCONCLUSIVE"
    """Too close to the limit to tell, and not far beyond it."""
    INVALID = "INVALID"
    """What was measured cannot answer, and may hide a regression; the message says why."""
    NO_BASELINE = "NO_BASELINE"
    NOT_MEASURED = "NOT_MEASURED"
    """The device cannot measure it."""


@dataclass(frozen=True)
class Estimate:
    """A ratio and the interval that holds it, over pairs of processes."""

    value: float
    low: float
    high: float
    confidence: float
    pairs: int


@dataclass(frozen=True)
class Look:
    """One look at the pairs so far. Ratios are candidate over reference: above 1 is slower."""

    pairs: int
    alpha: float
    """The one-sided error this look may spend."""
    estimate: float
    interval: tuple[float, float] | None
    """None where there are too few pairs for an interval at this error."""
    p_value: float
    """One-sided, of the hypothesis that the candidate is within the tolerated slowdown."""


@dataclass(frozen=True)
class Decision:
    """The outcome of a series of pairs, and every look that was taken to reach it."""

    outcome: Outcome
    threshold: float
    """The tolerated slowdown: 0.02 is 2 %."""
    looks: tuple[Look, ...]
    p_value: float
    """Over all looks taken; valid for any level."""


@dataclass(frozen=True)
class PairSample:
    """One fresh process of each arm."""

    index: int
    """The order in which pairs were started, dropped ones included."""
    first: str
    """The arm that ran first."""
    reference_ns: float
    """What a run took, in wall nanoseconds: the median of the process's runs."""
    candidate_ns: float
    log_ratio: float
    """Of the candidate over the reference; turn by turn where the two took turns."""
    interference: float | None
    """The worse of the two processes' wall time over CPU time, less 1; None where unknown."""
    throttled: bool = False
    """Whether the device slowed itself down against heat in one of the two."""
    clock_change: str = ""
    """How a core's highest clock differed from the session's start in one of the two."""
    spoiled: str = ""
    """Why one of the two says nothing of the device: its screen went off, its core was another."""
    strays: int = 0
    """Runs of both on other cores than they were meant for, which count for nothing."""
    one_clock: bool = False
    """Whether both had the same clocks: they took short turns on one core, or had the same caps."""
    preempted: bool = False
    """Whether others had the core in nearly every round: then ``log_ratio`` is of CPU time."""
    efficiency_share: float | None = None
    """Of CPU time, on efficiency cores, of the process that had more; None: the system hides it."""
    clocks_ghz: tuple[float, float] | None = None
    """The mean clock of the reference and of the candidate; None where cycles are not counted."""
    energy_nj: tuple[float, float] | None = None
    """What an inference of each took, as the system estimates it; None where it does not."""
    quickest_ns: tuple[float, float] | None = None
    """The shortest run of the reference and of the candidate."""

    @property
    def slowed(self) -> bool:
        """Whether the device, and not the program, may have decided the ratio."""
        moved = self.clock_change and not self.one_clock
        return self.throttled or bool(self.spoiled or moved)


@dataclass(frozen=True)
class DroppedPair:
    """A pair that was measured, judged without looking at which arm was slower, and left out."""

    pair: PairSample
    reason: str


BLOCK_MARGIN = 0.01
"""A difference between blocks and short turns that is below this does not matter."""
BLIND_MARGIN = 0.03
"""Pairs that cannot rule out a slowdown of this much beyond the limit have seen nothing, and must
not let a test pass."""
TIME_LIMIT = "time limit reached before the first look"


@dataclass(frozen=True)
class PairedTiming:
    """Two arms measured in interleaved pairs. Ratios are candidate over reference in time."""

    reference: str
    candidate: str
    seed: int
    warmup: int
    runs: int
    """Runs per process, equal in both arms."""
    threads: int
    pairs: tuple[PairSample, ...]
    dropped: tuple[DroppedPair, ...]
    decision: Decision | None
    """None where no tolerated slowdown was given: then only the ratio was asked for."""
    looks: tuple[Look, ...]
    stopped_because: str
    """``clear``, ``precise``, ``all pairs done``, ``time budget spent``, or TIME_LIMIT."""
    noise_floor: float | None
    """Relative spread of process medians within an arm; None with fewer than three pairs."""
    detectable: float | None
    """The smallest slowdown that a measurement of this many pairs would catch, 4 times of 5; where
    only the ratio was asked for, the smallest difference between the two arms."""
    drift: tuple[tuple[str, float], ...]
    """Arms whose runs got slower (above 0) or faster within a process, and by how much."""
    notes: tuple[str, ...]
    """What a reader should know before trusting the figures."""
    seconds: float
    turn: Turn | None = None
    """How the two processes of a pair took turns; None where one ran after the other."""
    blocks: tuple[float, ...] = ()
    """The ratios of pairs that ran in long blocks instead; empty where none were measured."""

    @property
    def carried_over(self) -> float | None:
        """The ratio in blocks, where all of them lie beyond the interval of the short turns: then
        one arm changes the other (its clock, its SME unit), or did not warm up. Else None.
        """
        interval = self.interval
        if not self.blocks or interval is None:
            return None
        low, high = interval[0] * (1 - BLOCK_MARGIN), interval[1] * (1 + BLOCK_MARGIN)
        beyond = max(self.blocks) < low or min(self.blocks) > high
        return statistics.median(self.blocks) if beyond else None

    @property
    def cut_short(self) -> bool:
        """Whether even the first look was given up, so that no verdict rests on it."""
        return self.stopped_because == TIME_LIMIT

    @property
    def throttled_pairs(self) -> int:
        """How many of the pairs that count were slowed down by the device itself."""
        return sum(pair.slowed for pair in self.pairs)

    @property
    def clock_ratio(self) -> float | None:
        """The candidate's mean clock over the reference's; None where a pair has none."""
        clocks = [pair.clocks_ghz for pair in self.pairs if pair.clocks_ghz is not None]
        if not clocks or len(clocks) < len(self.pairs):
            return None
        return statistics.median(candidate / reference for reference, candidate in clocks)

    @property
    def preempted(self) -> bool:
        """Whether most of the pairs that count are of CPU time, since others had the core."""
        return 2 * sum(pair.preempted for pair in self.pairs) > len(self.pairs)

    @property
    def ratio(self) -> float:
        return self.looks[-1].estimate

    @property
    def interval(self) -> tuple[float, float] | None:
        return self.looks[-1].interval

    @property
    def speedup(self) -> float:
        """How many times faster the candidate is."""
        return 1 / self.ratio

    @property
    def speedup_interval(self) -> tuple[float, float] | None:
        interval = self.interval
        return None if interval is None else (1 / interval[1], 1 / interval[0])


@dataclass(frozen=True)
class Moment:
    """A part of a sustained load, some seconds long."""

    seconds: float
    """Its end, since the load began."""
    mean_ns: float
    """Of its inferences, so that a wait counts."""
    clock_ghz: float | None = None
    """The mean clock of the process it belongs to; None where cycles are not counted."""
    cap_ghz: float | None = None
    """The highest clock that the device then allowed; None where it does not tell."""
    celsius: float | None = None
    process: int = 0
    """Which one of the load it belongs to: the moments of one process are alike."""


FIRST_MINUTE = 60.0
INTERRUPTED = "Ctrl-C"


@dataclass(frozen=True)
class Sustained:
    """One program back to back for some time."""

    arm: Arm
    moments: tuple[Moment, ...]
    ended: str = ""
    """What ended it early."""

    @property
    def seconds(self) -> float:
        return self.moments[-1].seconds if self.moments else 0.0

    @property
    def first(self) -> tuple[Moment, ...]:
        """Those of the first minute; of a shorter time than three minutes, of the first third."""
        return tuple(each for each in self.moments if each.seconds <= self._window)

    @property
    def last(self) -> tuple[Moment, ...]:
        begins = self.seconds - self._window
        return tuple(each for each in self.moments if each.seconds > begins)

    @property
    def _window(self) -> float:
        return min(FIRST_MINUTE, self.seconds / 3)


MATTERS = 0.03
"""A difference below this is not worth another number of threads."""


@dataclass(frozen=True)
class FrontierCell:
    arm: Arm
    threads: int
    medians_ns: tuple[float, ...]
    """One process of each round."""
    cores: str = ""
    """Where it ran, with their clocks; empty where the system chose."""
    efficiency_share: float | None = None
    """The part of its CPU time on efficiency cores; None where the system does not tell."""

    @property
    def median_ns(self) -> float:
        return statistics.median(self.medians_ns)


class Ship(Word):
    """What a frontier comes to, as the best of one arm against the best of the other."""

    CANDIDATE = "candidate"
    REFERENCE = "reference"
    EITHER = "either"
    """No difference that matters."""
    UNCLEAR = "unclear"


@dataclass(frozen=True)
class Frontier:
    """Every arm with every number of threads, measured in shared rounds, and the best of each arm:
    one half of the rounds chose them, and the other half says how they compare.
    """

    cells: tuple[FrontierCell, ...]
    candidate: int
    """Which cell is the best one with SME2; where there is one arm alone, the best of all."""
    reference: int
    """Which cell is the best one without; where there is one arm alone, the next best."""
    speedup: Estimate
    """The reference's time over the candidate's."""
    ship: Ship
    unsure: tuple[int, ...]
    """Cells that may be faster than the best of their arm by more than matters."""
    dropped: int
    """Rounds that were measured again, since the device slowed itself down against heat."""
    throttled: int
    """Such rounds that count, since too many were dropped already."""
    stopped_because: str
    seconds: float
    notes: tuple[str, ...] = ()

    @property
    def rounds(self) -> int:
        return len(self.cells[0].medians_ns)

    @property
    def alone(self) -> bool:
        """Whether there is one arm alone."""
        return self.cells[self.candidate].arm is self.cells[self.reference].arm

    @property
    def best(self) -> frozenset[int]:
        """The best cell of each arm."""
        return frozenset({self.candidate} if self.alone else {self.candidate, self.reference})
