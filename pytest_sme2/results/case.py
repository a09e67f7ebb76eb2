"""Everything measured for one model and variant on one target, what was accepted of it before, and
what comparing the two found.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from pytest_sme2.results.evidence import (
    Evidence,
    InferenceCost,
    KernelCensus,
    KernelFamily,
    StoredCost,
    StoredOperator,
)
from pytest_sme2.results.profile import Category, Coverage, Executor, Profile
from pytest_sme2.results.run import Arm, Fingerprint
from pytest_sme2.results.timing import Estimate, Frontier, Outcome, Sustained

RUNTIME = "executorch runtime"
"""The key of ``versions`` for what ran the program; ``executorch`` is what exported it."""

PREFILL, DECODE = "prefill", "decode"
PHASES = (PREFILL, DECODE)
"""What a user waits for: the first token, then each further one."""


@dataclass(frozen=True)
class Spread:
    """A value over the runs of a traced process: the median, the 5th and 95th percentile."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class OperatorCount:
    """How often an operator of one name stands in a program, and what its name says of it."""

    name: str
    category: Category
    kind: str
    executor: Executor
    count: int
    matrix: bool = False
    sme2: bool = False
    """As its name proves it, or the kernels that ran."""
    unproven: bool = False
    """Whether neither tells: SME2 and NEON kernels share the name, and no kernels are known."""
    sme1: bool = False


@dataclass(frozen=True)
class Structure:
    """What a program is made of on one arm: exact, and the same on any machine."""

    operators: tuple[OperatorCount, ...]
    """Sorted by the operator's name; every name once."""

    @property
    def total(self) -> int:
        return sum(entry.count for entry in self.operators)

    @property
    def matrix(self) -> int:
        return sum(entry.count for entry in self.operators if entry.matrix)

    @property
    def sme2(self) -> int:
        """Matrix operators on SME2 kernels."""
        return sum(entry.count for entry in self.operators if entry.matrix and entry.sme2)

    @property
    def sme1(self) -> int:
        """Of those, the ones on SME1 kernels."""
        return sum(entry.count for entry in self.operators if entry.matrix and entry.sme1)

    @property
    def unproven(self) -> int:
        """Matrix operators of which it is not known."""
        return sum(entry.count for entry in self.operators if entry.unproven)

    @property
    def coverage(self) -> float | None:
        """The share of matrix operators on SME2 kernels; None where there is no such operator."""
        return self.sme2 / self.matrix if self.matrix else None

    def executed_by(self, executor: Executor) -> int:
        return sum(entry.count for entry in self.operators if entry.executor is executor)


@dataclass(frozen=True)
class Sample:
    """A tensor in few numbers, by which a changed one is known on any machine."""

    sha256: str
    """Its first characters."""
    numbers: tuple[float, ...]
    """Sums of all values with random signs, over the root of how many there are."""
    kind: str = ""
    """Its type and shape: ``float32[1, 10]``; empty in records that did not keep it."""
    scale: float = 0.0
    """The root of the mean square of its finite values."""
    odd: str = ""
    """A hash of where NaN and infinities stand; empty where all is finite."""


@dataclass(frozen=True)
class Tolerance:
    """The largest difference between two outputs. A limit that is None is not checked."""

    max_abs: float | None = None
    max_rel: float | None = None
    """Of the largest magnitude that was expected, so that values near zero do not weigh."""
    min_sqnr_db: float | None = None


@dataclass(frozen=True)
class Agreement:
    """One output compared with another of the same shape."""

    against: str
    """``off`` (the same program without SME2) or ``reference`` (the eager model)."""
    arm: Arm
    """The side that is being checked."""
    index: int
    dtype: str
    identical: bool
    max_abs: float
    max_rel: float
    """The largest error over the largest magnitude that was expected."""
    sqnr_db: float | None
    """Signal over noise of the whole output; None where there is no noise or no signal."""
    has_nan: bool
    """On the side that is being checked; the errors are then infinite."""
    peak: float | None = None
    """The largest magnitude that was expected: the scale of the errors."""
    dead: str = ""
    """Why the expected output says nothing about the model: ``nearly zero (…)``; else empty."""


@dataclass(frozen=True)
class StepCosts:
    """What the steps of one arm executed on the emulator; the first is the prompt."""

    instructions: tuple[int, ...]
    system: tuple[int, ...]
    """Of these, those in files of the toolchain."""
    toolchain: str = ""


@dataclass(frozen=True)
class PhaseRatio:
    """One phase of a generation on two sides that took turns, candidate over reference."""

    phase: str
    context: int
    """The tokens in the cache where it begins; of a decode, it is judged in stretches."""
    last: int
    """And where it ends."""
    ratio: Estimate
    outcome: Outcome


@dataclass(frozen=True)
class Generated:
    """All of it on each arm. Step 0 is the prompt; every other step is one token."""

    prompt_tokens: int
    new_tokens: int
    costs: Mapping[Arm, StepCosts] = field(default_factory=dict)
    """Only on the emulator."""
    steps_ns: Mapping[Arm, tuple[float, ...]] = field(default_factory=dict)
    """Of each step the median over processes; only where times count, as all that follows."""
    phases_ns: Mapping[str, Mapping[Arm, tuple[float, ...]]] = field(default_factory=dict)
    """By phase, its usual step in each process."""
    decode_p95_ns: Mapping[Arm, float] = field(default_factory=dict)
    """Of single steps, those of all processes together."""
    loads_ns: Mapping[Arm, float] = field(default_factory=dict)
    peak_bytes: Mapping[Arm, tuple[int, ...]] = field(default_factory=dict)
    """After each step, the median over processes."""
    speedups: Mapping[str, Estimate] = field(default_factory=dict)
    """By phase: off over on, from pairs."""
    agreements: tuple[Agreement, ...] = ()
    """The last step's outputs against those of the eager model, which had the same cache."""

    def first_token_ns(self, arm: Arm) -> float:
        """From the start of loading."""
        return self.loads_ns[arm] + self.steps_ns[arm][0]

    def decode_ns(self, arm: Arm) -> float:
        """The usual step of a new token."""
        return statistics.median(self.steps_ns[arm][1:])

    def context(self, step: int) -> int:
        """How many tokens are in the cache after a step."""
        return self.prompt_tokens + step


@dataclass(frozen=True)
class CaseResult:
    """Everything measured for one model and variant on one target."""

    model: str
    variant: str
    fingerprint: Fingerprint
    emulated: bool
    runner: str
    """Which kind of runner it was: ``wheel``, ``source`` or ``pair``."""
    session: str
    """A name of its own for the run this belongs to; the same for all its models."""
    recorded: str
    """When, as ISO 8601 in UTC."""
    threads: int = 1
    profiles: Mapping[Arm, Profile] = field(default_factory=dict)
    structures: Mapping[Arm, Structure] = field(default_factory=dict)
    kernels: Mapping[Arm, KernelCensus] = field(default_factory=dict)
    """Only the arms whose kernels are known."""
    costs: Mapping[Arm, InferenceCost] = field(default_factory=dict)
    """What one inference executed; only the arms that were counted."""
    uncounted: str = ""
    """Why an arm has no cost."""
    medians_ns: Mapping[Arm, tuple[float, ...]] | None = None
    """Of each untraced process, its median run; None where the target is emulated."""
    p95s_ns: Mapping[Arm, tuple[float, ...]] = field(default_factory=dict)
    """Of each of them, what 95 % of its runs stay within."""
    inferences: int = 0
    """How many runs each of them made, at least."""
    interference: float | None = None
    """The usual process's wall time over its CPU time, less 1; None where it is not known."""
    throttled_pairs: int = 0
    yardstick_ns: float | None = None
    """What a program that never changes took meanwhile; None where it was not taken."""
    conditions: Mapping[str, str] = field(default_factory=dict)
    """What else may change the speed of the machine: kernel, governor, clock, temperature."""
    speedup: Estimate | None = None
    """Off over on: how many times faster SME2 makes it."""
    frontier: Frontier | None = None
    """Over all numbers of threads of the run; only in the case of the first of them."""
    shares: Mapping[Arm, Mapping[Category, Spread]] | None = None
    """Of end-to-end time; None where the target is emulated."""
    loads_ns: Mapping[Arm, tuple[float, ...]] | None = None
    """Load time of each process; None where the target is emulated."""
    peak_bytes: Mapping[Arm, int] | None = None
    """Median over processes of the peak resident set; None where the target is emulated."""
    program: str = ""
    """The path of the .pte file that ran."""
    pte_bytes: int | None = None
    pte_sha256: str = ""
    inputs: str = ""
    """The SHA-256 of all that the program was given."""
    samples: Mapping[str, Sample] = field(default_factory=dict)
    """``input 0``, ``reference 0`` and so on, and ``output 0`` of the arm that speaks for all."""
    agreements: tuple[Agreement, ...] = ()
    nan_arms: tuple[Arm, ...] = ()
    evidence: Evidence | None = None
    """None where the target has no SME2 and only the off arm ran."""
    versions: Mapping[str, str] = field(default_factory=dict)
    weights: str = "random"
    runtime: str = ""
    """The SHA-256 of the runner, libraries included."""
    tokens: int | None = None
    """How many tokens one inference takes; None where the model does not say."""
    generation: Generated | None = None
    """None where the model does not say how it generates, or that was not measured."""
    sustained: Sustained | None = None
    """Of the arm that speaks; None where no load was asked for."""

    @property
    def coverage(self) -> Coverage | None:
        """Of the on arm; None where it did not run."""
        profile = self.profiles.get(Arm.ON)
        return None if profile is None else profile.coverage

    def executed(self, arm: Arm) -> tuple[KernelFamily, ...] | None:
        """What each operator of the arm ran on; None where its instructions were not counted."""
        cost = self.costs.get(arm)
        return None if cost is None else tuple(entry.family for entry in cost.operators)

    @property
    def arm(self) -> Arm:
        """The arm that speaks for the program: on, unless the target has no SME."""
        return Arm.ON if Arm.ON in self.structures else Arm.OFF

    @property
    def device(self) -> str:
        """As reports name it: a chip without SME2 is shown."""
        return f"{self.fingerprint.target}{' (SME1)' * self.fingerprint.sme1}"

    def arm_name(self, arm: Arm) -> str:
        """As reports name it: ``on (SME1)`` on a chip without SME2."""
        return "on (SME1)" if arm is Arm.ON and self.fingerprint.sme1 else str(arm)


@dataclass(frozen=True)
class BaselineSession:
    """The latencies of one run that was accepted into a baseline; more of it is in CaseResult."""

    session: str
    recorded: str
    epoch: int
    """Sessions of one epoch measured the same thing; the last epoch is the baseline."""
    threads: int
    runner: str
    executorch: str
    """The version of what ran the program."""
    medians_ns: Mapping[Arm, tuple[float, ...]]
    loads_ns: Mapping[Arm, tuple[float, ...]]
    phases_ns: Mapping[str, Mapping[Arm, tuple[float, ...]]] = field(default_factory=dict)
    """Of a model that generates."""
    yardstick_ns: float | None = None
    program: str = ""
    """The SHA-256 of the ``.pte`` that ran."""
    inputs: str = ""
    runtime: str = ""
    conditions: Mapping[str, str] = field(default_factory=dict)
    interference: float | None = None
    """Wall time over CPU time, less 1, where it was stored although the machine was too busy."""


@dataclass(frozen=True)
class BaselineFigures:
    """What was accepted at one thread count, besides the sessions."""

    speedup: Estimate | None = None
    peak_bytes: Mapping[Arm, int] = field(default_factory=dict)


@dataclass(frozen=True)
class StoredGeneration:
    """What a baseline keeps of it."""

    prompt_tokens: int
    new_tokens: int
    cpu: str = ""
    costs: Mapping[Arm, StepCosts] = field(default_factory=dict)


@dataclass(frozen=True)
class Bounds:
    """Where a share must lie, ends included."""

    least: float = 0.0
    greatest: float = 1.0


ANY_THREADS = "any"


@dataclass(frozen=True)
class Limits:
    """How much worse a thing may get. Growth is a fraction: 0.02 is 2 %."""

    max_regression: float = 0.02
    min_speedup: float | None = None
    """None: on may not be slower than off by more than ``max_regression``."""
    max_speedup_loss: float = 0.10
    """The part of the stored speedup that may be lost."""
    min_coverage: float | None = None
    """Of the matrix operators, the share that must run on SME2 kernels."""
    max_memory_growth: float = 0.10
    max_memory_bytes: int | None = None
    max_size_growth: float = 0.01
    max_load_growth: float = 0.25
    max_cost_growth: float = 0.0005
    """Of executed instructions: they are exact, so this only has to absorb another C library."""
    max_latency: Mapping[str, float] = field(default_factory=dict)
    """In seconds, of an inference: by the number of threads, or ``ANY_THREADS``."""
    max_p95: Mapping[str, float] = field(default_factory=dict)
    """The same for the time that 95 % of a process's inferences stay within."""
    max_sustained_loss: float | None = None
    """The part of the first minute's speed that may be lost under a sustained load."""
    shares: Mapping[Category, Bounds] = field(default_factory=dict)
    tolerances: Mapping[str, Tolerance] = field(default_factory=dict)
    """By the variant's precision, against the eager reference."""
    on_off_tolerances: Mapping[str, Tolerance] = field(default_factory=dict)
    """By the variant's precision, SME2 on against off."""


@dataclass(frozen=True)
class Accepted:
    """What an update accepts besides what was measured."""

    figures: Mapping[str, str] = field(default_factory=dict)
    """What must be compared from then on: by figure, the test that compares it."""
    limits: Limits | None = None
    """Those in effect."""


@dataclass(frozen=True)
class Baseline:
    """What was accepted for one model and variant on one target."""

    model: str
    variant: str
    fingerprint: Fingerprint
    structures: Mapping[Arm, Structure]
    kernels: Mapping[Arm, KernelCensus] = field(default_factory=dict)
    sessions: tuple[BaselineSession, ...] = ()
    """Oldest first."""
    figures: Mapping[int, BaselineFigures] = field(default_factory=dict)
    """By thread count."""
    generation: StoredGeneration | None = None
    costs: Mapping[Arm, StoredCost] = field(default_factory=dict)
    """What one inference executes on the emulator; only the arms that were counted."""
    pte_bytes: int | None = None
    pte_sha256: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)
    weights: str = "random"
    promised: Mapping[int, Mapping[str, str]] = field(default_factory=dict)
    """What must be compared: by thread count and figure, the test that compares it."""
    limits: Limits | None = None
    """Those it was accepted with."""
    settings: Mapping[str, str] = field(default_factory=dict)
    """What else its figures depend on: ``runner``, ``cpu``."""
    samples: Mapping[str, Sample] = field(default_factory=dict)
    """``input 0``, ``output 0`` and so on."""
    operators: Mapping[Arm, tuple[StoredOperator, ...]] = field(default_factory=dict)
    """In the order in which they run, of the arms that were not counted; see ``program``."""

    def program(self, arm: Arm) -> tuple[StoredOperator, ...]:
        """The operators in the order in which they run; empty where they were not stored."""
        counted = self.costs.get(arm)
        return self.operators.get(arm, ()) if counted is None else counted.operators

    def current(self, threads: int) -> tuple[BaselineSession, ...]:
        """The sessions that a new latency is compared with: those of the last epoch."""
        same = tuple(session for session in self.sessions if session.threads == threads)
        if not same:
            return ()
        return tuple(session for session in same if session.epoch == same[-1].epoch)

    def at(self, threads: int) -> BaselineFigures:
        """The figures of one thread count; empty where none were stored."""
        return self.figures.get(threads, BaselineFigures())

    def on_chip(self, chip: Fingerprint) -> Baseline:
        """The emulator's baseline as a chip without SME2 is compared with it: its ``on`` is SME1.

        Where the third arm was not stored, nothing stands in for it.
        """
        if not chip.sme1 or self.fingerprint.sme1:
            return self
        places = {Arm.SME1: Arm.ON, Arm.OFF: Arm.OFF}
        changed: dict[str, Any] = {
            name: {
                places[arm]: value for arm, value in getattr(self, name).items() if arm in places
            }
            for name in ("structures", "kernels", "costs")
        }
        return replace(self, generation=None, **changed)


@dataclass(frozen=True)
class BaselineChange:
    """One value that an update of a baseline rewrites."""

    what: str
    old: str
    new: str


@dataclass(frozen=True)
class Check:
    """One metric compared with its baseline or its limit."""

    metric: str
    verdict: Outcome
    message: str
    """One sentence; how it is laid out is up to the reports."""
    old: float | None = None
    new: float | None = None
    unit: str = ""
    """``ns``, ``bytes``, ``ratio``, ``share`` or ``count``; ``ms`` for a time of its own."""
    interval: tuple[float, float] | None = None
    """Of the change that was judged: new over old for times, the value itself for the rest."""
    limit: float | None = None
    details: tuple[str, ...] = ()
    """The operators, kernels or outputs it is about, one line each."""
    where: str = ""
    """The line of the model that it is about, where that is known."""
    cause: str = ""
    """What of the program it is about: ``48 operators added``."""
