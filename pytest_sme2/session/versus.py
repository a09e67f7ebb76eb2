"""Measures one case against a reference in one run: operators, and interleaved pairs. Where time on
the target means nothing, the instructions that both execute.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_sme2.profile.operators import structure_of
from pytest_sme2.results import (
    Arm,
    Artifact,
    Check,
    Limits,
    Outcome,
    PairedTiming,
    PhaseRatio,
    Profile,
    Run,
    RunRequest,
)
from pytest_sme2.session.case_trace import Traced, cost_of, profile_of, trace_case, why_not_counted
from pytest_sme2.session.generation import measure_generations
from pytest_sme2.session.reference import CANDIDATE, OpenReference
from pytest_sme2.system.wording import count
from pytest_sme2.targets.base import Job
from pytest_sme2.timing.processes import beginning, compare_phases, log_ratios
from pytest_sme2.verdict import generation
from pytest_sme2.verdict.cost import compare_costs
from pytest_sme2.verdict.judging import metric_against
from pytest_sme2.verdict.structure import operator_differences

if TYPE_CHECKING:
    from pytest_sme2.runners.base import Runner
    from pytest_sme2.session.bench import Bench

TRACED_SECONDS = 1.0
"""How long the runs of a traced process take together, where ten are not quicker."""
FEWEST_TRACED, MOST_TRACED = 2, 10


@dataclass(eq=False)
class Versus:
    """One case and the reference it is compared with, on the same target."""

    bench: Bench
    title: str
    folder: Path
    request: RunRequest
    """The case's own."""
    reference: OpenReference
    family: int = 1
    """How many verdicts the run will give."""

    def __post_init__(self) -> None:
        artifact, runner = self.request.artifact, self.bench.runner
        self.sides: dict[str, tuple[Artifact, Runner]] = {
            self.name: self.reference.side(artifact, runner),
            CANDIDATE: (artifact, runner),
        }

    @property
    def name(self) -> str:
        return self.reference.reference.name

    def _job(self, side: str, place: str, **choices: Any) -> Job:
        """Its files go to a folder ``place``, in which ``{}`` stands for the side."""
        artifact, runner = self.sides[side]
        name = place.format("candidate" if side == CANDIDATE else "reference")
        request = replace(self.request, artifact=artifact, **choices)
        return Job(runner, request, self.folder / name)

    def traced_pairs(self, count: int, run_seconds: float) -> list[tuple[Profile, Profile]]:
        """The two sides, traced in turn: what explains a difference must show in every pair.

        ``run_seconds`` is what one run takes. A slow model gets fewer runs, never fewer pairs.
        """
        runs = max(FEWEST_TRACED, min(MOST_TRACED, round(TRACED_SECONDS / run_seconds)))
        pairs = []
        for index in range(count):
            found = {}
            for side in list(self.sides)[:: 1 if index % 2 else -1]:
                job = self._job(side, "{}_traced_" + str(index), traced=True, warmup=0, runs=runs)
                traced = Traced(self.bench.target.run(job.runner, job.request, job.folder))
                found[side] = profile_of(self.title, traced, self.bench, job.runner)
            pairs.append((found[self.name], found[CANDIDATE]))
        return pairs

    @cached_property
    def _looked_at(self) -> dict[str, tuple[Traced, Profile]]:
        """One traced run of each side, counted where the target can."""
        found = {}
        for side, (_, runner) in self.sides.items():
            job = self._job(
                side,
                "{}_traced",
                traced=True,
                # As the emulator's run of the case has it, which then need not be made again.
                keep_outputs=not self.bench.timed,
                counted=not why_not_counted(self.bench, self.request.threads, runner),
                warmup=0,
                runs=1,
            )
            traced = trace_case(self.bench, job.request, job.folder, runner)
            found[side] = traced, profile_of(self.title, traced, self.bench, runner)
        return found

    def check_cost(self, limits: Limits, arm: Arm | None = None) -> Check:
        """Exact, where the target counts: what the two execute, operator by operator."""
        old, new = (
            cost_of(self.bench, *self._looked_at[side], self.sides[side][1])
            for side in (self.name, CANDIDATE)
        )
        profiles = [self._looked_at[side][1] for side in (self.name, CANDIDATE)]
        metric = metric_against("cost", self.name, arm)
        return compare_costs(metric, old, new, limits, self.name, profiles)

    def check_operators(self, arm: Arm | None = None) -> Check:
        """Exact, on any target: operators that came, went, or left the delegate."""
        old, new = (structure_of(self._looked_at[side][1]) for side in (self.name, CANDIDATE))
        differences = operator_differences(old, new)
        details = tuple(f"{entry.name}: {growth:+d}" for entry, growth in differences)
        verdict = Outcome.REGRESSED if new.sme2 + new.unproven < old.sme2 else Outcome.PASS
        message = f"The same {count(new.total, 'operator')} as {self.name}."
        if differences:
            kinds = count(len(differences), "kind")
            message = f"Not the same as in {self.name}: {kinds} of operator."
        metric = metric_against("operators", self.name, arm)
        return Check(metric, verdict, message, old.total, new.total, "count", details=details)

    def check_generation(self, limits: Limits, arm: Arm | None = None) -> list[Check]:
        """Each phase of whole generations that take turns; none where a side does not generate."""
        plans = [artifact.generation for artifact, _ in self.sides.values()]
        able = all(runner.generates for _, runner in self.sides.values())
        plan = plans[-1]
        if plan is None or plans[0] != plan or not able:
            return []
        tokens, steps, limit = plan.prompt_tokens, 1 + plan.new_tokens, limits.max_regression

        def judge(old: Sequence[Run], new: Sequence[Run]) -> list[PhaseRatio]:
            return compare_phases(log_ratios(old, new, steps), tokens, limit, self.family)

        jobs = {side: self._job(side, "generation/{}", generate=True) for side in self.sides}
        runs, hot = measure_generations(self.bench, self.title, jobs, judge)
        old, new = (of[1:] for of in runs.values())
        begins = beginning(log_ratios(old, new, steps), tokens)
        return generation.check_against(judge(old, new), begins, limits, self.name, arm, hot)

    def measure(self, threshold: float, budgets: int = 1) -> PairedTiming:
        """Interleaved pairs until the answer is clear or so many time budgets are used up."""
        jobs = {side: self._job(side, "{}") for side in self.sides}
        plan = self.bench.plan(
            threshold=threshold,
            family=self.family,
            budget_seconds=budgets * self.bench.settings.budget_seconds,
        )
        with self.bench.exclusively():
            return self.bench.measure_pairs(self.title, self.bench.starter(jobs), plan)
