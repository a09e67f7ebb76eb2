"""A case that could not be exported still stands in the run directory, and so in every report."""

from __future__ import annotations

from pathlib import Path

from pytest_sme2.errors import Sme2Error
from pytest_sme2.results import CaseResult, Check, Outcome
from pytest_sme2.session.cases import Case
from pytest_sme2.session.reproduce import run_command
from pytest_sme2.session.run_directory import SCHEMA, CaseRecord, write_record
from pytest_sme2.session.session import Session

METRIC = "export"


def keep_failed(session: Session, case: Case, error: Sme2Error) -> tuple[Path, Check]:
    """Write the case as one whose only check failed; its folder, and the check."""
    target = session.bench.target
    check = Check(METRIC, Outcome.FAILED, str(error).splitlines()[0])
    name, begun = session.origin
    measured = CaseResult(
        model=case.model,
        variant=case.variant_name,
        fingerprint=target.fingerprint(),
        emulated=session.emulated,
        runner="",
        session=name,
        recorded=begun,
        threads=case.threads,
        weights="",
    )
    folder = session.folder(case)
    command = run_command(case, session.settings, target.name)
    write_record(
        folder, CaseRecord(SCHEMA, case.id, measured, None, (check,), {}, reproduce=command)
    )
    return folder, check
