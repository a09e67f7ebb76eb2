"""Measures whole generations of one case: counted on the emulator, in turns where times count."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
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
    Run,
    RunRequest,
    StepCosts,
    Toolchain,
)
from pytest_sme2.session.case_timing import measure_alone
from pytest_sme2.session.case_trace import trace_case, why_not_counted
from pytest_sme2.targets.base import Job
from pytest_sme2.timing.phases import log_ratios, step_times, whole_phases
from pytest_sme2.timing.stats import FALSE_ALARM_RATE
from pytest_sme2.trace.kernel_log import BEGIN
from pytest_sme2.verdict.numerics import compare_reference

if TYPE_CHECKING:
    from pytest_sme2.session.bench import Bench

PAIRS = 20
"""A phase is shorter than the whole, and so is noisier: the first look at the whole is too soon."""
MORE_PAIRS = 2
"""More than could tell at all: one or two may stray."""


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
    runs = measure_generations(bench, title, jobs)
    agreements: list[Agreement] = []
    for arm in arms:
        agreements += last_agreements(requests[arm].artifact, runs[str(arm)][0], arm)
    # The first process of each arm is the pilot.
    return figures(plan, {arm: runs[str(arm)][1:] for arm in arms}, tuple(agreements))


def measure_generations(
    bench: Bench, title: str, jobs: Mapping[str, Job], alpha: float | None = None
) -> Mapping[str, list[Run]]:
    """Pairs of whole generations that take turns; single ones of one side alone.

    The reference is the first of ``jobs``, whose folders get one folder per process. With
    ``alpha`` there are enough pairs to judge each phase at that level, where time allows.
    """
    plan = bench.plan()
    if alpha is not None:
        pairs = max(PAIRS, MORE_PAIRS + math.ceil(-math.log2(alpha)))
        plan = replace(plan, looks=(pairs,), split=(1.0,))
    starter = bench.starter(
        {
            side: replace(job, request=replace(job.request, keep_outputs=True))
            for side, job in jobs.items()
        }
    )
    bench.cool_down()
    with bench.exclusively():
        if len(jobs) == 1:
            measure_alone(starter, plan)
        else:
            bench.measure_pairs(f"{title}, generation", starter, plan)
    return starter.runs


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
