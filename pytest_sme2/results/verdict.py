"""Baselines, limits, and the results of comparing measurements with them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from pytest_sme2.results.case import Agreement, Sample, Spread, StepCosts, Structure, Tolerance
from pytest_sme2.results.evidence import KernelCensus, StoredCost, StoredOperator
from pytest_sme2.results.profile import Category
from pytest_sme2.results.run import Arm, Fingerprint
from pytest_sme2.results.timing import Estimate, Outcome


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
    shares: Mapping[Arm, Mapping[Category, Spread]] = field(default_factory=dict)
    category_ns: Mapping[Arm, Mapping[Category, float]] = field(default_factory=dict)
    """The time of each category in the traced runs, so that a slowdown can be explained."""
    operator_ns: Mapping[Arm, Mapping[str, float]] = field(default_factory=dict)
    """The same by operator name."""
    peak_bytes: Mapping[Arm, int] = field(default_factory=dict)


@dataclass(frozen=True)
class StoredFrontier:
    """What was accepted over several numbers of threads."""

    speedup: Estimate
    """The best with SME2 against the best without."""
    best: Mapping[Arm, int]
    """Their numbers of threads."""
    times_ns: Mapping[Arm, Mapping[str, float]]
    """The median of each cell, by its number of threads."""


@dataclass(frozen=True)
class StoredGeneration:
    """What a baseline keeps of it."""

    prompt_tokens: int
    new_tokens: int
    cpu: str = ""
    costs: Mapping[Arm, StepCosts] = field(default_factory=dict)
    speedups: Mapping[str, Estimate] = field(default_factory=dict)


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
    min_best_speedup: float | None = None
    """Of the best with SME2 over the best without, each with the number of threads best for it."""
    max_speedup_loss: float = 0.10
    """The part of the stored speedup that may be lost."""
    min_coverage: float | None = None
    """Of the matrix operators, the share that must run on SME2 kernels."""
    max_share_growth: float = 0.05
    """In parts of end-to-end time: 0.05 is five points."""
    max_memory_growth: float = 0.10
    max_memory_bytes: int | None = None
    max_size_growth: float = 0.01
    max_load_growth: float = 0.25
    max_first_token: float | None = None
    """In seconds, from loading a language model to its first token."""
    min_tokens_per_second: float | None = None
    """Of the new tokens of a generation."""
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
    frontier: StoredFrontier | None = None
    generation: StoredGeneration | None = None
    costs: Mapping[Arm, StoredCost] = field(default_factory=dict)
    """What one inference executes on the emulator; only the arms that were counted."""
    pte_bytes: int | None = None
    pte_sha256: str = ""
    agreements: tuple[Agreement, ...] = ()
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


@dataclass(frozen=True)
class Verdict:
    """All checks of one model and variant on one target, and what they come to."""

    model: str
    variant: str
    target: str
    outcome: Outcome
    checks: tuple[Check, ...]
