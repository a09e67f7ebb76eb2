"""Results in the forms other services read: github-action-benchmark and Bencher. Pure.

Emulated runs give no times, so of them only sizes, counts and executed instructions are exported.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from pytest_sme2.results import Arm, CaseResult, Executor


@dataclass(frozen=True)
class Metric:
    """One number of which less is better."""

    measure: str
    """As Bencher calls a kind of number: ``latency-on``."""
    unit: str
    value: float
    low: float | None = None
    high: float | None = None


def metrics(measured: CaseResult) -> Iterator[Metric]:
    """Every number of a result that gets better by getting smaller."""
    for arm in Arm:
        yield from _latency(f"latency-{arm}", (measured.medians_ns or {}).get(arm, ()))
        yield from _latency(f"load-time-{arm}", (measured.loads_ns or {}).get(arm, ()))
        peak = (measured.peak_bytes or {}).get(arm)
        if peak is not None:
            yield Metric(f"peak-memory-{arm}", "bytes", peak)
        cost = measured.costs.get(arm)
        if cost is not None:
            yield Metric(f"instructions-{arm}", "instructions", cost.total.instructions)
    if measured.speedup is not None and measured.speedup.low > 0:
        # Time with SME2 over time without: a speedup whose smaller value is better.
        speedup = measured.speedup
        low, high = 1 / speedup.high, 1 / speedup.low
        yield Metric("time-on-over-off", "ratio", 1 / speedup.value, low, high)
    if measured.pte_bytes is not None:
        yield Metric("program-size", "bytes", measured.pte_bytes)
    structure = measured.structures.get(measured.arm)
    if structure is not None:
        yield Metric("operators", "operators", structure.total)
        portable = structure.executed_by(Executor.PORTABLE)
        yield Metric("portable-operators", "operators", portable)
    if Arm.ON in measured.structures:
        on = measured.structures[Arm.ON]
        yield Metric("matrix-operators-without-sme2", "operators", on.matrix - on.sme2)


def _latency(measure: str, medians: Sequence[float]) -> Iterator[Metric]:
    if medians:
        low, high = min(medians), max(medians)
        yield Metric(measure, "ns", statistics.median(medians), low, high)


def _name(measured: CaseResult) -> str:
    threads = f" ({measured.threads} threads)" if measured.threads != 1 else ""
    return f"{measured.model}-{measured.variant} on {measured.fingerprint.target}{threads}"


def github_action_benchmark(results: Sequence[CaseResult]) -> str:
    """The JSON of github-action-benchmark's tool ``customSmallerIsBetter``."""
    entries: list[dict[str, Any]] = []
    for measured in results:
        for metric in metrics(measured):
            entry: dict[str, Any] = {
                "name": f"{_name(measured)}: {metric.measure}",
                "unit": metric.unit,
                "value": metric.value,
                "extra": "\n".join(
                    f"{package} {version}" for package, version in sorted(measured.versions.items())
                ),
            }
            if metric.low is not None and metric.high is not None:
                entry["range"] = f"{metric.low:g} to {metric.high:g}"
            entries.append(entry)
    return json.dumps(entries, indent=2, allow_nan=False) + "\n"


def bencher_metric_format(results: Sequence[CaseResult]) -> str:
    """The JSON of Bencher's Metric Format: benchmark, then measure, then value and bounds."""
    document: dict[str, dict[str, dict[str, float]]] = {}
    for measured in results:
        measures = document.setdefault(_name(measured), {})
        for metric in metrics(measured):
            measures[metric.measure] = {"value": metric.value}
            if metric.low is not None and metric.high is not None:
                measures[metric.measure] |= {
                    "lower_value": metric.low,
                    "upper_value": metric.high,
                }
    return json.dumps(document, indent=2, sort_keys=True, allow_nan=False) + "\n"
