"""What a run says to other programs: a pull request's comment, PyTorch's database. Pure.

The comment is JSON, not Markdown: who posts it has a token, and trusts nothing that a branch wrote.
``docs/ci/post_comment.py`` makes the Markdown of it.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from pytest_sme2.export.variant import REWRITES, precision_of
from pytest_sme2.report.findings import trial_text
from pytest_sme2.report.text import json_text
from pytest_sme2.report.versus_baseline import (
    check_cells,
    count_cases,
    deciding,
    headline,
    outcome_of,
    worst_first,
)
from pytest_sme2.results import Arm, CaseResult, Check, Executor, Outcome
from pytest_sme2.session.run_directory import CaseRecord
from pytest_sme2.session.trials import Edit, Trial
from pytest_sme2.verdict.judging import FAILING, PASSING, WARNING

# As post_comment.py has it.
COMMENT_SCHEMA = 1
MOST_CASES = 20
MOST_FAILURES = 5
_STATES = {"failed": FAILING, "warned": WARNING, "passed": PASSING}


def comment_json(records: Sequence[CaseRecord]) -> str:
    """What to post about a run; failing cases first."""
    ranked = worst_first(records)
    # What is wrong on both arms is said once.
    told = {
        tuple(failure.items()): failure
        for record in ranked
        for check in record.checks
        if check.verdict in FAILING
        for failure in [_failure(record, check)]
    }
    document = {
        "schema": COMMENT_SCHEMA,
        "counts": count_cases(records),
        "worst": _worst(ranked[0]) if ranked else None,
        "rows": [_row(record) for record in ranked[:MOST_CASES]],
        "failures": [*told.values()][:MOST_FAILURES],
        "more_failures": max(len(told) - MOST_FAILURES, 0),
        "devices": [*dict.fromkeys(record.measured.fingerprint.target for record in records)],
        "emulated": any(record.measured.emulated for record in records),
    }
    return json_text(document)


def fix_of(record: CaseRecord, best: Trial, edit: Edit | None) -> dict[str, Any]:
    """What to add to the comment: the best tested rewrite, as a change of the model's file."""
    trial = best if edit is None else edit.trial
    known = {rewrite.name: rewrite for rewrite in REWRITES}
    rewrites = [known[name] for name in trial.rewrites]
    return {
        "case": record.id,
        "model": record.measured.model,
        "rewrites": [*trial.rewrites],
        "effect": f"{' and '.join(trial.rewrites)} {trial_text(trial)}",
        "why": [f"{each.what}: {each.why}; {each.remedy}." for each in rewrites],
        "diff": "" if edit is None else edit.diff,
    }


def _worst(record: CaseRecord) -> dict[str, str] | None:
    """``28x more instructions``, where, and in which case; None where all is well."""
    if _state(outcome_of(record.checks)) not in ("failed", "warned"):
        return None
    effect, where = headline(record.checks)
    return {"effect": effect, "place": where.replace("`", ""), "case": record.id}


def _state(outcome: Outcome | None) -> str:
    return next((state for state, members in _STATES.items() if outcome in members), "unknown")


def _row(record: CaseRecord) -> dict[str, str]:
    check = deciding(record.checks)
    names = ("baseline", "now", "change", "interval", "limit")
    cells = ("-",) * len(names) if check is None else check_cells(check)
    return {
        "case": record.id,
        "check": "-" if check is None else check.metric,
        **dict(zip(names, cells, strict=True)),
        "verdict": "-" if check is None else str(check.verdict),
        "state": _state(None if check is None else check.verdict),
    }


def _failure(record: CaseRecord, check: Check) -> dict[str, str]:
    return {
        "case": record.id,
        "check": check.metric.removesuffix(" (on)").removesuffix(" (off)"),
        "place": check.where.replace("`", ""),
        "message": check.message,
    }


class Metric(NamedTuple):
    """One number of which less is better."""

    measure: str
    """A kind of number: ``latency-on``."""
    unit: str
    value: float
    bounds: tuple[float, float] | None = None


def metrics(measured: CaseResult) -> Iterator[Metric]:
    """Every number of a result that gets better by getting smaller."""
    for arm in Arm:
        for measure, times in (("latency", measured.medians_ns), ("load-time", measured.loads_ns)):
            values = (times or {}).get(arm)
            if values:
                bounds = (min(values), max(values))
                yield Metric(f"{measure}-{arm}", "ns", statistics.median(values), bounds)
        peak = (measured.peak_bytes or {}).get(arm)
        if peak is not None:
            yield Metric(f"peak-memory-{arm}", "bytes", peak)
        cost = measured.costs.get(arm)
        if cost is not None:
            yield Metric(f"instructions-{arm}", "instructions", cost.total.instructions)
    speedup = measured.speedup
    if speedup is not None and speedup.low > 0:
        # Time with SME2 over time without: a speedup whose smaller value is better.
        bounds = (1 / speedup.high, 1 / speedup.low)
        yield Metric("time-on-over-off", "ratio", 1 / speedup.value, bounds)
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


def pytorch_benchmark(records: Sequence[CaseRecord]) -> str:
    """The JSON of PyTorch's benchmark database, version 3; what is extra is text there."""
    entries: list[dict[str, Any]] = []
    for measured in (record.measured for record in records):
        device = measured.fingerprint
        of = {
            "benchmark": {
                "name": "ExecuTorch",
                "mode": "inference",
                "dtype": precision_of(measured.variant),
                "extra_info": {
                    "variant": measured.variant,
                    "threads": str(measured.threads),
                    "emulated": str(measured.emulated).lower(),
                },
            },
            "model": {"name": measured.model, "type": "OSS model", "backend": "xnnpack"},
            "runners": [
                {"name": device.key, "type": device.target, "extra_info": dict(device.facts)}
            ],
            "dependencies": {
                package: {"version": version} for package, version in measured.versions.items()
            },
        }
        for measure, unit, value, bounds in metrics(measured):
            ends = zip(("low", "high"), bounds or (), strict=False)
            metric = {
                "name": f"{measure}({unit})",
                "benchmark_values": [value],
                "target_value": 0,
                "extra_info": {name: f"{end:g}" for name, end in ends},
            }
            entries.append({**of, "metric": metric})
    return json_text(entries)


FORMATS: Mapping[str, Callable[[Sequence[CaseRecord]], str]] = {
    "comment": comment_json,
    "pytorch": pytorch_benchmark,
}
