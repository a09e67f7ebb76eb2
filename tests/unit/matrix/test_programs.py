"""Exporting the programs of the matrix: what is made is kept, and a crash takes one sheet."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from pytest_sme2.errors import Sme2Error
from tools import many_exports
from tools.matrix.cells import all_cells, sheets
from tools.matrix.programs import Programs

SHEETS = sheets(all_cells())[:4]

# Stands in for the child that needs torch: the third sheet ends the process.
CHILD = f"""
import json, os, sys
from pathlib import Path
for line in sys.stdin:
    folder = Path(json.loads(line)["folder"])
    folder.mkdir(parents=True, exist_ok=True)
    if folder.name == {SHEETS[2].id!r}:
        os._exit(11)
    (folder / "export.json").write_text(json.dumps({{"problem": "made by " + str(os.getpid())}}))
    print("done", flush=True)
"""


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Programs]:
    monkeypatch.setenv("SME2_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(many_exports, "_BOOTSTRAP", CHILD)
    programs_made = Programs({"executorch": "1.5.1"}, None, lambda line: None)
    yield programs_made
    programs_made.close()


def problems(made: Programs) -> list[set[str]]:
    return [set(made.program(sheet).problems.values()) for sheet in SHEETS]


def test_a_sheet_that_ends_the_process_is_named_and_the_others_go_on(made: Programs) -> None:
    found = problems(made)
    assert found[2] == {"the export ended the process"}
    assert found[0] == found[1] != found[3]
    assert all(min(found[index]).startswith("made by") for index in (0, 1, 3))


def test_what_was_made_is_not_made_again(made: Programs) -> None:
    first = problems(made)
    assert problems(made) == first


def test_another_version_has_a_folder_of_its_own(made: Programs) -> None:
    other = Programs({"executorch": "1.5.0"}, None, lambda line: None)
    assert other.folder != made.folder


def test_a_damaged_record_is_an_error_that_names_it(made: Programs) -> None:
    made.program(SHEETS[0])
    record = made.folder / SHEETS[0].id / "export.json"
    record.write_text(json.dumps({"inputs": "many"}))
    with pytest.raises(Sme2Error, match=r"export\.json"):
        made.program(SHEETS[0])
