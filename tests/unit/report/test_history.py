"""The history: written run by run, read whole, and every step of an exact figure found."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from pathlib import Path

import pytest

from pytest_sme2.cli.main import main
from pytest_sme2.errors import Sme2Error, UsageError
from pytest_sme2.report import history
from pytest_sme2.report.history import (
    HistoryRecord,
    history_lines,
    read_history,
    steps,
    write_history,
)
from pytest_sme2.results import Arm
from pytest_sme2.session.run_directory import read_record
from tests.support.records import toy_run


def run(number: int, instructions: float, **facts: object) -> HistoryRecord:
    known = HistoryRecord(
        schema=1,
        case="toy-fp32",
        device="emulated",
        recorded=f"2026-01-01T00:{number // 60:02}:{number % 60:02}Z",
        session=f"s{number}",
        commit=f"c{number:04}",
        instructions={Arm.ON: round(instructions)},
    )
    return replace(known, **facts)  # type: ignore[arg-type]


def test_a_run_is_written_and_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "project_commit", lambda: "0123456789ab")
    records = [read_record(path) for path in toy_run(tmp_path / "run")[:2]]
    path = write_history(tmp_path / "history", records)
    assert len(path.read_text().splitlines()) == 2
    found = read_history(tmp_path / "history")
    assert {record.case for record in found} == {record.id for record in records}
    (first,) = [record for record in found if record.case == records[0].id]
    measured = records[0].measured
    assert first.commit == "0123456789ab"
    assert first.pte_sha256 == measured.pte_sha256
    assert first.device == measured.fingerprint.key
    structure = measured.structures[Arm.ON]
    assert (first.sme2_operators, first.matrix_operators) == (structure.sme2, structure.matrix)
    # The same run again replaces its own file, so nothing is counted twice.
    write_history(tmp_path / "history", records)
    assert len(read_history(tmp_path / "history")) == 2


def test_steps_and_slow_drifts_are_found_and_nothing_else() -> None:
    chance = random.Random(0)
    planted = {40: 1.01, 90: 0.98, 300: 1.002}
    runs, level = [], 1e6
    for number in range(500):
        level *= planted.get(number, 1.0)
        if 400 <= number < 450:
            level *= 1.0001
        # What the runner's own start adds differs by this much.
        runs.append(run(number, level * (1 + chance.uniform(-1e-5, 1e-5))))
    found = steps(runs, "instructions (on)")
    exact = [step for step in found if step.after.commit in {f"c{at:04}" for at in planted}]
    assert [round(step.change or 0, 3) for step in exact] == [0.01, -0.02, 0.002]
    assert all(int(step.after.commit[1:]) - int(step.before.commit[1:]) == 1 for step in exact)
    drift = [step for step in found if step not in exact]
    assert drift
    assert all(400 <= int(str(step.after.commit)[1:]) < 450 for step in drift)


def test_ten_times_one_percent_is_told_as_one_sum() -> None:
    runs = [run(number, 1e6 * 1.01**number) for number in range(11)]
    newer = replace(runs[5], versions={"executorch": "1.5.1"})
    lines = list(history_lines([*runs[:5], newer]))
    assert lines[0] == "toy-fp32 on emulated: 6 runs, 2026-01-01"
    assert lines[-1] == "      +1.00%  c0004..c0005; executorch none → 1.5.1"
    (total,) = [line for line in history_lines(runs) if "steps" in line]
    assert total == "  instructions (on): 1,104,622, +10.46% in 10 steps from 1,000,000"


def test_what_did_not_change_says_so_and_latency_is_not_judged() -> None:
    runs = [run(number, 1e6, latency_ms={Arm.ON: 1.0 + number}) for number in range(3)]
    assert list(history_lines(runs))[1:] == [
        "  latency (on): 3.000 ms in the last run",
        "  instructions (on): 1,000,000, unchanged",
    ]


def test_a_figure_that_was_zero_has_no_percentage() -> None:
    runs = [run(0, 1, sme2_operators=0), run(1, 1, sme2_operators=6)]
    assert "  operators on SME2: 6, +6 in 1 step from 0" in list(history_lines(runs))


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "not valid JSON"),
        ("[]", "is damaged"),
        ('{"schema": 2}', "has schema 2"),
        ('{"schema": 1, "case": "a"}', "is damaged"),
    ],
)
def test_damage_is_named_with_its_line(tmp_path: Path, line: str, message: str) -> None:
    path = tmp_path / "a.jsonl"
    from pytest_sme2.system.files import encode

    path.write_text(f"{json.dumps(encode(run(0, 1)))}\n{line}\n")
    with pytest.raises(Sme2Error, match=message) as caught:
        read_history(tmp_path)
    assert f"{path}:2" in str(caught.value)


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from pytest_sme2.system.files import encode

    lines = [json.dumps(encode(run(number, 1e6 * 1.01**number))) for number in range(2)]
    (tmp_path / "a.jsonl").write_text("\n".join(lines) + "\n")
    assert main(["history", str(tmp_path), "--case", "toy*"]) == 0
    assert "+1.00%  c0000..c0001" in capsys.readouterr().out
    assert main(["history", str(tmp_path), "--json"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 2
    assert main(["history", str(tmp_path), "--case", "other"]) == 2
    assert main(["history", str(tmp_path / "none")]) == 2
    assert "--sme2-history" in capsys.readouterr().err


def test_a_folder_that_is_not_there_is_a_usage_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="There is no folder"):
        read_history(tmp_path / "none")
