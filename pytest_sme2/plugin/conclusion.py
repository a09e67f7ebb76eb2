"""The end of a run: files, reports and baselines are written, the table is made, by one process."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from pytest_sme2.errors import BaselineError, Sme2Error
from pytest_sme2.export.variant import PRECISIONS
from pytest_sme2.report.baseline_update import Update, unaccepted, update_lines
from pytest_sme2.report.comment import FORMATS
from pytest_sme2.report.history import project_commit, write_history
from pytest_sme2.report.terminal import run_lines
from pytest_sme2.report.text import WIDTH
from pytest_sme2.report.writing import write_case, write_run
from pytest_sme2.results import BaselineChange, Check, Outcome
from pytest_sme2.session.run_directory import CaseRecord, read_record, write_record
from pytest_sme2.session.settings import Settings
from pytest_sme2.system.cache import untold
from pytest_sme2.system.files import decode, write_text
from pytest_sme2.verdict import baselines

Records = Mapping[Path, CaseRecord]
Judge = Callable[[Records, Records], tuple[list[str], list[str]]]
"""Holds a run to its contract: its cases and those that it stored; what to say, what is wrong."""


def conclude_run(
    folders: Mapping[str, str],
    checks: Mapping[str, Sequence[Any]],
    settings: Settings,
    *,
    verbosity: int = 0,
    width: int = WIDTH,
    command: Sequence[str] = (),
    judge: Judge | None = None,
) -> tuple[list[str], bool]:
    """The lines to print, and whether something went wrong while concluding."""
    records: dict[Path, CaseRecord] = {}
    problems: list[str] = []
    updates: list[Update] = []
    stored: dict[Path, CaseRecord] = {}
    for case, name in folders.items():
        folder = Path(name)
        made = [decode(check, Check, folder) for check in checks.get(case, ())]
        try:
            record = read_record(folder, rules=settings.rules)
            outcome: Outcome | None = None
            if settings.update_baselines and record.measured.structures:
                outcome, message = _update(record, settings, updates, problems)
                for place, check in enumerate(made):
                    if check.verdict is Outcome.NO_BASELINE:
                        made[place] = replace(check, verdict=outcome, message=message)
            record = replace(record, checks=tuple(made))
            if outcome is Outcome.STORED:
                stored[folder] = record
            write_record(folder, record)
            write_case(
                folder, record, rules=settings.rules, command=command, commit=project_commit()
            )
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
    if settings.strict and not settings.update_baselines:
        problems += _devices_without_baselines(records.values(), settings.baseline_folder)
    root = str(settings.baseline_folder)
    lines += update_lines(updates, root, verbosity, width, dry_run=settings.dry_run)
    if judge is not None:
        told, broken = judge(records, stored)
        lines += told
        problems += broken
    refused = not settings.dry_run and not all(update.stored for update in updates)
    return [*lines, *problems], refused or bool(problems)


def _update(
    record: CaseRecord, settings: Settings, updates: list[Update], problems: list[str]
) -> tuple[Outcome, str]:
    """Store the case's baseline: what its checks that had none say then, and why."""
    try:
        updates.append(update_baseline(record, settings))
    except (BaselineError, OSError) as error:
        problems.append(f"{record.id}: the baseline was not written: {error}")
        return Outcome.NOT_STORED, str(error)
    if updates[-1].stored and not settings.dry_run:
        return Outcome.STORED, "It is stored in the baseline."
    why = "a change matches no pattern of --update-baselines."
    if settings.dry_run:
        why = "--update-baselines=dry only says what would change."
    return Outcome.NOT_STORED, f"It was not stored: {why}"


def update_baseline(record: CaseRecord, settings: Settings) -> Update:
    """Store one case's baseline, unless it is a dry run or not accepted; what that changed."""
    root, measured = settings.baseline_folder, record.measured
    path = baselines.baseline_path(root, measured.model, measured.variant, measured.fingerprint)
    new = not path.exists()

    def accepted(changes: Sequence[BaselineChange]) -> bool:
        return not settings.accept or not unaccepted(changes, settings.accept)

    force = settings.force_update
    if settings.dry_run:
        old = baselines.load(root, measured.model, measured.variant, measured.fingerprint)
        _, changes = baselines.update(old, measured, force=force)
    else:
        _, changes = baselines.store(root, measured, force=force, accept=accepted)
    doubts = baselines.doubts(measured) if changes else ()
    return Update(record.id, str(path), changes, new, doubts, not changes or accepted(changes))


def _devices_without_baselines(records: Iterable[CaseRecord], root: Path) -> list[str]:
    """A run that compared nothing with a baseline must not look like one that did."""
    found: dict[str, bool] = {}
    for measured in (record.measured for record in records if record.measured.structures):
        key = measured.fingerprint.key
        # The checks have told what is wrong with a baseline that cannot be read.
        with contextlib.suppress(BaselineError):
            case = measured.model, measured.variant, measured.fingerprint
            found[key] = found.get(key, False) or bool(baselines.load_structure(root, *case))
    return [
        f"--sme2-strict: {root} holds no baseline for {key}. Make one with --update-baselines."
        for key, any_found in found.items()
        if not any_found
    ]


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
    for form, chosen in (
        ("github", settings.github_benchmark_json),
        ("bencher", settings.bencher_json),
        ("comment", settings.comment),
    ):
        if chosen is not None:
            written.append(chosen.resolve())
            write_text(written[-1], FORMATS[form](list(records.values())))
    lines = [f"report: {path}" for path in written]
    if settings.history is not None:
        added = write_history(settings.history.resolve(), list(records.values()), project_commit())
        lines += [] if added is None else [f"history: {added}"]
    return lines if verbosity >= 0 else []
