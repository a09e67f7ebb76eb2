from __future__ import annotations

from pathlib import Path

import pytest

from pytest_sme2.errors import Sme2Error
from pytest_sme2.rundir import METRICS, read_record
from pytest_sme2.validation import validate_run


def test_a_bottomless_record_is_damaged_like_any_other(tmp_path: Path) -> None:
    (tmp_path / METRICS).write_text('{"a":' * 100_000)
    with pytest.raises(Sme2Error, match=r"metrics\.json cannot be read"):
        read_record(tmp_path)
    (finding,) = validate_run(tmp_path)
    assert "cannot be read" in finding.problem
