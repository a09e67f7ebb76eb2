"""Puts runs, profiles and timings of a case together into one CaseResult; judges nothing."""

from __future__ import annotations

import datetime
import hashlib
import secrets
import statistics
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from pytest_sme2.errors import TargetError
from pytest_sme2.profile.operators import structure_of
from pytest_sme2.results import (
    RUNTIME,
    Agreement,
    Arm,
    Artifact,
    CaseResult,
    Category,
    Estimate,
    Fingerprint,
    Frontier,
    Generated,
    InferenceCost,
    Output,
    Pair,
    PairedTiming,
    Profile,
    Run,
    RunRequest,
    Sample,
    Spread,
    Sustained,
    TensorSpec,
)
from pytest_sme2.session.case_timing import Timing
from pytest_sme2.system.files import file_sha256
from pytest_sme2.timing import stats
from pytest_sme2.timing.processes import interference
from pytest_sme2.verdict import numerics
from pytest_sme2.verdict.samples import sample


def new_session() -> tuple[str, str]:
    """A name for this run that no other has, and the time it began."""
    now = datetime.datetime.now(datetime.timezone.utc)
    return f"{now:%Y%m%dT%H%M%SZ}-{secrets.token_hex(4)}", f"{now:%Y-%m-%dT%H:%M:%SZ}"


def shares_of(profile: Profile) -> dict[Category, Spread]:
    """The part of end-to-end time that a category takes, and how far single runs stray from it."""
    import numpy as np

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
    _refuse_mixture(pair, everything)
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
    """Of everything that a program is given, earlier inferences included; what has no file, the
    runner makes from the specification and the seed.
    """
    artifact = request.artifact
    files = (*artifact.input_files, *artifact.earlier_files)
    parts = [*map(file_sha256, files), *map(str, artifact.inputs), str(request.seed)]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def _refuse_mixture(pair: Pair, runs: Sequence[Run]) -> None:
    """Values of different targets, runners or programs must not be taken for one thing."""
    who = f"{pair.artifact.model}-{pair.artifact.variant}"
    if not runs:
        raise TargetError(f"{who}: nothing was run, so nothing was measured.")
    for what, values in (
        ("targets", {run.target for run in runs}),
        ("runners", {run.runner for run in runs}),
        ("real and emulated runs", {str(run.emulated) for run in runs}),
        ("programs", {run.request.artifact.sha256 for run in runs}),
        ("thread counts", {str(run.request.threads) for run in runs}),
    ):
        if len(values) > 1:
            raise TargetError(
                f"{who}: different {what} were mixed ({', '.join(sorted(values))}). "
                "Measure one at a time."
            )


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
        "interference": statistics.median(levels) if levels else timing.interference,
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
            found += numerics.compare_arms(kept[arm].outputs, kept[Arm.OFF].outputs, arm)
    for arm, run in kept.items():
        found += numerics.compare_reference(artifact, run.outputs, arm)
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
