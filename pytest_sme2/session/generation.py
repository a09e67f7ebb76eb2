"""Measures whole generations of one case: counted on the emulator, in turns where times count."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from pytest_sme2.errors import NotMeasurableError
from pytest_sme2.results import (
    DECODE,
    PREFILL,
    Agreement,
    Arm,
    Artifact,
    CountedInference,
    Generated,
    GenerationPlan,
    Outcome,
    PairSample,
    PhaseRatio,
    Run,
    RunRequest,
    StepCosts,
    Toolchain,
)
from pytest_sme2.session.case_result import measure_alone
from pytest_sme2.session.case_trace import trace_case, why_not_counted
from pytest_sme2.targets.base import Job
from pytest_sme2.timing.processes import log_ratios, step_times, whole_phases
from pytest_sme2.timing.stats import FALSE_ALARM_RATE
from pytest_sme2.trace.counts import BEGIN
from pytest_sme2.verdict.generation import worst_parts
from pytest_sme2.verdict.numerics import compare_reference

if TYPE_CHECKING:
    from pytest_sme2.session.bench import Bench

BUDGETS = 2
"""A phase is shorter than the whole, and so is noisier."""
WARMUP = 1
"""Each step of a generation warms up the next."""
Judge = Callable[[Sequence[Run], Sequence[Run]], list[PhaseRatio]]
"""What pairs of processes, the reference's and the candidate's, say of each phase."""


def generate(
    bench: Bench,
    title: str,
    requests: Mapping[Arm, RunRequest],
    folder: Path,
    timing: object | None,
) -> Generated | None:
    """All generations of a case; None where the model does not say how it generates.

    Where times count, they are measured with the case's own: None without ``timing``.
    """
    plan = next(iter(requests.values())).artifact.generation
    if plan is None or not bench.runner.generates or (bench.timed and timing is None):
        return None
    asked = {arm: replace(request, generate=True) for arm, request in requests.items()}
    measure = _timed if bench.timed else _counted
    return measure(bench, title, plan, asked, folder / "generation")


def _counted(
    bench: Bench,
    title: str,
    plan: GenerationPlan,
    requests: Mapping[Arm, RunRequest],
    folder: Path,
) -> Generated | None:
    costs: dict[Arm, StepCosts] = {}
    agreements: list[Agreement] = []
    for arm, request in requests.items():
        if why_not_counted(bench, request.threads):
            return None
        bench.say(f"{title}: a generation on {bench.target.name}, SME2 {arm}")
        once = replace(request, counted=True, keep_outputs=True, warmup=0, runs=1)
        traced = trace_case(bench, once, folder / f"sme2_{arm}")
        if traced.counted is None or traced.counted.problem:
            why = "nothing was" if traced.counted is None else traced.counted.problem
            raise NotMeasurableError(f"the generation was not counted: {why}")
        costs[arm] = step_costs(traced.counted, bench.runner.toolchain)
        agreements += last_agreements(request.artifact, traced.run, arm)
    return Generated(plan.prompt_tokens, plan.new_tokens, costs=costs, agreements=tuple(agreements))


def step_costs(counted: CountedInference, toolchain: Toolchain) -> StepCosts:
    """What each inference executed."""
    instructions: list[int] = []
    system: list[int] = []
    for segment in counted.segments:
        if segment.mark == BEGIN:
            instructions.append(0)
            system.append(0)
            continue
        for name, counts in segment.code.items():
            instructions[-1] += counts[0]
            system[-1] += counts[0] if name in toolchain.files else 0
    return StepCosts(tuple(instructions), tuple(system), toolchain.identity)


def last_agreements(artifact: Artifact, run: Run, arm: Arm) -> tuple[Agreement, ...]:
    """The last step's answer against the eager model's: a cache that was lost shows here."""
    files = tuple(artifact.folder / f"generated_{i}.bin" for i in range(len(artifact.outputs)))
    return compare_reference(replace(artifact, reference_files=files), run.outputs, arm)


def _timed(
    bench: Bench,
    title: str,
    plan: GenerationPlan,
    requests: Mapping[Arm, RunRequest],
    folder: Path,
) -> Generated:
    # Off is the reference, and comes first.
    arms = [arm for arm in (Arm.OFF, Arm.ON) if arm in requests]
    jobs = {str(arm): Job(bench.runner, requests[arm], folder / f"sme2_{arm}") for arm in arms}
    found, _ = measure_generations(bench, title, jobs)
    agreements: list[Agreement] = []
    for arm in arms:
        agreements += last_agreements(requests[arm].artifact, found[str(arm)][0], arm)
    return figures(plan, {arm: found[str(arm)][1:] for arm in arms}, tuple(agreements))


def measure_generations(
    bench: Bench, title: str, jobs: Mapping[str, Job], judge: Judge | None = None
) -> tuple[dict[str, list[Run]], int]:
    """Pairs of generations that take turns; single ones of one side alone.

    The reference is the first of ``jobs``, whose folders get one folder per process. With
    ``judge`` there are pairs until the answer for each phase is clear, or the time is used up.

    Of each side, its pilot, which has the outputs, and then what counts; and how many of the pairs
    the device itself slowed down.
    """
    kept = {
        side: replace(job, request=replace(job.request, keep_outputs=True))
        for side, job in jobs.items()
    }
    budgets = 1 if judge is None else BUDGETS
    seconds = budgets * bench.settings.budget_seconds
    plan = bench.plan(budget_seconds=seconds, warmup=WARMUP)
    starter = bench.starter(kept)

    def counted(pairs: Sequence[PairSample]) -> dict[str, list[Run]]:
        numbers = [1 + pair.index for pair in pairs]
        return {side: [runs[number] for number in numbers] for side, runs in starter.runs.items()}

    def still_open(pairs: Sequence[PairSample]) -> bool:
        phases = judge(*counted(pairs).values()) if judge is not None else ()
        return any(part.outcome is Outcome.INCONCLUSIVE for part in worst_parts(phases))

    bench.cool_down()
    with bench.exclusively():
        if len(jobs) == 1:
            measure_alone(starter, plan)
            return starter.runs, 0
        asked = None if judge is None else still_open
        timing = bench.measure_pairs(f"{title}, generation", starter, plan, asked)
    found = counted(timing.pairs)
    return {side: [starter.runs[side][0], *found[side]] for side in found}, timing.throttled_pairs


def figures(
    plan: GenerationPlan, runs: Mapping[Arm, Sequence[Run]], agreements: tuple[Agreement, ...] = ()
) -> Generated:
    """What the processes of each arm come to."""
    steps = 1 + plan.new_tokens
    names = ("steps_ns", "decode_p95_ns", "loads_ns", "peak_bytes")
    kept: dict[str, dict[Arm, Any]] = {name: {} for name in names}
    phases: dict[str, dict[Arm, tuple[float, ...]]] = {PREFILL: {}, DECODE: {}}
    for arm, of in runs.items():
        times = [step_times(run, steps) for run in of]
        medians = np.array([np.median(each, axis=0) for each in times])
        decodes = np.concatenate([each[:, 1:] for each in times])
        peaks = np.median([run.step_peak_bytes[:steps] for run in of], axis=0)
        phases[PREFILL][arm] = tuple(medians[:, 0].tolist())
        phases[DECODE][arm] = tuple(np.median(medians[:, 1:], axis=1).tolist())
        kept["steps_ns"][arm] = tuple(np.median(medians, axis=0).tolist())
        kept["decode_p95_ns"][arm] = float(np.percentile(decodes, 95))
        kept["loads_ns"][arm] = statistics.median(float(run.load_ns or 0) for run in of)
        kept["peak_bytes"][arm] = tuple(int(value) for value in peaks)
    speedups = {}
    if {Arm.ON, Arm.OFF} <= set(runs):
        ratios = log_ratios(runs[Arm.OFF], runs[Arm.ON], steps)
        speedups = whole_phases(ratios, FALSE_ALARM_RATE / 2)
    return Generated(
        plan.prompt_tokens,
        plan.new_tokens,
        phases_ns=phases,
        speedups=speedups,
        agreements=agreements,
        **kept,
    )
