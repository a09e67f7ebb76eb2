"""Rewrites tried on a case: each alone, then together, and what they save is counted.

A rewrite that cannot be exported, loaded or run, or whose outputs differ too much, is left out with
its reason, and the others go on.
"""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_sme2.errors import Sme2Error
from pytest_sme2.export.editing import edited, unified_diff
from pytest_sme2.export.rewrites import FOLDED, FOLDING, NAMES
from pytest_sme2.export.variant import parse_variant, precision_of
from pytest_sme2.profile.findings import find
from pytest_sme2.results import (
    Agreement,
    Arm,
    Executor,
    Finding,
    InferenceCost,
    Profile,
    Tolerance,
)
from pytest_sme2.system.files import from_here
from pytest_sme2.verdict.numerics import agreement_text, compare_reference, tolerance_of, within

if TYPE_CHECKING:
    from pytest_sme2.session.cases import Case
    from pytest_sme2.session.session import Session

LEAST_SAVING, LEAST_TIME_SAVING = 0.01, 0.05
"""A rewrite that saves less is not worth a change of the model; times of traced runs also vary."""


@dataclass(frozen=True)
class Ran:
    """A variant's run with SME2 on, and what was found in it."""

    profile: Profile
    cost: InferenceCost | None
    findings: tuple[Finding, ...]
    timed: bool = False
    agreement: Agreement | None = None
    """With what the model itself answers; of several outputs the worst."""
    tolerance: Tolerance | None = None
    memory: int | None = None
    """Its peak on a device; on an emulator, whose own memory is in it, the size of the program."""

    @property
    def amount(self) -> float | None:
        """What it is judged by: instructions, or the time of traced runs; None if not known."""
        if self.cost is not None:
            return self.cost.total.instructions
        return self.profile.end_to_end.median if self.timed else None

    @property
    def portable(self) -> int:
        return self.profile.executor_counts.get(Executor.PORTABLE, 0)

    @property
    def outputs(self) -> str:
        if self.agreement is None:
            return ""
        return f"outputs: {agreement_text(self.agreement, self.tolerance)}"

    @property
    def agrees(self) -> bool:
        found, tolerance = self.agreement, self.tolerance
        return found is None or bool(found.dead) or tolerance is None or within(found, tolerance)


@dataclass(frozen=True)
class Trial:
    """A case with rewrites, against the same case without."""

    rewrites: tuple[str, ...]
    before: Ran
    after: Ran | None
    problem: str = ""
    """Why it could not be run, or may not be used."""
    folded: Ran | None = None
    """The case with its constants folded, where the rewrite alone does that as well."""

    @property
    def saving(self) -> float:
        """The part of the whole that is saved, without what folding constants saves; below zero
        where it costs more, or is of no use.
        """
        return self._saving(self.folded or self.before)

    @property
    def total(self) -> float:
        """The same with what folding saves."""
        return self._saving(self.before)

    def _saving(self, since: Ran) -> float:
        whole, old = self.before.amount, since.amount
        new = None if self.after is None else self.after.amount
        if self.problem or not whole or old is None or new is None:
            return -1.0
        return (old - new) / whole

    @property
    def helps(self) -> bool:
        return self.saving >= (LEAST_TIME_SAVING if self.before.timed else LEAST_SAVING)


@dataclass(frozen=True)
class Edit:
    """A tested change of the model's file."""

    trial: Trial
    diff: str


def judged(
    variant: str,
    profile: Profile,
    cost: InferenceCost | None,
    *,
    timed: bool,
    memory: int | None = None,
) -> Ran:
    # Time is what counts where there is any.
    counted = None if timed else cost
    found = find(profile, timed=timed, counted=cost, precision=precision_of(variant))
    return Ran(profile, counted, found, timed, memory=memory)


def run_once(session: Session, case: Case, original: Case | None = None) -> Ran:
    """The case with SME2 on; its outputs are held against those of the ``original``'s model."""
    cost = session.cost(case, Arm.ON)
    counted = None if isinstance(cost, str) else cost
    profile, traced = session.profile(case, Arm.ON), session.traced(case, Arm.ON)
    timed, size = session.bench.timed, session.artifact(case).pte.stat().st_size
    memory = traced.peak_rss_bytes if timed else size
    found = judged(case.variant_name, profile, counted, timed=timed, memory=memory)
    compared = compare_reference(session.artifact(original or case), traced.outputs, Arm.ON)
    if not compared:
        return found
    tolerance = tolerance_of(case.variant_name, session.limits(original or case), "reference")
    worst = max(compared, key=lambda entry: entry.max_rel)
    return dataclasses.replace(found, agreement=worst, tolerance=tolerance)


def named_rewrites(before: Ran) -> tuple[str, ...]:
    """Those that the findings name, the costliest first."""
    order = sorted(before.findings, key=lambda finding: -finding.cost.share)
    return tuple(dict.fromkeys(finding.rewrite for finding in order if finding.rewrite))


def try_rewrites(
    session: Session, case: Case, before: Ran, names: Sequence[str]
) -> Iterator[Trial]:
    """Each alone, then together: the best one, and each of the others that saves more with it.

    Constants are folded first: what that saves is no other rewrite's.
    """
    alone, folded = [], None
    if FOLDED.intersection(names):
        folding = _tried(session, case, before, (FOLDING,))
        folded = None if folding.problem else folding.after
        alone = [folding] if folding.helps or FOLDING in names else []
    for name in names:
        since = folded if name in FOLDED else None
        alone += [_tried(session, case, before, (name,), since)] * (name != FOLDING)
    yield from alone
    best, *others = sorted(alone, key=lambda trial: (trial.helps, trial.total), reverse=True)
    for other in others:
        if best.helps and not other.problem:
            both = _tried(session, case, before, (*best.rewrites, *other.rewrites))
            best = both if both.total > best.total + LEAST_SAVING / 2 else best
    if len(best.rewrites) > 1:
        yield best


def _tried(
    session: Session, case: Case, before: Ran, names: tuple[str, ...], folded: Ran | None = None
) -> Trial:
    rewrites = tuple(name for name in NAMES if name in names)
    changed = dataclasses.replace(parse_variant(case.variant_name), rewrites=rewrites)
    tried = _trial(session, dataclasses.replace(case, variant=changed), None, before, rewrites)
    return dataclasses.replace(tried, folded=folded)


def _trial(
    session: Session, case: Case, original: Case | None, before: Ran, rewrites: tuple[str, ...]
) -> Trial:
    try:
        after = run_once(session, case, original)
    except Sme2Error as error:
        return Trial(rewrites, before, None, str(error).splitlines()[0])
    # What was wrong before is not the rewrite's fault.
    wrong = before.agrees and not after.agrees
    return Trial(rewrites, before, after, f"the outputs differ: {after.outputs}" if wrong else "")


def try_edit(session: Session, case: Case, trial: Trial) -> Edit | None:
    """The rewrites written into the model's file, run from a copy; None where that brings nothing.

    A rewrite of what another file calls has no place in it.
    """
    entry = case.entry
    if entry is None or entry.file is None:
        return None
    source = entry.file.read_text(encoding="utf-8")
    after = edited(source, trial.rewrites)
    if after is None:
        return None
    with tempfile.TemporaryDirectory(prefix="sme2-edit-") as name:
        folder = Path(name) / entry.file.parent.name
        folder.mkdir()
        for beside in entry.file.parent.iterdir():
            if beside.name != entry.file.name:
                (folder / beside.name).symlink_to(beside.resolve())
        (folder / entry.file.name).write_text(after, encoding="utf-8")
        moved = dataclasses.replace(entry, file=folder / entry.file.name)
        copy = dataclasses.replace(case, model=f"{case.model}-edited", entry=moved)
        tested = _trial(session, copy, case, trial.before, trial.rewrites)
    if not tested.helps:
        return None
    shown = from_here(entry.file.resolve())
    if shown.is_absolute():
        shown = Path(entry.file.parent.name, entry.file.name)
    return Edit(tested, unified_diff(source, after, shown.as_posix()))
