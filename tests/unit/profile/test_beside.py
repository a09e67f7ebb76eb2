from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from pytest_sme2.errors import EtdumpError, ProgramError
from pytest_sme2.profile.beside import (
    ORIGINS,
    SHAPES,
    _from_here,
    beside,
    keep_origins,
    keep_shapes,
    kept_origins,
    kept_shapes,
)
from pytest_sme2.session.analysis import analyze_file
from pytest_sme2.trace.etrecord import read_attribution
from pytest_sme2.trace.program import read_program
from tests.support import ETDUMPS

ETRECORD = ETDUMPS.parent / "etrecords" / "toy.etrecord"
PROGRAM = ETDUMPS.parent / "programs" / "toy_fp16.pte"


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    return Path(shutil.copy(ETDUMPS / "cpp_toy_fp16_on.etdump", tmp_path / "a 'run'.etdump"))


def test_what_is_kept_is_what_was_read(trace: Path) -> None:
    said: list[str] = []
    keep_shapes(trace, PROGRAM, said.append)
    keep_origins(trace, ETRECORD, said.append)
    assert kept_shapes(trace) == read_program(PROGRAM)
    assert kept_origins(trace) == read_attribution(ETRECORD)
    assert said == []
    assert any(member.shapes for member in analyze_file(trace).profile.operators)


def test_only_the_method_that_ran_is_kept(trace: Path) -> None:
    keep_shapes(trace, PROGRAM.with_name("methods.pte"), print, "scale")
    assert [method.name for method in kept_shapes(trace)] == ["scale"]


def test_what_cannot_be_read_fails_nothing_and_nothing_of_an_earlier_program_stays(
    trace: Path,
) -> None:
    said: list[str] = []
    keep_shapes(trace, PROGRAM, said.append)
    keep_shapes(trace, trace.with_name("missing.pte"), said.append)
    assert kept_shapes(trace) == ()
    for etrecord in (trace.with_name("missing"), None):
        keep_origins(trace, ETRECORD, said.append)
        keep_origins(trace, etrecord, said.append)
        assert kept_origins(trace) is None
    shapes, origins = said
    assert "the shapes of operators stay unknown" in shapes
    assert "where operators come from stays unknown" in origins


@pytest.mark.parametrize("text", ["", "{}", "[]", "1e", '{"schema": 9}', '{"schema": 1, %s}'])
def test_a_damaged_file_is_one_clear_error(trace: Path, text: str) -> None:
    shapes, origins = beside(trace, SHAPES), beside(trace, ORIGINS)
    shapes.write_text(text.replace("%s", '"methods": [{}]'))
    with pytest.raises(ProgramError, match=r"cannot be (used|read).*run the model again") as caught:
        kept_shapes(trace)
    assert str(shapes) in str(caught.value)
    origins.write_text(text.replace("%s", '"aten": []'))
    with pytest.raises(EtdumpError, match=r"cannot be (used|read).*run the model again"):
        kept_origins(trace)


def test_a_file_below_this_folder_is_told_from_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a copy of the project, too, in which the export was made."""
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "net.py").touch()
    monkeypatch.chdir(tmp_path)
    for file in (tmp_path / "models" / "net.py", Path("/other/copy/models/net.py")):
        assert _from_here(str(file)) == "models/net.py"
    assert _from_here("/other/net.py") == "/other/net.py"
