"""What was accepted for one model and variant on one target."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pytest_sme2.results.artifact import Arm
from pytest_sme2.results.case import Agreement, Estimate, Spread, Structure
from pytest_sme2.results.evidence import KernelCensus
from pytest_sme2.results.profile import Category
from pytest_sme2.results.run import Fingerprint

if TYPE_CHECKING:
    pass


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
    speedup: Estimate | None = None
    shares: Mapping[Arm, Mapping[Category, Spread]] = field(default_factory=dict)
    category_ns: Mapping[Arm, Mapping[Category, float]] = field(default_factory=dict)
    """Time a category took in the traced runs, so that a slowdown can be put down to it."""
    operator_ns: Mapping[Arm, Mapping[str, float]] = field(default_factory=dict)
    """The same by operator name."""
    peak_bytes: Mapping[Arm, int] = field(default_factory=dict)
    pte_bytes: int | None = None
    pte_sha256: str = ""
    agreements: tuple[Agreement, ...] = ()
    versions: Mapping[str, str] = field(default_factory=dict)
    weights: str = "random"

    def current(self, threads: int) -> tuple[BaselineSession, ...]:
        """The sessions a new latency is held against: those of the last epoch."""
        same = tuple(session for session in self.sessions if session.threads == threads)
        if not same:
            return ()
        return tuple(session for session in same if session.epoch == same[-1].epoch)


@dataclass(frozen=True)
class BaselineChange:
    """One value that an update of a baseline rewrites."""

    what: str
    old: str
    new: str
