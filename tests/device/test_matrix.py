"""Cells of the kernel matrix, exported and run for real."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_sme2.profile.kernel_matrix import read_matrix
from pytest_sme2.results.evidence import Cell
from tools.matrix.__main__ import main

# Of a maintainer's tool.
pytestmark = pytest.mark.nightly


def test_a_matrix_names_the_kernel_behind_every_cell(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "matrix.json"
    words = ["--only", "linear-int8_per_*-m32-regular", "--out", str(path)]
    assert main(words) == 0, capsys.readouterr().err
    matrix = read_matrix(path)
    channel = matrix.by_cell[Cell("linear", "int8 per channel", 32, "regular")]
    tensor = matrix.by_cell[Cell("linear", "int8 per tensor", 32, "regular")]
    assert (channel.family, tensor.family) == ("sme2", "neon")
    assert "sme2_mopa" in channel.kernel
    assert (channel.sme1, tensor.sme1) == ("sme1", "neon")
    assert "sme_mopa" in channel.sme1_kernel
    assert channel.macs == 32 * 64 * 64
    assert channel.instructions / channel.macs < tensor.instructions / tensor.macs
    # Eight bits are worth about 6 dB each, less what a small layer loses.
    assert 30 < channel.sqnr_db < 50
