"""Puts runs, profiles and timings of a case together into one CaseResult; judges nothing.

Times one case on its target: pairs where SME2 can be switched, single processes elsewhere; its
frontier: every arm with every number of threads of the run; and its whole generations: counted on
the emulator, in turns where times count.
"""

from __future__ import annotations

import datetime
import hashlib
import secrets
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from pytest_sme2.errors import NotMeasurableError
from pytest_sme2.profile.operators import structure_of
from pytest_sme2.results.case import (
    DECODE,
    PREFILL,
    RUNTIME,
    Agreement,
    CaseResult,
    Generated,
    PhaseRatio,
    Sample,
    Spread,
    StepCosts,
)
from pytest_sme2.results.evidence import CountedInference, InferenceCost, Pair, Toolchain
from pytest_sme2.results.profile import Category, Profile
from pytest_sme2.results.run import (
    Arm,
    Artifact,
    Fingerprint,
    GenerationPlan,
    Output,
    Run,
    RunRequest,
    TensorSpec,
)
from pytest_sme2.results.timing import (
    Estimate,
    Frontier,
    Outcome,
    PairedTiming,
    PairSample,
    Sustained,
)
from pytest_sme2.session.case_trace import trace_case, why_not_counted
from pytest_sme2.session.cases import Case
from pytest_sme2.system.files import file_sha256
from pytest_sme2.targets.base import Job, Target
from pytest_sme2.targets.local import LocalTarget
from pytest_sme2.targets.phone.answers import cores_text
from pytest_sme2.timing import stats
from pytest_sme2.timing.frontier import MeasuredRounds
from pytest_sme2.timing.processes import (
    FEWEST_RUNS,
    SamplingPlan,
    Starter,
    Yardstick,
    choose_sampling,
    interference,
    log_ratios,
    step_times,
    whole_phases,
)
from pytest_sme2.timing.stats import FALSE_ALARM_RATE
from pytest_sme2.trace.kernel_log import BEGIN
from pytest_sme2.verdict.generation import worst_parts
from pytest_sme2.verdict.judging import MEAN_CLOCK, MOVED_CAP
from pytest_sme2.verdict.numerics import compare_arms, compare_reference, sample

if TYPE_CHECKING:
    from pytest_sme2.session.device import HeldDevice

USUAL_COUNTS = (1, 2, 4, 8)
MOST_BYTES = 10**9
"""Of programs in memory at the same time; larger ones run one after the other."""


@dataclass(frozen=True)
class Timing:
    """The untraced processes of one case."""

    processes: Mapping[Arm, Sequence[Run]]
    measurement: PairedTiming | None
    """The pairs; None where only one arm could be measured."""
    yardstick_ns: float | None = None
    """What a program that never changes took meanwhile."""
    conditions: Mapping[str, str] = field(default_factory=dict)
    """What else may change the speed of the machine, as it is at the end."""


def measure_case(
    bench: HeldDevice,
    title: str,
    root: Path,
    requests: Mapping[Arm, RunRequest],
    fewest_runs: int = FEWEST_RUNS,
) -> Timing:
    """Measure until the answer is clear or the time is used up; files go below ``root``."""
    jobs = {
        str(arm): Job(bench.runner, requests[arm], root / f"timing_sme2_{arm}")
        for arm in (Arm.OFF, Arm.ON)
        if arm in requests
    }
    yardstick = Yardstick(bench.target, bench.runner, root / "yardstick", bench.clock)
    starter = bench.starter(jobs, beside=yardstick)
    plan = bench.plan(blocks=bench.blocks_due, fewest_runs=fewest_runs)
    if len(jobs) == 1:
        alone = {arm: measure_alone(starter, plan) for arm in requests}
        return _timing(alone, None, yardstick, bench)
    measurement = bench.measure_pairs(title, starter, plan)
    bench.blocks_due -= len(measurement.blocks)
    # The first process of each arm is the pilot: it also warms the file cache.
    counted = {
        Arm(label): [runs[1 + pair.index] for pair in measurement.pairs]
        for label, runs in starter.runs.items()
    }
    return _timing(counted, measurement, yardstick, bench)


def _timing(
    processes: Mapping[Arm, Sequence[Run]],
    measurement: PairedTiming | None,
    yardstick: Yardstick,
    bench: HeldDevice,
) -> Timing:
    conditions, target = dict(bench.conditions()), bench.target
    # This machine's system chooses by itself.
    if not isinstance(target, LocalTarget):
        threads = next(run.request.threads for runs in processes.values() for run in runs)
        conditions["cores"] = cores_text(target.cores, target.pinned(threads)) or "any"
    conditions |= _mean_clocks(processes)
    runs = (run for each in processes.values() for run in each)
    if moved := next((run.clock_change for run in runs if run.clock_change), ""):
        conditions[MOVED_CAP] = moved
    return Timing(processes, measurement, yardstick.median_ns, conditions)


def _mean_clocks(processes: Mapping[Arm, Sequence[Run]]) -> dict[str, str]:
    """Of each arm's processes; or why cycles are not counted, said once."""
    found: dict[str, str] = {}
    for arm, runs in processes.items():
        clocks = [run.clock_ghz for run in runs if run.clock_ghz is not None]
        if clocks and len(clocks) == len(runs):
            found[MEAN_CLOCK.format(arm)] = f"{statistics.median(clocks):.3f} GHz"
        elif why := next((run.uncounted for run in runs if run.uncounted), ""):
            found["cycles"] = f"not counted ({why})"
    return found


def measure_alone(starter: Starter, plan: SamplingPlan) -> list[Run]:
    """Processes of the only arm: as many as a first look takes, fewer only at the hard limit."""
    ((arm, runs),) = starter.runs.items()
    begun = starter.clock()
    _, single, overhead = starter.pilot([arm])
    spent = starter.clock() - begun
    # Half of it would be the other arm's.
    left = 2 * (plan.budget_seconds - spent)
    sampling = choose_sampling(single, overhead, left, plan)
    for made in range(1, plan.looks[0] + 1):
        starter.start([arm], sampling)
        used = starter.clock() - begun
        if used + (used - spent) / made > plan.hard_limit:
            break
    return runs[1:]


def device_counts(target: Target) -> tuple[int, ...]:
    """The numbers of threads worth a look on the device."""
    return tuple(threads for threads in USUAL_COUNTS if threads <= (len(target.cores) or 4))


def measure_frontier(
    bench: HeldDevice,
    case: Case,
    counts: Sequence[int],
    artifact_of: Callable[[Case], Artifact],
    folder_of: Callable[[Case], Path],
) -> Frontier:
    """In rounds, alone on the device; an error where it cannot be told, or there is no choice."""
    bench.require_timing()
    if len(counts) < 2:
        raise NotMeasurableError("there is one number of threads: give several, as --threads 1,2,4")
    if case.threads != counts[0]:
        raise NotMeasurableError(f"all numbers of threads are compared at once, with {counts[0]}")
    artifact, folder = artifact_of(case), folder_of(case) / "frontier"
    target = bench.target
    cores = target.cores
    cells = {f"sme2_{arm}_t{threads}": (arm, threads) for threads in counts for arm in bench.arms}
    pinned = {count: target.pinned(count, mixed=True) for count in counts}
    jobs = {
        label: Job(
            bench.runner,
            replace(bench.request(artifact, arm, threads), cpus=pinned[threads]),
            folder / label,
        )
        for label, (arm, threads) in cells.items()
    }
    # Processes that take turns are in memory together.
    fits = artifact.pte.stat().st_size * len(cells) < MOST_BYTES
    # As much time as pairs of each number would take.
    plan = bench.plan(budget_seconds=bench.settings.budget_seconds * len(counts))
    bench.cool_down()
    with bench.exclusively():
        return MeasuredRounds(
            bench.starter(jobs, turns=fits),
            cells,
            plan,
            say=lambda line: bench.say(f"{case.id}: {line}"),
            cores=lambda count: cores_text(cores, pinned[count]),
        ).measure()


def new_session() -> tuple[str, str]:
    """A name for this run that no other has, and the time it began."""
    now = datetime.datetime.now(datetime.timezone.utc)
    return f"{now:%Y%m%dT%H%M%SZ}-{secrets.token_hex(4)}", f"{now:%Y-%m-%dT%H:%M:%SZ}"


def shares_of(profile: Profile) -> dict[Category, Spread]:
    """The part of end-to-end time that a category takes, and how far single runs stray from it."""
    totals = np.asarray(profile.end_to_end_ns, dtype=float)
    shares = {}
    for category, time in profile.category_ns.items():
        series = [
            entry.samples_ns for entry in profile.operators if entry.operator.category is category
        ]
        value = profile.share(time)
        if not series:
            shares[category] = Spread(value, value, value)
            continue
        by_run = np.asarray(series, dtype=float).sum(axis=0) / np.maximum(totals, 1)
        low, high = (float(bound) for bound in np.percentile(by_run, (5, 95)))
        shares[category] = Spread(value, min(low, value), max(high, value))
    return shares


def speedup_of(measurement: PairedTiming) -> Estimate:
    """How many times faster SME2 makes it, from pairs of off (reference) and on (candidate)."""
    look = measurement.looks[-1]
    low, high = measurement.speedup_interval or (0.0, float("inf"))
    # Where it is another one in long blocks, it is not known better than that.
    uncertain = 1 / (measurement.carried_over or measurement.ratio)
    low, high = min(low, uncertain), max(high, uncertain)
    return Estimate(measurement.speedup, low, high, 1 - 2 * look.alpha, look.pairs)


def assemble(
    pair: Pair,
    fingerprint: Fingerprint,
    *,
    session: str,
    recorded: str,
    profiles: Mapping[Arm, Profile],
    runtime: str,
    timing: Timing | None = None,
    runtime_sha256: str = "",
    costs: Mapping[Arm, InferenceCost | str] | None = None,
    frontier: Frontier | None = None,
    sustained: Sustained | None = None,
    generation: Generated | None = None,
) -> CaseResult:
    """Everything one pair showed; ``runtime`` is the version of ExecuTorch that ran it."""
    traced = {arm: (run,) for arm, run in pair.traced.items()}
    untraced = {Arm.ON: pair.on, Arm.OFF: pair.off}
    runs = {arm: (*untraced.get(arm, ()), *traced.get(arm, ())) for arm in {**untraced, **traced}}
    kept = _kept(runs)
    everything = [run for arm in runs.values() for run in arm]
    emulated = any(run.emulated for run in everything)
    artifact = pair.artifact
    timed = {} if emulated else _times(pair, profiles, timing or Timing({}, None))
    return CaseResult(
        model=artifact.model,
        variant=artifact.variant,
        tokens=artifact.tokens,
        fingerprint=fingerprint,
        emulated=emulated,
        runner=everything[0].runner,
        session=session,
        recorded=recorded,
        threads=everything[0].request.threads,
        profiles=dict(profiles),
        structures={arm: structure_of(profile) for arm, profile in profiles.items()},
        kernels={arm: census for arm, census in pair.censuses.items() if census is not None},
        program=str(artifact.pte),
        pte_bytes=artifact.pte.stat().st_size if artifact.pte.exists() else None,
        pte_sha256=artifact.sha256,
        inputs=inputs_sha256(everything[0].request),
        samples=_samples(artifact, kept),
        agreements=_agreements(artifact, kept),
        nan_arms=tuple(
            arm
            for arm, of_arm in runs.items()
            if any(output.has_nan for run in of_arm for output in run.outputs)
        ),
        evidence=pair.evidence,
        versions={**artifact.versions, RUNTIME: runtime},
        runtime=runtime_sha256,
        weights=artifact.weights,
        costs={arm: cost for arm, cost in (costs or {}).items() if isinstance(cost, InferenceCost)},
        uncounted=next((cost for cost in (costs or {}).values() if isinstance(cost, str)), ""),
        frontier=frontier,
        sustained=sustained,
        generation=generation,
        **timed,
    )


def inputs_sha256(request: RunRequest) -> str:
    """Of all that a program is given; what has no file, the runner makes from spec and seed."""
    artifact = request.artifact
    parts = [*map(file_sha256, artifact.input_files), *map(str, artifact.inputs), str(request.seed)]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def _times(pair: Pair, profiles: Mapping[Arm, Profile], timing: Timing) -> dict[str, Any]:
    """What is only known where times count. Traced runs are slower and give shares alone."""
    measurement = timing.measurement
    medians: dict[Arm, tuple[float, ...]] = {}
    loads: dict[Arm, tuple[float, ...]] = {}
    peaks: dict[Arm, int] = {}
    p95s: dict[Arm, tuple[float, ...]] = {}
    for arm, runs in ((Arm.ON, pair.on), (Arm.OFF, pair.off)):
        if runs:
            medians[arm] = tuple(float(statistics.median(run.wall_ns)) for run in runs)
            p95s[arm] = tuple(stats.p95(run.wall_ns) for run in runs)
        if loaded := tuple(float(run.load_ns) for run in runs if run.load_ns):
            loads[arm] = loaded
        if peak := [run.peak_rss_bytes for run in runs if run.peak_rss_bytes is not None]:
            peaks[arm] = int(statistics.median(peak))
    if measurement is not None:
        medians = {
            Arm.ON: tuple(entry.candidate_ns for entry in measurement.pairs),
            Arm.OFF: tuple(entry.reference_ns for entry in measurement.pairs),
        }
    levels = [level for level in map(interference, [*pair.on, *pair.off]) if level is not None]
    return {
        "medians_ns": medians,
        "p95s_ns": p95s,
        "inferences": min((len(run.wall_ns) for run in (*pair.on, *pair.off)), default=0),
        "speedup": None if measurement is None else speedup_of(measurement),
        "interference": statistics.median(levels) if levels else None,
        "throttled_pairs": 0 if measurement is None else measurement.throttled_pairs,
        "shares": {arm: shares_of(profile) for arm, profile in profiles.items()},
        "loads_ns": loads,
        "peak_bytes": peaks,
        "yardstick_ns": timing.yardstick_ns,
        "conditions": dict(timing.conditions),
    }


def _agreements(artifact: Artifact, kept: Mapping[Arm, Run]) -> tuple[Agreement, ...]:
    """Each arm against off and against the reference."""
    found: list[Agreement] = []
    for arm in (Arm.ON, Arm.SME1):
        if arm in kept and Arm.OFF in kept:
            found += compare_arms(kept[arm].outputs, kept[Arm.OFF].outputs, arm)
    for arm, run in kept.items():
        found += compare_reference(artifact, run.outputs, arm)
    # The third arm comes last: a baseline without it is the same up to there.
    return tuple(sorted(found, key=lambda entry: entry.arm is Arm.SME1))


def _kept(runs: Mapping[Arm, Sequence[Run]]) -> dict[Arm, Run]:
    """The last run of each arm whose outputs were kept."""
    return {
        arm: run
        for arm, of_arm in runs.items()
        for run in of_arm
        if run.outputs and all(output.file is not None for output in run.outputs)
    }


def _samples(artifact: Artifact, kept: Mapping[Arm, Run]) -> dict[str, Sample]:
    """What went in, what the eager model answers, and what the program answered."""
    run = kept.get(Arm.ON) or kept.get(Arm.OFF)
    tensors: dict[str, Iterable[tuple[Path | None, TensorSpec | Output]]] = {
        "input": zip(artifact.input_files, artifact.inputs),  # noqa: B905 - there may be no files
        "reference": zip(artifact.reference_files, artifact.outputs),  # noqa: B905
        "output": ((output.file, output) for output in (() if run is None else run.outputs)),
    }
    return {
        f"{kind} {index}": sample(
            file, spec.dtype, spec.shape, f"{artifact.model}-{artifact.variant}, {kind} {index}"
        )
        for kind, found in tensors.items()
        for index, (file, spec) in enumerate(found)
        if file is not None
    }


BUDGETS = 2
"""A phase is shorter than the whole, and so is noisier."""
WARMUP = 1
"""Each step of a generation warms up the next."""
Judge = Callable[[Sequence[Run], Sequence[Run]], list[PhaseRatio]]
"""What pairs of processes, the reference's and the candidate's, say of each phase."""


def generate(
    bench: HeldDevice,
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
    bench: HeldDevice,
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
    bench: HeldDevice,
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
    bench: HeldDevice, title: str, jobs: Mapping[str, Job], judge: Judge | None = None
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
