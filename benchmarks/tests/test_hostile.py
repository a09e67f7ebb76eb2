"""A slice of ``python -m benchmarks.hostile``: every kind of damaged file, a few of each."""

from __future__ import annotations

import json
import re
from pathlib import Path
from random import Random

import pytest

import pytest_sme2
from benchmarks.hostile import fuzz
from benchmarks.hostile.__main__ import SUBJECTS, main
from benchmarks.hostile.stage import NotCleanError, NotPossibleError, Subject, count

TRIALS = {"fuzz-etdump": 1, "fuzz-run-directory": 10}
FUZZED = fuzz.SUBJECTS


@pytest.mark.nightly
@pytest.mark.parametrize("subject", FUZZED, ids=lambda subject: subject.name)
def test_damaged_files_end_clean(subject: Subject) -> None:
    said: list[str] = []
    row = count(subject, range(TRIALS.get(subject.name, 20)), 1, said.append)
    assert row["clean"] == row["trials"] > 0, "\n".join(said)


def test_every_module_that_reads_from_outside_is_fuzzed_or_says_why_not() -> None:
    package = Path(pytest_sme2.__file__).parent
    reads = re.compile(
        r"read_(json|members|toml|text_if_there)\(|json_value\(|toml_value\(|json\.loads?\(|"
        r"tomllib\.loads|ZipFile\(|tarfile\.open\(|np\.fromfile|\.read_text\(|\.read_bytes\(|\.recv\("
    )
    found = {
        str(path.relative_to(package).with_suffix(""))
        for path in package.rglob("*.py")
        if reads.search(path.read_text("utf-8"))
    }
    assert found == {*fuzz.READERS, *fuzz.NOT_FUZZED}
    assert {*fuzz.READERS.values()} <= {subject.name for subject in FUZZED}


def test_documents_from_outside_are_read_in_one_place() -> None:
    """What reads them itself would miss a case that system/reading.py has."""
    package = Path(pytest_sme2.__file__).parent
    parses = re.compile(r"json\.loads?\(|tomllib\.loads?\(")
    for name in fuzz.READERS:
        text = (package / f"{name}.py").read_text("utf-8")
        assert not parses.search(text), f"{name} does not read with system/reading.py"


def test_names_are_unique_and_the_quick_run_is_the_smaller_one() -> None:
    assert len({subject.name for subject in SUBJECTS}) == len(SUBJECTS)
    assert all(0 <= subject.quick < subject.full for subject in SUBJECTS)


def test_what_is_not_clean_is_counted_and_can_be_repeated() -> None:
    rolls: dict[int, float] = {}

    def attempt(chance: Random, folder: Path) -> None:
        assert folder.is_dir()
        number = len(rolls)
        rolls[number] = chance.random()
        if number == 1:
            raise NotCleanError("something is left over")
        if number == 2:
            raise ZeroDivisionError

    subject = Subject("dice", "dice", 4, 4, attempt)
    said: list[str] = []
    row = count(subject, range(4), 7, said.append)
    assert (row["trials"], row["clean"]) == (4, 2)
    assert "something is left over" in said[0]
    assert said[0].endswith("--only dice --seed 7 --trial 1")
    assert "ZeroDivisionError" in said[1]
    before = dict(rolls)
    rolls.clear()
    count(subject, [3], 7, said.append)
    assert rolls[0] == before[3]


def test_what_cannot_be_staged_is_not_a_trial() -> None:
    def attempt(chance: Random, folder: Path) -> None:
        raise NotPossibleError("no root here")

    row = count(Subject("x", "x", 3, 3, attempt), range(3), 0, print)
    assert (row["trials"], row["clean"], row["not_possible"]) == (0, 0, "no root here")


def test_the_counts_are_written_for_a_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SME2_HOSTILE_MOUNTS", "mapped")
    path = tmp_path / "hostile.json"
    assert main(["--only", "fuzz-limits", "--trial", "3", "--seed", "5", "--json", str(path)]) == 0
    details = json.loads(path.read_text())["details"]
    assert details["seed"] == 5
    (row,) = details["rows"]
    assert (row["name"], row["trials"], row["clean"]) == ("fuzz-limits", 1, 1)
    assert row["what"] == "damaged limits.toml"
    assert "trials that ended clean: 1 (limit ≥ 1: met)" in capsys.readouterr().out
