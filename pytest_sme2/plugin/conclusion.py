"""The end of a run: files, reports and baselines are written, the table is made, by one process."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from pytest_sme2.errors import BaselineError, Sme2Error
from pytest_sme2.export.variant import PRECISIONS
from pytest_sme2.report.history import write_history
from pytest_sme2.report.terminal import run_lines
from pytest_sme2.report.text import WIDTH
from pytest_sme2.report.versus_baseline import Update, comment_json, update_lines
from pytest_sme2.report.writing import write_case, write_run
from pytest_sme2.results.case import Accepted, Check
from pytest_sme2.results.timing import Outcome
from pytest_sme2.session.run_directory import CaseRecord, read_record, write_record
from pytest_sme2.session.settings import Settings
from pytest_sme2.system.cache import untold
from pytest_sme2.system.files import decode, write_text
from pytest_sme2.system.processes import project_commit
from pytest_sme2.verdict import baselines

Promised = Callable[[Path, CaseRecord], Mapping[str, str]]
"""What must be compared of a case from an update on: by figure, the test that compares it."""


def conclude_run(
    folders: Mapping[str, str],
    checks: Mapping[str, Sequence[Any]],
    settings: Settings,
    *,
    verbosity: int = 0,
    width: int = WIDTH,
    command: Sequence[str] = (),
    promised: Promised = lambda folder, record: {},
) -> tuple[list[str], list[CaseRecord], list[str]]:
    """The lines to print, the cases, and what went wrong while concluding."""
    records: dict[Path, CaseRecord] = {}
    problems: list[str] = []
    updates: list[Update] = []
    for case, name in folders.items():
        folder = Path(name)
        made = [decode(check, Check, folder) for check in checks.get(case, ())]
        try:
            record = replace(read_record(folder), checks=tuple(made))
            if settings.update_baselines and record.measured.structures:
                record = _updated(record, settings, updates, problems, promised(folder, record))
            write_record(folder, record)
            write_case(folder, record, command=command, commit=project_commit())
        except (Sme2Error, OSError) as error:
            problems.append(f"{case}: {error}")
            continue
        records[folder] = record
    # Workers report in any order.
    records = dict(sorted(records.items(), key=lambda item: _place(item[1], settings)))
    # With -v everything is said again.
    explain = untold if verbosity == 0 else list
    lines = run_lines(list(records.values()), verbosity, width, typed=command, untold=explain)
    if records:
        try:
            lines += _write_reports(records, settings, verbosity)
        except (Sme2Error, OSError) as error:
            problems.append(f"the report was not written: {error}")
    root = str(settings.baseline_folder)
    lines += update_lines(updates, root, verbosity, width, dry_run=settings.dry_run)
    return lines, [*records.values()], problems


def _updated(
    record: CaseRecord,
    settings: Settings,
    updates: list[Update],
    problems: list[str],
    figures: Mapping[str, str],
) -> CaseRecord:
    """The case after its baseline was stored, which passes what it had no baseline for."""
    try:
        updates.append(update_baseline(record, settings, figures))
    except (BaselineError, OSError) as error:
        problems.append(f"{record.id}: the baseline was not written: {error}")
        return record
    if settings.dry_run:
        return record
    stored = "It is stored in the baseline."
    checks = (
        replace(check, verdict=Outcome.PASS, message=stored)
        if check.verdict is Outcome.NO_BASELINE
        else check
        for check in record.checks
    )
    return replace(record, checks=tuple(checks))


def update_baseline(
    record: CaseRecord, settings: Settings, figures: Mapping[str, str] | None = None
) -> Update:
    """Store one case's baseline, unless it is a dry run; what that changes."""
    conditions = Accepted(figures or {}, record.limits)
    root, measured = settings.baseline_folder, record.measured
    path = baselines.baseline_path(root, measured.model, measured.variant, measured.fingerprint)
    new = not path.exists()
    force = settings.force_update
    if settings.dry_run:
        old = baselines.load(root, measured.model, measured.variant, measured.fingerprint)
        _, changes = baselines.update(old, measured, force=force, accepted=conditions)
    else:
        _, changes = baselines.store(root, measured, force=force, accepted=conditions)
    return Update(record.id, str(path), changes, new)


def _place(record: CaseRecord, settings: Settings) -> tuple[Any, ...]:
    """Where a case stands in the table: models as asked for, else by name; variants as listed."""
    measured = record.measured
    precision, _, size = measured.variant.partition("@")
    asked = (*settings.models, measured.model).index(measured.model)
    listed = (*PRECISIONS, precision).index(precision)
    return asked, measured.model, listed, size.zfill(6), measured.threads


def _write_reports(
    records: Mapping[Path, CaseRecord], settings: Settings, verbosity: int
) -> list[str]:
    out = settings.run_directory
    written = [write_run(out, list(records.values()))]
    if settings.report is not None:
        from pytest_sme2.report.html import write_html

        written.append(settings.report.resolve())
        write_html(written[-1], list(records.items()))
    if settings.comment is not None:
        written.append(settings.comment.resolve())
        write_text(written[-1], comment_json(list(records.values())))
    lines = [f"report: {path}" for path in written]
    if settings.history is not None:
        added = write_history(settings.history.resolve(), list(records.values()), project_commit())
        lines += [] if added is None else [f"history: {added}"]
    return lines if verbosity >= 0 else []
