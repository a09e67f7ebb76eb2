"""What a run says to other programs: a pull request's comment, PyTorch's database. Pure.

The comment is JSON, not Markdown: who posts it has a token, and trusts nothing that a branch wrote.
``docs/ci/post_comment.py`` makes the Markdown of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pytest_sme2.export.variant import precision_of
from pytest_sme2.report.history import FIGURES, history_record
from pytest_sme2.report.text import json_text
from pytest_sme2.report.versus_baseline import (
    STATES,
    check_cells,
    count_cases,
    deciding,
    headline,
    outcome_of,
    worst_first,
)
from pytest_sme2.results import Check, Outcome
from pytest_sme2.session.run_directory import CaseRecord
from pytest_sme2.verdict.judging import FAILING

# As post_comment.py has it.
COMMENT_SCHEMA = 1
MOST_CASES = 20
MOST_FAILURES = 5


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


def _worst(record: CaseRecord) -> dict[str, str] | None:
    """``28x more instructions``, where, and in which case; None where all is well."""
    if _state(outcome_of(record.checks)) not in ("failed", "warned"):
        return None
    effect, where = headline(record.checks)
    return {"effect": effect, "place": where.replace("`", ""), "case": record.id}


def _state(outcome: Outcome | None) -> str:
    return next((state for state, members in STATES.items() if outcome in members), "unknown")


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


def pytorch_benchmark(records: Sequence[CaseRecord]) -> str:
    """The JSON of PyTorch's benchmark database, version 3; what is extra is text there."""
    entries: list[dict[str, Any]] = []
    for record in records:
        measured, device = record.measured, record.measured.fingerprint
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
        for name, (value, *ends) in history_record(record).figures.items():
            metric = {
                "name": f"{name} ({FIGURES[name].unit or 'count'})",
                "benchmark_values": [value],
                "target_value": 0,
                "extra_info": {
                    side: f"{end:g}"
                    for side, end in zip(("low", "high"), ends, strict=True)
                    if end is not None
                },
            }
            entries.append({**of, "metric": metric})
    return json_text(entries)


FORMATS: Mapping[str, Callable[[Sequence[CaseRecord]], str]] = {
    "comment": comment_json,
    "pytorch": pytorch_benchmark,
}
