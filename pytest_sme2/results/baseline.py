"""What was accepted for one model and variant on one target."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pytest_sme2.results.artifact import Arm
from pytest_sme2.results.case import Agreement, Estimate, Spread, Structure
from pytest_sme2.results.cost import StoredCost
from pytest_sme2.results.evidence import KernelCensus
from pytest_sme2.results.profile import Category
from pytest_sme2.results.run import Fingerprint


@dataclass(frozen=True)
class BaselineSession:
    """The latencies of one run that was accepted into a baseline."""

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
    yardstick_ns: float | None = None
    """What a program that never changes took meanwhile; None where it was not taken."""
    program: str = ""
    """The SHA-256 of the ``.pte`` that ran."""
    runtime: str = ""
    """The SHA-256 of the runner that ran it, libraries included."""
    conditions: Mapping[str, str] = field(default_factory=dict)
    """What else may change the speed of the machine: kernel, governor, clock, temperature."""
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
    costs: Mapping[Arm, StoredCost] = field(default_factory=dict)
    """What one inference executes on the emulator; only the arms that were counted."""
    pte_bytes: int | None = None
    pte_sha256: str = ""
    agreements: tuple[Agreement, ...] = ()
    versions: Mapping[str, str] = field(default_factory=dict)
    weights: str = "random"

    def current(self, threads: int) -> tuple[BaselineSession, ...]:
        """The sessions that a new latency is compared with: those of the last epoch."""
        same = tuple(session for session in self.sessions if session.threads == threads)
        if not same:
            return ()
        return tuple(session for session in same if session.epoch == same[-1].epoch)

    def at(self, threads: int) -> BaselineFigures:
        """The figures of one thread count; empty where none were stored."""
        return self.figures.get(threads, BaselineFigures())


@dataclass(frozen=True)
class BaselineChange:
    """One value that an update of a baseline rewrites."""

    what: str
    old: str
    new: str
