"""The compiled counter against a slow reader of the same log, and what makes counts worthless."""

from __future__ import annotations

import subprocess
from collections import Counter
from pathlib import Path

import pytest

from pytest_sme2.trace.kernel_log import read_counts
from tests.support.counters import compiled_counter

NOP, LOAD, OUTER = "d503201f", "f9400020", "80812000"


def block(address: int, *words: str) -> str:
    lines = [f"0x{address + 4 * place:x}:  {word}  nop" for place, word in enumerate(words)]
    return "----------------\nIN: \n" + "\n".join(lines) + "\n\n"


def ran(address: int, flags: int = 1, cpu: int = 0) -> str:
    return f"Trace {cpu}: 0x7f00 [80083009331/{address:016x}/{flags:08x}/00000200] \n"


def mark(name: str) -> str:
    return f'81 faccessat(-1,"sme2:{name}",F_OK,0x14) = -1 errno=9 (Bad file descriptor)\n'


CLOCK = "81 clock_gettime(CLOCK_MONOTONIC,0x7f56) = 0 ({tv_sec = 1,tv_nsec = 2})\n"
A, B, C = 0x1000, 0x2000, 0x3000
START = block(A, NOP, NOP) + ran(A) + block(B, LOAD, OUTER, NOP) + ran(B)
LOG = (
    START
    + mark("inference")
    + ran(A) * 3
    + CLOCK
    + ran(B) * 1000
    + block(C, LOAD)
    + ran(C)
    + ran(A)
    + mark("start")
    + ran(A) * 7
    + CLOCK
    + mark("resume")
    + ran(B)
    + mark("done")
    + ran(A) * 50
    + "81 exit_group(0)\n"
)


def counted(tmp_path: Path, log: str) -> tuple[Path, Path]:
    counts, rest = tmp_path / "counts", tmp_path / "rest"
    subprocess.run([compiled_counter(), counts, rest], input=log.encode(), check=True, timeout=600)
    return counts, rest


def slow_reader(log: str) -> list[tuple[str, Counter[tuple[str, ...]]]]:
    """The same by the plain rules: blocks, by their instructions, between marks."""
    blocks: dict[str, tuple[str, ...]] = {}
    listed: list[str] = []
    segments: list[tuple[str, Counter[tuple[str, ...]]]] = []
    current: Counter[tuple[str, ...]] = Counter()
    inside = False
    for line in log.splitlines():
        if line.startswith("IN:"):
            listed = []
        elif line.startswith("0x"):
            listed.append(line)
        elif line.startswith("Trace "):
            if listed:
                address = listed[0].partition(":")[0]
                blocks[address] = tuple(entry.split()[1] for entry in listed)
                listed = []
            if inside:
                current[blocks[f"0x{int(line.split('/')[1], 16):x}"]] += 1
        elif "sme2:" in line or "clock_gettime(" in line:
            name = "clock" if "clock_gettime" in line else line.split('"')[1].removeprefix("sme2:")
            inside = inside or name == "inference"
            if inside:
                segments.append((name, current))
                current = Counter()
            inside = inside and name != "done"
    return segments


def fast_reader(counts: Path) -> list[tuple[str, Counter[tuple[str, ...]]]]:
    blocks: dict[str, tuple[str, ...]] = {}
    segments: list[tuple[str, Counter[tuple[str, ...]]]] = []
    current: Counter[tuple[str, ...]] = Counter()
    for line in counts.read_text().splitlines():
        kind, *values = line.split()
        if kind == "b":
            blocks[values[0]] = tuple(values[2:])
        elif kind == "e":
            current[blocks[values[0]]] += int(values[1])
        elif kind == "m":
            segments.append((values[0], current))
            current = Counter()
    return segments


def test_the_counter_counts_as_a_slow_reader_does(tmp_path: Path) -> None:
    counts, rest = counted(tmp_path, LOG)
    assert fast_reader(counts) == slow_reader(LOG)
    assert "Trace" not in rest.read_text()
    assert "exit_group(0)" in rest.read_text()


def test_counts_become_instructions_between_marks(tmp_path: Path) -> None:
    found = read_counts(*counted(tmp_path, LOG), libraries=(), vector_bits=512)
    assert found.problem == ""
    told = [(each.mark, *each.code.get("unknown code", (0, 0))[:2]) for each in found.segments]
    # Instructions and outer products; what the tracer does between its marks is left out.
    assert told == [
        ("inference", 0, 0),
        ("clock", 6, 0),
        ("start", 3000 + 1 + 2, 1000),
        ("resume", 0, 0),
        ("done", 3, 1),
    ]


def test_a_block_that_was_stopped_before_it_ran_does_not_count(tmp_path: Path) -> None:
    stopped = ran(B) + f"Stopped execution of TB chain before 0x7f00 [{B:016x}] \n"
    log = LOG.replace(ran(B) * 1000, ran(B) * 500 + stopped + ran(B) * 500)
    once, again = tmp_path / "once", tmp_path / "again"
    once.mkdir()
    again.mkdir()
    expected = fast_reader(counted(once, LOG)[0])
    assert fast_reader(counted(again, log)[0]) == expected


@pytest.mark.parametrize(
    ("log", "message"),
    [
        (LOG.replace(ran(C), ran(C, cpu=1)), "more than one thread"),
        (LOG.replace(block(C, LOAD), ""), "instructions are not in the log"),
        (LOG[: LOG.index(mark("done"))], "middle of an inference"),
        (START + "81 exit_group(0)\n", "counted 0 inferences"),
        (LOG + LOG, "counted 2 inferences"),
    ],
    # The id of a test is in its environment, which has no room for a whole log.
    ids=["two threads", "a block without code", "cut short", "no inference", "two inferences"],
)
def test_nothing_is_claimed_of_a_log_that_does_not_fit(
    tmp_path: Path, log: str, message: str
) -> None:
    found = read_counts(*counted(tmp_path, log), libraries=(), vector_bits=512)
    assert message in found.problem


def test_a_full_disk_is_an_error() -> None:
    done = subprocess.run(
        [compiled_counter(), "/dev/full", "/dev/null"],
        input=(LOG * 200).encode(),
        capture_output=True,
        timeout=600,
    )
    assert done.returncode == 120
    assert b"No space left" in done.stderr
