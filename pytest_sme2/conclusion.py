"""The end of a run: baselines are written, the table is made. Only one process does this."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from pytest_sme2 import baselines
from pytest_sme2.errors import BaselineError, Sme2Error
from pytest_sme2.report.terminal import run_lines
from pytest_sme2.results import Check
from pytest_sme2.rundir import CaseRecord, decode, read_record, write_record
from pytest_sme2.settings import Settings


def conclude_run(
    folders: Mapping[str, str], checks: Mapping[str, Sequence[Any]], settings: Settings
) -> tuple[list[str], bool]:
    """The lines to print, and whether something went wrong while concluding."""
    records: list[CaseRecord] = []
    lines: list[str] = []
    problems = False
    for case, name in folders.items():
        folder = Path(name)
        made = tuple(decode(check, Check, folder) for check in checks.get(case, ()))
        try:
            record = replace(read_record(folder), checks=made)
            write_record(folder, record)
        except (Sme2Error, OSError) as error:
            lines.append(f"{case}: {error}")
            problems = True
            continue
        records.append(record)
    lines += run_lines(records)
    if settings.update_baselines:
        root = (settings.baseline_dir or Path("baselines")).resolve()
        for record in records:
            try:
                lines += update_lines(root, record)
            except (BaselineError, OSError) as error:
                lines.append(f"{record.id}: the baseline was not written: {error}")
                problems = True
    return lines, problems


def update_lines(root: Path, record: CaseRecord) -> list[str]:
    """Store one case's baseline; what changed, old → new."""
    path, changes = baselines.store(root, record.measured)
    if not changes:
        return [f"{record.id}: the baseline stays as it is ({path})"]
    head = f"{record.id}: baseline written to {path}"
    return [head, *(f"  {change.what}: {change.old} → {change.new}" for change in changes)]
