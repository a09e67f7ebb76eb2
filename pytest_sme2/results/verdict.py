"""Measurements compared with limits and baselines, and the results."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pytest_sme2.results.case import Tolerance
from pytest_sme2.results.profile import Category
from pytest_sme2.results.timing import Outcome


@dataclass(frozen=True)
class Bounds:
    """Where a share must lie, ends included."""

    least: float = 0.0
    greatest: float = 1.0


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
    max_share_growth: float = 0.05
    """In parts of end-to-end time: 0.05 is five points."""
    max_memory_growth: float = 0.10
    max_memory_bytes: int | None = None
    max_size_growth: float = 0.01
    max_load_growth: float = 0.25
    max_cost_growth: float = 0.0005
    """Of executed instructions: they are exact, so this only has to absorb another C library."""
    shares: Mapping[Category, Bounds] = field(default_factory=dict)
    tolerances: Mapping[str, Tolerance] = field(default_factory=dict)
    """By the variant's precision, against the eager reference."""
    on_off_tolerances: Mapping[str, Tolerance] = field(default_factory=dict)
    """By the variant's precision, SME2 on against off."""
    sources: Mapping[str, str] = field(default_factory=dict)
    """Where each limit that is not the default came from."""


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
    """``ns``, ``bytes``, ``ratio``, ``share`` or ``count``."""
    interval: tuple[float, float] | None = None
    """Of the change that was judged: new over old for times, the value itself for the rest."""
    limit: float | None = None
    details: tuple[str, ...] = ()
    """The operators, kernels or outputs it is about, one line each."""


@dataclass(frozen=True)
class Verdict:
    """All checks of one model and variant on one target, and what they come to."""

    model: str
    variant: str
    target: str
    outcome: Outcome
    checks: tuple[Check, ...]
