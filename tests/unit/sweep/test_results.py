"""What a sweep keeps: it goes on where it was, and never mixes two sweeps."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from pytest_sme2.errors import UsageError
from pytest_sme2.results import Arm
from tools.sweep.programs import draw
from tools.sweep.results import SweepResults, read_results, write_results
from tools.sweep.running import BatchResult, Difference

EMPTY = SweepResults(0, "1.5.1", "11.1.2", ("strict", "strict:128"))
SEEN = tuple(
    Difference(draw(0, number, "fp16"), "on is not off", "strict:128", Arm.ON, "largest error 1")
    for number in (8, 9)
)
FULL = replace(
    EMPTY,
    batches=(
        BatchResult(0, "fp32", 8, 30.0, 10, 9),
        BatchResult(1, "fp16", 8, 30.0, 12, 8, ("a program: why",), SEEN),
    ),
)


def test_what_was_written_is_read(tmp_path: Path) -> None:
    assert read_results(tmp_path, EMPTY) == EMPTY
    write_results(FULL, tmp_path)
    assert read_results(tmp_path, EMPTY) == FULL


@pytest.mark.parametrize(
    "other", [{"seed": 1}, {"executorch": "1.6.0"}, {"qemu": "12"}, {"cpus": ("strict",)}]
)
def test_another_sweep_is_not_continued(tmp_path: Path, other: dict[str, object]) -> None:
    write_results(FULL, tmp_path)
    with pytest.raises(UsageError, match=f"another {next(iter(other))}"):
        read_results(tmp_path, replace(EMPTY, **other))  # type: ignore[arg-type]


def test_a_file_of_something_else_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "sweep.json").write_text("[]")
    with pytest.raises(UsageError, match=r"sweep\.json"):
        read_results(tmp_path, EMPTY)


def test_the_end_counts_what_is_alike_and_names_its_script() -> None:
    lines = list(FULL.lines(Path("out")))
    assert "16 programs on strict, strict:128" in lines[0]
    assert "(960 an hour)" in lines[0]
    assert lines[1] == "1 of them could not be exported"
    assert lines[2] == "17 of 22 matrix operators on SME2 by their names"
    assert lines[3] == "differences: on is not off: 2"
    (found,) = lines[4:]
    assert found.startswith("out/difference_1_0.py: on is not off on strict:128, SME2 on: fp16")
    assert found.endswith("; 1 more like it")
