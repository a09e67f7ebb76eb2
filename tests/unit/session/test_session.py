"""The stages of a case: made once, on one device, and kept where a reader finds them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from pytest_sme2.errors import ExportError, ModelError, NotMeasurableError, RunError
from pytest_sme2.export.registry import ModelEntry
from pytest_sme2.export.variant import Variant
from pytest_sme2.results.run import Arm
from pytest_sme2.session.cases import Case, program_case
from pytest_sme2.session.run_directory import read_record
from pytest_sme2.session.session import DEVICE_TRACE, Session
from pytest_sme2.session.settings import Settings
from tests.support.pretended_target import PretendedTarget

PROGRAM = Path(__file__).parents[2] / "data" / "programs" / "toy_fp16.pte"


@pytest.fixture
def session(target: PretendedTarget, tmp_path: Path) -> Iterator[Session]:
    session = Session(Settings(device="linux", out=tmp_path / "out", budget_seconds=5.0))
    yield session
    session.close()


@pytest.fixture
def case() -> Case:
    return program_case(PROGRAM)


def test_a_model_that_is_broken_or_cannot_be_exported_is_its_own_error(
    session: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ModelError, match="a typo in the model"):
        session.artifact(Case("toy", None, problem="a typo in the model"))

    def fail(*_: object, **__: object) -> None:
        raise ExportError("no kernel for aten::foo\nthe log")

    monkeypatch.setattr("pytest_sme2.session.session.export_model", fail)
    entry = ModelEntry("net", (Variant("fp32"),), str(tmp_path), "Net")
    case = Case("net", Variant("fp32"), 1, entry)
    with pytest.raises(ExportError, match="aten::foo"):
        session.profile(case, Arm.OFF)
    # It is not exported again.
    monkeypatch.undo()
    with pytest.raises(ExportError, match="aten::foo"):
        session.cost(case, Arm.OFF)


def test_each_arm_is_traced_once_on_a_device_that_is_prepared_when_needed(
    session: Session, case: Case, target: PretendedTarget
) -> None:
    session.artifact(case)
    assert target.events == []
    evidence = session.evidence(case)
    session.measured(case, timed=False)
    assert evidence.valid
    traced = [(request.arm, request.traced) for request, _ in target.requests]
    assert traced == [(Arm.ON, True), (Arm.OFF, True)]
    assert {request.runs for request, _ in target.requests} == {DEVICE_TRACE["runs"]}
    session.close()
    assert target.events == ["prepare", "restore"]


def test_a_failed_run_is_not_tried_again_by_the_next_stage(
    session: Session, case: Case, target: PretendedTarget
) -> None:
    target.failures = [RunError("it crashed")]
    for _ in range(2):
        with pytest.raises(RunError, match="it crashed"):
            session.profile(case, Arm.OFF)
    assert len(target.requests) == 1


def test_without_sme2_the_off_arm_alone_is_measured(
    session: Session, case: Case, target: PretendedTarget
) -> None:
    target.sme2 = False
    measured = session.measured(case, timed=True)
    assert measured.evidence is None
    assert [*measured.profiles] == [Arm.OFF]
    assert [*(measured.medians_ns or {})] == [Arm.OFF]


def test_where_times_mean_nothing_none_are_taken(
    session: Session, case: Case, target: PretendedTarget
) -> None:
    target.timing = False
    with pytest.raises(NotMeasurableError):
        session.timing(case)
    measured = session.measured(case, timed=False)
    assert measured.emulated
    assert measured.medians_ns is None
    assert measured.speedup is None
    assert {request.runs for request, _ in target.requests} == {1}


def test_timing_shows_the_speedup_and_stays_with_the_case(session: Session, case: Case) -> None:
    assert session.measured(case, timed=False).speedup is None
    speedup = session.measured(case, timed=True).speedup
    assert speedup.value == pytest.approx(2.0, rel=0.02)
    assert session.measured(case, timed=False).speedup == speedup


def test_what_is_kept_can_be_read_again(session: Session, case: Case, tmp_path: Path) -> None:
    measured = session.measured(case, timed=False)
    folder = session.keep(case, measured, ())
    assert folder.is_relative_to(tmp_path / "out")
    record = read_record(folder)
    assert record.id == case.id
    assert record.measured.profiles[Arm.ON] == measured.profiles[Arm.ON]
    for dump in record.etdumps.values():
        assert (folder / dump).is_file()
