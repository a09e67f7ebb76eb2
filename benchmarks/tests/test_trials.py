"""Slices of the benchmarks that consist of trials: a few of each kind; they count many."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random

import pytest

from benchmarks import faults
from benchmarks.hostile import fuzz
from benchmarks.hostile.__main__ import main
from benchmarks.trials import NotCleanError, Subject, count
from tests.support.phones import start_lab


@pytest.mark.nightly
@pytest.mark.parametrize("subject", fuzz.SUBJECTS, ids=lambda subject: subject.name)
def test_damaged_files_end_clean(subject: Subject) -> None:
    said: list[str] = []
    row = count(subject, range(10), 1, said.append)
    assert row["clean"] == row["trials"] > 0, "\n".join(said)


@pytest.mark.parametrize("subject", faults.SUBJECTS, ids=lambda subject: subject.name)
def test_faults_of_a_phone_end_clean(subject: Subject, tmp_path: Path) -> None:
    start_lab().close()
    assert subject.attempt(Random(7), tmp_path)


def test_what_is_not_clean_is_counted_and_can_be_repeated() -> None:
    rolls: dict[int, float] = {}

    def attempt(chance: Random, folder: Path) -> str:
        assert folder.is_dir()
        number = len(rolls)
        rolls[number] = chance.random()
        if number == 1:
            raise NotCleanError("something is left over")
        if number == 2:
            raise ZeroDivisionError
        return "thrown"

    subject = Subject("dice", "two dice", 4, attempt)
    said: list[str] = []
    row = count(subject, range(4), 7, said.append)
    assert (row["trials"], row["clean"], row["outcomes"]) == (4, 2, {"thrown": 2})
    assert "something is left over" in said[0]
    assert said[0].endswith("--only 'dice: two dice' --seed 7 --trial 1")
    assert "ZeroDivisionError" in said[1]
    before = dict(rolls)
    rolls.clear()
    count(subject, [3], 7, said.append)
    assert rolls[0] == before[3]


def test_the_counts_are_written_for_a_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SME2_HOSTILE_MOUNTS", "1")
    path = tmp_path / "hostile.json"
    assert main(["--only", "fuzz-limits", "--trial", "3", "--seed", "5", "--json", str(path)]) == 0
    details = json.loads(path.read_text())["details"]
    assert details["seed"] == 5
    (row,) = details["rows"]
    assert (row["name"], row["trials"], row["clean"]) == ("fuzz-limits", 1, 1)
    assert row["what"] == "damaged limits.toml"
    assert "trials that ended clean: 1 (limit ≥ 1: met)" in capsys.readouterr().out
