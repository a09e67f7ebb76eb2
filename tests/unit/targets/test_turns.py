"""Processes that take turns, with real ones: who runs when, and what becomes of those that fail."""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import IO, Any

import pytest

from pytest_sme2.system.processes import Finished
from pytest_sme2.targets.base import Participant, run_in_turns

PARTICIPANT = """
import os, sys
descriptor, name, turns, journal = int(sys.argv[1]), sys.argv[2], int(sys.argv[3]), sys.argv[4]
def note(text):
    with open(journal, "a") as file:
        file.write(f"{name} {text}\\n")
note("warm")
for turn in range(turns):
    os.write(descriptor, b".")
    if not os.read(0, 1):
        note("left alone")
        sys.exit(7)
    note(f"begins {turn}")
    note(f"ends {turn}")
"""
CRASH = "import os, sys\nos.write(int(sys.argv[1]), b'.')\nos.read(0, 1)\nsys.exit('broken')\n"
HANG = "import os, sys, time\nos.write(int(sys.argv[1]), b'.')\nos.read(0, 1)\ntime.sleep(600)\n"

Make = Callable[..., Participant]


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    return tmp_path / "journal"


@pytest.fixture
def make(tmp_path: Path, journal: Path) -> Iterator[Make]:
    files: list[IO[bytes]] = []

    def make(name: str, turns: int = 3, program: str = PARTICIPANT) -> Participant:
        output = tempfile.TemporaryFile()  # noqa: SIM115
        files.append(output)

        def arguments(descriptor: int) -> Sequence[str]:
            return [
                sys.executable, "-c", program, str(descriptor), name, str(turns), str(journal)
            ]  # fmt: skip

        return Participant(arguments, tmp_path, output)

    yield make
    for file in files:
        file.close()


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="this system cannot pin")
def test_each_is_kept_on_its_own_cores(make: Make, journal: Path) -> None:
    every = sorted(os.sched_getaffinity(0))
    program = PARTICIPANT.replace('note("warm")', "note(sorted(os.sched_getaffinity(0)))")
    participants = [replace(make("a", 1, program), cpus=every[:1]), make("b", 1, program)]
    run_in_turns(participants, 1, timeout_seconds=600)
    assert journal.read_text().splitlines()[:2] == [f"a {every[:1]}", f"b {every}"]


def test_one_runs_while_the_other_rests_and_the_first_alternates(make: Make, journal: Path) -> None:
    answers = run_in_turns([make("a"), make("b")], 3, timeout_seconds=600)
    assert [answer and answer.returncode for answer in answers] == [0, 0]
    lines = journal.read_text().splitlines()
    assert lines == [
        "a warm", "b warm",
        "a begins 0", "a ends 0", "b begins 0", "b ends 0",
        "b begins 1", "b ends 1", "a begins 1", "a ends 1",
        "a begins 2", "a ends 2", "b begins 2", "b ends 2",
    ]  # fmt: skip


def test_failing_process_is_reported(make: Make, journal: Path) -> None:
    answers = run_in_turns([make("a"), make("b", program=CRASH)], 3, timeout_seconds=600)
    assert answers[0] is None
    assert answers[1].returncode == 1
    assert "broken" in answers[1].stderr
    assert not answers[1].timed_out


def test_one_that_never_starts_to_wait_ends_it_all(make: Make) -> None:
    answers = run_in_turns(
        [make("a", program="raise SystemExit(3)"), make("b")], 3, timeout_seconds=600
    )
    assert answers[0].returncode == 3
    assert answers[1] is None


def _when_time_is_up(make: Make, **second: Any) -> list[Finished | None]:
    """How "a" and a second one that does not end on its own ended."""
    # A busy machine may need longer until both have started.
    for seconds in (1, 10, 120):
        begun = time.monotonic()
        answers = run_in_turns([make("a"), make("b", **second)], 3, timeout_seconds=seconds)
        assert time.monotonic() - begun < 300
        if answers[1] is not None:
            break
    return answers


def test_one_that_hangs_is_ended_when_time_is_up(make: Make) -> None:
    answers = _when_time_is_up(make, program=HANG)
    assert answers[0] is None
    assert answers[1].timed_out


def test_process_that_takes_too_many_turns_is_reported(make: Make) -> None:
    answers = _when_time_is_up(make, turns=9)
    assert answers[0] is None
    assert answers[1].returncode != 0


def test_missing_program_leaves_no_process(make: Make, tmp_path: Path) -> None:
    with tempfile.TemporaryFile() as output:
        missing = Participant(lambda _: [str(tmp_path / "no such program")], tmp_path, output)
        with pytest.raises(FileNotFoundError):
            run_in_turns([make("a"), missing], 3, timeout_seconds=600)


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="counts descriptors in /proc")
def test_no_descriptor_is_left_open(make: Make) -> None:
    participants = [make("a"), make("b", program=CRASH)]
    before = len(list(Path("/proc/self/fd").iterdir()))
    run_in_turns(participants, 3, timeout_seconds=600)
    assert len(list(Path("/proc/self/fd").iterdir())) == before
