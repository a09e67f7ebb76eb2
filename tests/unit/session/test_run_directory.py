from __future__ import annotations

import json
from pathlib import Path

import pytest

from pytest_sme2.errors import Sme2Error
from pytest_sme2.report.validation import validate_run
from pytest_sme2.session.run_directory import MANIFEST, METRICS, read_record
from tests.support.records import toy_run


def test_a_bottomless_record_is_damaged_like_any_other(tmp_path: Path) -> None:
    (tmp_path / METRICS).write_text('{"a":' * 100_000)
    with pytest.raises(Sme2Error, match=r"metrics\.json cannot be read"):
        read_record(tmp_path)
    (finding,) = validate_run(tmp_path)
    assert "cannot be read" in finding.problem


def test_a_record_whose_dump_is_gone_names_both(tmp_path: Path) -> None:
    case = toy_run(tmp_path)[0]
    next(case.rglob("*.etdump")).unlink()
    with pytest.raises(Sme2Error, match=r"metrics\.json names an ETDump .*\.etdump: no such file"):
        read_record(case)


def test_dumps_that_are_not_a_table_are_a_finding(tmp_path: Path) -> None:
    case = toy_run(tmp_path)[0]
    record = json.loads((case / METRICS).read_text("utf-8"))
    (case / METRICS).write_text(json.dumps({**record, "etdumps": ["a"]}))
    assert any("is damaged" in finding.problem for finding in validate_run(case))


def test_a_bottomless_manifest_is_a_finding(tmp_path: Path) -> None:
    case = toy_run(tmp_path)[0]
    (case / MANIFEST).write_text("[" * 100_000)
    problems = {finding.path.name: finding.problem for finding in validate_run(case)}
    assert "cannot be read" in problems[MANIFEST]


def test_a_damaged_dump_is_named_once(tmp_path: Path) -> None:
    case = toy_run(tmp_path)[0]
    dump = next(case.rglob("*.etdump"))
    dump.write_bytes(b"damaged")
    found = [finding.path for finding in validate_run(case) if "ETDump" in finding.problem]
    assert found == [dump]


def test_a_dump_outside_the_folder_is_named_once(tmp_path: Path) -> None:
    case = toy_run(tmp_path)[0]
    record = json.loads((case / METRICS).read_text("utf-8"))
    outside = {**record["etdumps"], "on": "/elsewhere/run.etdump"}
    (case / METRICS).write_text(json.dumps({**record, "etdumps": outside}))
    (finding,) = [finding for finding in validate_run(case) if finding.path == case / METRICS]
    assert finding.problem.startswith("is damaged: ")
