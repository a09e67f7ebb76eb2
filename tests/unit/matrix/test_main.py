"""``python -m tools.matrix`` before it starts to make anything."""

from __future__ import annotations

import pytest

from tools.matrix.__main__ import main


def test_a_pattern_that_fits_no_cell_shows_what_an_id_looks_like(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["--out", "x.json", "--only", "softmax*"]) == 2
    assert "No cell fits 'softmax*'. A cell's id: linear-" in capsys.readouterr().err
