"""What ``--against`` names: a bundle, a folder of programs, or a version of ExecuTorch.

And one case measured against it in one run: operators and interleaved pairs, or exact costs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from pytest_sme2.errors import UsageError
from pytest_sme2.export.store import artifact_stem, find_artifact
from pytest_sme2.export.variant import parse_variant
from pytest_sme2.profile.operators import structure_of
from pytest_sme2.results.case import Baseline, Check, Limits, PhaseRatio
from pytest_sme2.results.profile import Profile
from pytest_sme2.results.run import AS_EXPORTED, Arm, Artifact, Run, RunRequest
from pytest_sme2.results.timing import Outcome, PairedTiming
from pytest_sme2.runners.base import Runner
from pytest_sme2.runners.sdk import parse_pin
from pytest_sme2.runners.sme2 import find_runner, wheel_runner
from pytest_sme2.session.bundle import SUFFIXES, open_bundle
from pytest_sme2.session.case_result import measure_generations
from pytest_sme2.session.case_trace import cost_of, profile_of, trace_case, why_not_counted
from pytest_sme2.session.device import HeldDevice
from pytest_sme2.session.settings import Reference
from pytest_sme2.system.files import file_sha256
from pytest_sme2.system.terminal import Say
from pytest_sme2.system.wording import count
from pytest_sme2.targets.base import Job
from pytest_sme2.targets.emulated import Traced
from pytest_sme2.timing.processes import beginning, compare_phases, log_ratios
from pytest_sme2.verdict import generation
from pytest_sme2.verdict.cost import compare_costs
from pytest_sme2.verdict.judging import metric_against
from pytest_sme2.verdict.structure import operator_differences

CHOICES = (
    "Give a bundle made with sme2 bundle (.tar.gz), a folder of .pte files, or a version of "
    "ExecuTorch as in executorch==1.5.0."
)
CANDIDATE, BASELINE_PROGRAM = "this version", "the baseline's program"


def parse_against(text: str) -> Reference:
    """``executorch==1.5.0``, a bundle, or a folder of ``.pte`` files."""
    pin = parse_pin(text)
    if pin is not None and pin.package == "executorch":
        return Reference("executorch", f"executorch {pin.version}", version=pin.version)
    path = Path(text).expanduser()
    if path.resolve().name in (CANDIDATE, BASELINE_PROGRAM):
        raise UsageError(f"{text!r} has a name that reports use themselves. Rename it.")
    if text.strip() and path.is_file() and path.name.endswith(SUFFIXES):
        return Reference("bundle", path.name, path=path.resolve())
    if text.strip() and path.is_dir():
        return Reference("programs", path.resolve().name, path=path.resolve())
    problem = "is neither of these" if path.exists() and text.strip() else "does not exist"
    if text.strip().startswith("executorch"):
        problem = "is not a version"
    raise UsageError(f"{text!r} {problem}. {CHOICES}")


def kept_reference(
    baseline: Baseline, threads: int, runner: Runner, *, cache: Path | None = None
) -> OpenReference | None:
    """What the baseline's last session measured, where the cache still has its program and runner.

    ``runner`` is today's; it may well be the same one.
    """
    sessions = baseline.current(threads)
    # What was not exported here, the cache never had.
    if not sessions or baseline.variant == AS_EXPORTED:
        return None
    last = sessions[-1]
    if not last.program or not last.runtime:
        return None
    variant = parse_variant(baseline.variant)
    artifact = find_artifact(baseline.model, variant, last.program, cache=cache)
    kept: Runner | None = runner
    if last.runtime != runner.sha256:
        kept = find_runner(runner.platform, last.runtime, cache=cache)
    if artifact is None or kept is None:
        return None
    reference = Reference("baseline", BASELINE_PROGRAM)
    return OpenReference(reference, kept, {(baseline.model, baseline.variant): artifact})


@dataclass(frozen=True)
class OpenReference:
    """A reference that is ready to be measured against."""

    reference: Reference
    runner: Runner | None
    """None: the runner of the other side, on other programs."""
    artifacts: Mapping[tuple[str, str], Artifact] | None = None
    """By model and variant; None: the programs of the other side, on another runner."""
    programs: Mapping[str, Path] = field(default_factory=dict)
    """By file name without ``.pte``, where the reference is a folder of them."""

    def side(self, artifact: Artifact, runner: Runner) -> tuple[Artifact, Runner]:
        """What to compare ``artifact`` on ``runner`` with; UsageError where nothing fits."""
        return self._artifact(artifact), self._runner(runner)

    def _runner(self, runner: Runner) -> Runner:
        if self.runner is None:
            return runner
        if self.runner.platform != runner.platform:
            raise UsageError(
                f"{self.reference.name} is for {self.runner.platform}, but this target is "
                f"{runner.platform}. Measure against something made for it."
            )
        return self.runner

    def _artifact(self, artifact: Artifact) -> Artifact:
        if self.artifacts is not None:
            found = self.artifacts.get((artifact.model, artifact.variant))
            if found is None:
                known = (f"{model}-{variant}" for model, variant in sorted(self.artifacts))
                raise self._lacks(artifact, known)
            return found
        if self.reference.kind == "programs":
            stem = artifact.pte.stem
            if artifact.variant != AS_EXPORTED:
                stem = artifact_stem(artifact.model, parse_variant(artifact.variant))
            path = self.programs.get(stem)
            if path is None:
                raise self._lacks(artifact, (f"{name}.pte" for name in sorted(self.programs)))
            digest = file_sha256(path)
            # The inputs stay ours: both sides are to compute the same thing.
            return replace(artifact, folder=path.parent, pte=path, sha256=digest, etrecord=None)
        return artifact

    def _lacks(self, artifact: Artifact, known: Iterable[str]) -> UsageError:
        names = ", ".join(known)
        return UsageError(
            f"{self.reference.name} has no program for {artifact.model}-{artifact.variant}. "
            f"It has: {names or 'none'}."
        )


def open_reference(
    reference: Reference,
    platform: str,
    *,
    cache: Path | None = None,
    progress: Say | None = None,
) -> OpenReference:
    """Make a reference ready: download and build, unpack and check, or look into the folder."""
    if reference.kind == "executorch":
        runner = wheel_runner(
            platform, executorch=reference.version, cache=cache, progress=progress
        )
        return OpenReference(reference, runner)
    if reference.path is None:
        raise ValueError(f"A reference of kind {reference.kind!r} needs a path.")
    if reference.kind == "bundle":
        bundle = open_bundle(reference.path, cache=cache)
        return OpenReference(reference, bundle.runner, bundle.artifacts)
    return OpenReference(reference, None, programs=_programs(reference.path))


def _programs(folder: Path) -> dict[str, Path]:
    """The programs in a folder and in the folders in it, as ``sme2 export --out`` leaves them."""
    found: dict[str, Path] = {}
    for path in sorted((*folder.glob("*.pte"), *folder.glob("*/*.pte"))):
        if path.stem in found:
            raise UsageError(
                f"{folder}: two programs are called {path.name}: {found[path.stem]} and {path}. "
                "Remove one."
            )
        found[path.stem] = path
    if not found:
        raise UsageError(f"{folder}: holds no .pte file. {CHOICES}")
    return found


TRACED_SECONDS = 1.0
"""How long the runs of a traced process take together, where ten are not quicker."""
FEWEST_TRACED, MOST_TRACED = 2, 10


@dataclass(eq=False)
class AgainstReference:
    """One case and the reference it is compared with, on the same target."""

    bench: HeldDevice
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
