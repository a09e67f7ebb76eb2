"""Rewrites tried on a case: each alone, then together, and what they save is counted.

A rewrite that cannot be exported, loaded or run, or whose outputs differ too much, is left out with
its reason, and the others go on.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_sme2.errors import Sme2Error
from pytest_sme2.export.variant import NAMES, parse_variant, precision_of
from pytest_sme2.profile.findings import find
from pytest_sme2.results.case import Agreement, Tolerance
from pytest_sme2.results.evidence import InferenceCost
from pytest_sme2.results.profile import Executor, Finding, Profile
from pytest_sme2.results.run import Arm, Artifact
from pytest_sme2.verdict.numerics import (
    agreement_text,
    compare_reference,
    read_values,
    tolerance_of,
    within,
)

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
    forms: tuple[str, ...] = ()
    """How its rewrites wrote what they found by trying."""
    unused: tuple[str, ...] = ()
    """What the model computes in vain."""
    varying_db: float | None = None
    """The signal over noise of what varies in the output: a constant offset would hide an error."""

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

    @property
    def saving(self) -> float:
        """The part that is saved; below zero where it costs more, or is of no use."""
        old, new = self.before.amount, None if self.after is None else self.after.amount
        return -1.0 if self.problem or not old or new is None else 1 - new / old

    @property
    def helps(self) -> bool:
        return self.saving >= (LEAST_TIME_SAVING if self.before.timed else LEAST_SAVING)


def judged(variant: str, profile: Profile, cost: InferenceCost | None, *, timed: bool) -> Ran:
    # Time is what counts where there is any.
    counted = None if timed else cost
    found = find(profile, timed=timed, counted=cost, precision=precision_of(variant))
    return Ran(profile, counted, found, timed)


def run_once(session: Session, case: Case) -> Ran:
    """The case with SME2 on; its outputs are held against those of the model itself."""
    cost = session.cost(case, Arm.ON)
    counted = None if isinstance(cost, str) else cost
    profile, traced = session.profile(case, Arm.ON), session.traced(case, Arm.ON)
    artifact = session.artifact(case)
    found = judged(case.variant_name, profile, counted, timed=session.bench.timed)
    found = dataclasses.replace(found, forms=artifact.forms, unused=artifact.unused)
    compared = compare_reference(artifact, traced.outputs, Arm.ON)
    if not compared:
        return found
    tolerance = tolerance_of(case.variant_name, session.limits(case), "reference")
    # An output that is zero says nothing while there is another one.
    worst = max(compared, key=lambda entry: (not entry.dead, entry.max_rel))
    varying_db = _varying_db(artifact, worst)
    return dataclasses.replace(found, agreement=worst, tolerance=tolerance, varying_db=varying_db)


def _varying_db(artifact: Artifact, found: Agreement) -> float | None:
    """Its signal over noise without the mean of what is expected."""
    spec, file = artifact.outputs[found.index], artifact.reference_files[found.index]
    values = read_values(file, spec.dtype, spec.shape)
    mean, square = float(values.mean()), float((values * values).mean())
    if found.sqnr_db is None or not square > mean * mean:
        return found.sqnr_db
    return found.sqnr_db + 10 * math.log10(1 - mean * mean / square)


def shares_of(findings: Iterable[Finding]) -> dict[str, float]:
    """By rewrite what all that it is named for costs, the costliest first."""
    found: dict[str, float] = {}
    for finding in findings:
        if finding.rewrite:
            found[finding.rewrite] = found.get(finding.rewrite, 0.0) + finding.cost.share
    return dict(sorted(found.items(), key=lambda item: -item[1]))


def named_rewrites(before: Ran) -> tuple[str, ...]:
    """Those that the findings name, the costliest first; none that could not save enough."""
    shares = shares_of(before.findings)
    return tuple(name for name, share in shares.items() if share >= LEAST_SAVING)


def try_rewrites(
    session: Session, case: Case, before: Ran, names: Sequence[str]
) -> Iterator[Trial]:
    """Each alone, then together all that cost nothing by themselves, where several help."""
    alone = [try_together(session, case, before, (name,)) for name in names]
    yield from alone
    usable = [trial for trial in alone if not trial.problem and trial.saving > -LEAST_SAVING]
    helping = [trial.saving for trial in usable if trial.helps]
    if len(helping) > 1:
        both = try_together(session, case, before, tuple(trial.rewrites[0] for trial in usable))
        if both.saving > max(helping) + LEAST_SAVING / 2:
            yield both


def try_together(session: Session, case: Case, before: Ran, names: tuple[str, ...]) -> Trial:
    """All of these at once."""
    rewrites = tuple(name for name in NAMES if name in names)
    changed = dataclasses.replace(parse_variant(case.variant_name), rewrites=rewrites)
    case = dataclasses.replace(case, variant=changed)
    try:
        after = run_once(session, case)
    except Sme2Error as error:
        return Trial(rewrites, before, None, str(error).splitlines()[0])
    # What was wrong before is not the rewrite's fault.
    wrong = before.agrees and not after.agrees
    problem = f"the outputs differ: {after.outputs}" if wrong else ""
    return Trial(rewrites, before, after, problem)
