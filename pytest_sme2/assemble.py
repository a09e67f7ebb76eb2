"""Puts what the stages found about one case into one ``Measured``. Pure: nothing is run here."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from pytest_sme2 import numerics
from pytest_sme2.results import (
    Agreement,
    Arm,
    Artifact,
    Category,
    Estimate,
    Evidence,
    Fingerprint,
    KernelCensus,
    Measured,
    Measurement,
    OperatorCount,
    Profile,
    Run,
    Spread,
    Structure,
)


def structure_of(profile: Profile) -> Structure:
    """The operators of one inference by name, and how often each stands in it."""
    counts = Counter(entry.operator for entry in profile.operators)
    ordered = sorted(counts.items(), key=lambda item: item[0].name)
    return Structure(tuple(OperatorCount(operator, count) for operator, count in ordered))


def shares_of(profile: Profile) -> dict[Category, Spread]:
    """Each category's part of end-to-end time, with its spread over the runs."""
    total = np.asarray(profile.end_to_end_ns, dtype=float)
    by_category: dict[Category, Spread] = {}
    for category, time_ns in profile.category_ns.items():
        samples = [
            entry.samples_ns
            for entry in profile.operators
            if entry.operator.category is category and len(entry.samples_ns) == len(total)
        ]
        value = profile.share(time_ns)
        if not samples:
            by_category[category] = Spread(value, value, value)
            continue
        per_run = np.sum(np.asarray(samples, dtype=float), axis=0) / total
        low, high = np.percentile(per_run, (5, 95))
        by_category[category] = Spread(value, min(value, float(low)), max(value, float(high)))
    return by_category


def agreements_of(artifact: Artifact, traced: Mapping[Arm, Run]) -> tuple[Agreement, ...]:
    """SME2 on against off, and each arm against the eager model."""
    found: list[Agreement] = []
    if Arm.ON in traced and Arm.OFF in traced:
        found += numerics.compare_arms(traced[Arm.ON].outputs, traced[Arm.OFF].outputs)
    for arm, run in traced.items():
        found += numerics.compare_reference(artifact, run.outputs, arm)
    return tuple(found)


def speedup_of(measurement: Measurement) -> Estimate | None:
    """Off over on, where both were measured."""
    interval = measurement.speedup_interval
    if interval is None:
        return None
    return Estimate(
        value=measurement.speedup,
        low=interval[0],
        high=interval[1],
        confidence=1 - 2 * measurement.looks[-1].alpha,
        pairs=len(measurement.pairs),
    )


@dataclass(frozen=True)
class Timing:
    """What the untraced processes of one case showed."""

    medians_ns: Mapping[Arm, tuple[float, ...]]
    """Of the processes that count."""
    processes: Mapping[Arm, Sequence[Run]]
    speedup: Estimate | None = None
    measurement: Measurement | None = None
    """None where only one arm could be measured."""


def assemble(
    artifact: Artifact,
    fingerprint: Fingerprint,
    *,
    session: str,
    recorded: str,
    threads: int,
    traced: Mapping[Arm, Run],
    profiles: Mapping[Arm, Profile],
    census: Mapping[Arm, KernelCensus],
    evidence: Evidence | None,
    timing: Timing | None,
) -> Measured:
    """Everything about one case; without ``timing`` its structure and outputs alone."""
    emulated = any(run.emulated for run in traced.values())
    measured = Measured(
        model=artifact.model,
        variant=artifact.variant,
        fingerprint=fingerprint,
        emulated=emulated,
        runner=next(iter(traced.values())).runner,
        session=session,
        recorded=recorded,
        threads=threads,
        profiles=profiles,
        structures={arm: structure_of(profile) for arm, profile in profiles.items()},
        kernels=census,
        shares=None if emulated else {arm: shares_of(p) for arm, p in profiles.items()},
        pte_bytes=artifact.pte.stat().st_size,
        pte_sha256=artifact.sha256,
        agreements=agreements_of(artifact, traced),
        nan_arms=tuple(
            arm for arm, run in traced.items() if any(output.has_nan for output in run.outputs)
        ),
        evidence=evidence,
        versions=dict(artifact.versions),
        weights=artifact.weights,
    )
    if timing is None or emulated:
        return measured
    peaks = {
        arm: [run.peak_rss_bytes for run in runs if run.peak_rss_bytes is not None]
        for arm, runs in timing.processes.items()
    }
    return replace(
        measured,
        medians_ns=dict(timing.medians_ns),
        speedup=timing.speedup,
        loads_ns={
            arm: tuple(float(run.load_ns) for run in runs if run.load_ns is not None)
            for arm, runs in timing.processes.items()
        },
        peak_bytes={arm: int(statistics.median(values)) for arm, values in peaks.items() if values},
    )
