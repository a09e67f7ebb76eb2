"""``sme2 matrix`` on files that were made before."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from pytest_sme2.cli.main import main
from pytest_sme2.profile.kernel_matrix import write_matrix
from tests.unit.profile.test_kernel_matrix import LINEAR, MATRIX, changed


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "matrix.json"
    write_matrix(MATRIX, path)
    return str(path)


def test_it_shows_a_row_per_cell(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["matrix", "--executorch", file]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("ExecuTorch 1.5.1")
    linear = next(line for line in lines if line.startswith("linear"))
    assert linear.split() == [
        *("linear", "fp32", "32", "regular", "sme2", "-", "0.0328", "138.9", "kai_sme2_mopa")
    ]
    assert any("RuntimeError: no such kernel" in line for line in lines)


def test_filters_and_json(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["matrix", "--executorch", file, "--family", "neon", "--json"]) == 0
    (answer,) = json.loads(capsys.readouterr().out)
    assert answer["cell"]["operator"] == "convolution 1x1"


def test_a_page_is_written(file: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "page.html"
    assert main(["matrix", "--executorch", file, "--html", str(path)]) == 0
    assert capsys.readouterr().out == f"{path}\n"
    assert "kai_sme2_mopa" in path.read_text()


def test_a_filter_that_fits_nothing_names_what_there_is(
    file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["matrix", "--executorch", file, "--operator", "softmax"]) == 2
    assert "Operators: linear, convolution 1x1, attention" in capsys.readouterr().err


def test_it_says_what_changed_between_two(
    file: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    newer = tmp_path / "newer.json"
    write_matrix(changed(LINEAR, family="neon", kernel="xnn_neon"), newer)
    assert main(["matrix", "--executorch", str(newer), "--changes", file]) == 0
    out = capsys.readouterr().out
    assert "ExecuTorch 1.5.1 to 1.6.0: 1 of 3 cells changed" in out
    assert "linear, fp32, 32 rows, regular size: sme2, kai_sme2_mopa" in out


def test_cells_that_one_version_lacks_are_not_counted_as_alike(
    file: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    older = tmp_path / "older.json"
    write_matrix(replace(MATRIX, answers=MATRIX.answers[:1]), older)
    assert main(["matrix", "--executorch", file, "--changes", str(older)]) == 0
    assert ": 0 of 1 cell changed; 2 are in one alone" in capsys.readouterr().out
