"""Measures one case against a reference in one run: interleaved pairs, or operators where the
target cannot vouch for time.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_sme2.compare import compare
from pytest_sme2.etdump import read_etdump
from pytest_sme2.gate import operator_differences
from pytest_sme2.measure import Plan, measure_pairs
from pytest_sme2.measured import structure_of
from pytest_sme2.profile import build_profile
from pytest_sme2.results import (
    Arm,
    Artifact,
    Check,
    Comparison,
    Measurement,
    Outcome,
    Profile,
)
from pytest_sme2.starting import alone, in_turns
from pytest_sme2.targets.base import Job

if TYPE_CHECKING:
    from pytest_sme2.against import OpenReference
    from pytest_sme2.runners import Runner
    from pytest_sme2.session import Case, Session

CANDIDATE = "this version"


class Rival:
    """One case and the reference it is held against, on the same target."""

    def __init__(self, session: Session, case: Case, reference: OpenReference) -> None:
        self.session = session
        self.case = case
        self.arm: Arm = session.arms[0]
        self.reference = reference
        artifact, runner = session.artifact(case), session.runner
        self.sides: dict[str, tuple[Artifact, Runner]] = {
            self.name: self.reference.side(artifact, runner),
            CANDIDATE: (artifact, runner),
        }
        self.folder = session.folder(case) / "against"

    @property
    def name(self) -> str:
        return self.reference.reference.name

    def _job(self, side: str, folder: Path, **choices: int | bool) -> Job:
        artifact, runner = self.sides[side]
        request = self.session.request(self.case, self.arm, **choices)
        return Job(runner, replace(request, artifact=artifact), folder)

    def _file_name(self, side: str) -> str:
        return "candidate" if side == CANDIDATE else "reference"

    def profile(self, side: str) -> Profile:
        """Where the time of one side goes, from a traced process."""
        runs = 10 if self.session.target.capabilities().timing else 1
        folder = self.folder / f"{self._file_name(side)}_traced"
        job = self._job(side, folder, traced=True, warmup=0, runs=runs)
        run = self.session.target.run(job.runner, job.request, job.folder)
        if run.etdump is None:
            raise ValueError("a traced run leaves an ETDump")
        return build_profile(read_etdump(run.etdump), rules=self.session.settings.rules)

    def check_operators(self) -> tuple[Check, Comparison]:
        """Exact, on any target: operators that came, went, or left the delegate."""
        sides = self.profile(self.name), self.profile(CANDIDATE)
        old, new = (structure_of(profile) for profile in sides)
        differences = operator_differences(old, new)
        details = tuple(f"{entry.name}: {growth:+d}" for entry, growth in differences)
        verdict = Outcome.REGRESSED if new.sme2 < old.sme2 else Outcome.PASS
        message = (
            f"The same {new.total} operators as {self.name}."
            if not differences
            else f"{len(differences)} operators differ from {self.name}."
        )
        comparison = compare(*sides, (self.name, CANDIDATE))
        check = Check(
            f"operators against {self.name}",
            verdict,
            message,
            old=old.total,
            new=new.total,
            unit="count",
            details=details,
        )
        return check, comparison

    def measure(self, threshold: float) -> Measurement:
        """Interleaved pairs until the answer is clear or the budget is spent."""
        counts = {self.name: 0, CANDIDATE: 0}

        def make_job(side: str) -> Job:
            folder = self.folder / self._file_name(side) / f"process_{counts[side]:03}"
            counts[side] += 1
            return self._job(side, folder)

        target = self.session.target
        able = all(runner.takes_turns for _, runner in self.sides.values())
        plan = Plan(
            threshold=threshold,
            # One alarm of the whole run must stay as rare as one verdict's would be alone.
            family=max(1, len(self.session.cases())),
            budget_seconds=self.session.settings.budget_seconds,
        )
        with self.session.alone():
            return measure_pairs(
                alone(target, make_job),
                self.name,
                CANDIDATE,
                plan,
                progress=lambda progress: self.session.show_progress(self.case, progress),
                redo=self.session.redo,
                in_turns=in_turns(target, make_job, able),
            )
