"""Two profiles side by side."""

from __future__ import annotations

from dataclasses import dataclass

from pytest_sme2.results.profile import Category, OperatorProfile


@dataclass(frozen=True)
class Change:
    """One thing measured on both sides of a comparison."""

    name: str
    before_ns: float
    after_ns: float

    @property
    def ratio(self) -> float | None:
        """How many times faster the after side is; None where it took no time."""
        return self.before_ns / self.after_ns if self.after_ns else None

    @property
    def delta_ns(self) -> float:
        return self.after_ns - self.before_ns


@dataclass(frozen=True)
class OperatorChange:
    """An operator on both sides, or on one only (added, removed)."""

    before: OperatorProfile | None
    after: OperatorProfile | None

    @property
    def delta_ns(self) -> float:
        before = self.before.time_ns if self.before else 0.0
        return (self.after.time_ns if self.after else 0.0) - before

    @property
    def ratio(self) -> float | None:
        """How many times faster it became; None where it is on one side or took no time."""
        if self.before is None or self.after is None or not self.after.time_ns:
            return None
        return self.before.time_ns / self.after.time_ns


@dataclass(frozen=True)
class Comparison:
    """Two profiles side by side: off against on, or A against B."""

    before_name: str
    after_name: str
    end_to_end: Change
    categories: tuple[Change, ...]
    kinds: tuple[Change, ...]
    operators: tuple[OperatorChange, ...]
    """In the order of the program; what was removed stands where it stood."""
    overhead: Change
    largest_before: Category | None
    """The category with the greatest share; None where there is no operator."""
    largest_after: Category | None
    amdahl: float | None
    """How many times faster the after side would be if its largest category were free; None where
    there is nothing else."""

    @property
    def added(self) -> tuple[OperatorProfile, ...]:
        return tuple(
            change.after for change in self.operators if change.before is None and change.after
        )

    @property
    def removed(self) -> tuple[OperatorProfile, ...]:
        return tuple(
            change.before for change in self.operators if change.after is None and change.before
        )

    @property
    def shifted(self) -> bool:
        """Whether the bottleneck moved to another category."""
        before, after = self.largest_before, self.largest_after
        return before is not None and after is not None and before is not after
