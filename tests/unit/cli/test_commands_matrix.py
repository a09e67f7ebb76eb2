"""``sme2 matrix`` on files that were made before."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from pytest_sme2.profile.kernel_matrix import write_matrix
from tests.support import Command
from tests.unit.profile.test_kernel_matrix import LINEAR, MATRIX, changed


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "matrix.json"
    write_matrix(MATRIX, path)
    return str(path)


def test_it_shows_a_row_per_cell(file: str, sme2: Command) -> None:
    lines = sme2("matrix", "--executorch", file).out.splitlines()
    assert lines[0].startswith("ExecuTorch 1.5.1")
    linear = next(line for line in lines if line.startswith("linear"))
    assert linear.split() == [
        *("linear", "fp32", "32", "regular", "sme2", "-", "0.0328", "138.9", "kai_sme2_mopa")
    ]
    assert any("RuntimeError: no such kernel" in line for line in lines)


def test_filters_json_and_a_page(file: str, tmp_path: Path, sme2: Command) -> None:
    printed = sme2("matrix", "--executorch", file, "--family", "neon", "--json").out
    (answer,) = json.loads(printed)
    assert answer["cell"]["operator"] == "convolution 1x1"
    told = sme2("matrix", "--executorch", file, "--operator", "softmax", code=2).err
    assert "Operators: linear, convolution 1x1, attention" in told
    path = tmp_path / "page.html"
    assert sme2("matrix", "--executorch", file, "--html", path).out == f"{path}\n"
    assert "kai_sme2_mopa" in path.read_text()


def test_it_says_what_changed_between_two(file: str, tmp_path: Path, sme2: Command) -> None:
    newer = tmp_path / "newer.json"
    write_matrix(changed(LINEAR, family="neon", kernel="xnn_neon"), newer)
    out = sme2("matrix", "--executorch", newer, "--changes", file).out
    assert "ExecuTorch 1.5.1 to 1.6.0: 1 of 3 cells changed" in out
    assert "linear, fp32, 32 rows, regular size: sme2, kai_sme2_mopa" in out

    # Cells that one version lacks are not counted as alike.
    older = tmp_path / "older.json"
    write_matrix(replace(MATRIX, answers=MATRIX.answers[:1]), older)
    out = sme2("matrix", "--executorch", file, "--changes", older).out
    assert ": 0 of 1 cell changed; 2 are in one alone" in out
