from __future__ import annotations

from pathlib import Path

import pytest

from pytest_sme2.errors import EtdumpError
from pytest_sme2.profile.origins import beside, keep_origins, kept_origins
from pytest_sme2.trace.etrecord import read_attribution
from tests.support.profiles import ETDUMPS

ETRECORD = ETDUMPS.parent / "etrecords" / "toy.etrecord"


def test_what_is_kept_is_what_the_etrecord_says(tmp_path: Path) -> None:
    trace = tmp_path / "a.etdump"
    said: list[str] = []
    keep_origins(trace, ETRECORD, said.append)
    assert kept_origins(trace) == read_attribution(ETRECORD)
    assert not said


def test_without_an_etrecord_nothing_of_an_earlier_program_stays(tmp_path: Path) -> None:
    trace = tmp_path / "a.etdump"
    said: list[str] = []
    keep_origins(trace, ETRECORD, said.append)
    keep_origins(trace, tmp_path / "missing", said.append)
    assert kept_origins(trace) is None
    assert "stays unknown" in said[0]
    keep_origins(trace, ETRECORD, said.append)
    keep_origins(trace, None, said.append)
    assert kept_origins(trace) is None


@pytest.mark.parametrize("text", ["{}", "[]", '{"schema": 2}', '{"schema": 1, "aten": []}', "1e"])
def test_a_damaged_file_is_one_clear_error(text: str, tmp_path: Path) -> None:
    trace = tmp_path / "a.etdump"
    beside(trace).write_text(text)
    with pytest.raises(EtdumpError, match="run the model again"):
        kept_origins(trace)
