"""A run directory that cannot be written can be reported on; looking creates nothing."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from pytest_sme2.cli.commands import report
from pytest_sme2.cli.main import main
from pytest_sme2.system.files import unwritable
from tests.support import Command, records


@pytest.fixture
def read_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Root may write everywhere, so the refusal of the file system is staged."""

    def refuse(folder: Path, *arguments: object, **named: object) -> None:
        refusal = OSError(errno.EROFS, "Read-only file system")
        raise unwritable(folder / "file.csv", refusal) from refusal

    records.toy_run(tmp_path / "run")
    monkeypatch.setattr(report, "write_case", refuse)
    return tmp_path / "run"


def test_a_report_goes_elsewhere(read_only: Path, tmp_path: Path, sme2: Command) -> None:
    before = sorted(read_only.rglob("*"))
    assert "Read-only file system" in sme2("report", read_only, code=3).err
    html, text = tmp_path / "r.html", tmp_path / "r.md"
    told = sme2("report", read_only, "--html", html, "--markdown", text).err
    assert "is read-only and stays as it is" in told
    assert html.is_file()
    assert text.is_file()
    assert sorted(read_only.rglob("*")) == before


@pytest.mark.slow
def test_doctor_creates_no_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SME2_CACHE_DIR", str(tmp_path / "cache"))
    main(["doctor", "--json"])
    assert not (tmp_path / "cache").exists()
