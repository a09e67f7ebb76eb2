"""Values as JSON and back, also after somebody imported cattrs again."""

from __future__ import annotations

import importlib
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from pytest_sme2.errors import BaselineError, Sme2Error
from pytest_sme2.system import files
from pytest_sme2.verdict.baseline_file import parse, render
from tests.support.gate_examples import baseline


@dataclass
class Run:
    threads: int


@pytest.fixture
def cattrs_imported_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a pytest run inside a test leaves: converters, and modules that are not theirs."""
    first = files.cattrs_library()
    files.converter()
    parse(render(baseline()), Path("baseline.json"))
    for name in [name for name in sys.modules if name.partition(".")[0] in ("cattrs", "cattr")]:
        monkeypatch.delitem(sys.modules, name)
    assert importlib.import_module("cattrs") is not first


@pytest.mark.usefixtures("cattrs_imported_again")
def test_damaged_documents_are_still_explained() -> None:
    with pytest.raises(Sme2Error, match=r"run\.json is damaged: .*expected int @ \$\.threads"):
        files.decode({"threads": "two"}, Run, "run.json")
    text = render(baseline()).replace('"model"', '"modell"', 1)
    with pytest.raises(BaselineError, match=r"model: is missing.*unknown entries 'modell'"):
        parse(text, Path("baseline.json"))


def test_a_document_with_very_many_errors_is_told_by_the_first() -> None:
    """An error for each of them would take more memory than reading may have."""
    for many in (["x"] * 100_000, "x" * 100_000):
        with pytest.raises(Sme2Error, match=r"^run\.json is damaged: 'x' is not of type int\. "):
            files.decode(many, list[int], "run.json")
    with pytest.raises(Sme2Error, match=r"expected int @ \$\[7\]"):
        files.decode([*range(7), "x"], list[int], "run.json")
