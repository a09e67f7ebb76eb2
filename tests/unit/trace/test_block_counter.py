"""What the compiled counter makes of a log, and what makes counts worthless."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from pytest_sme2.results.evidence import Code, KernelFamily
from pytest_sme2.targets.emulated import block_counter
from pytest_sme2.trace.kernel_log import read_counts
from tests.support.counters import compiled_counter
from tests.support.elf_writer import write_elf

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


def test_counts_become_instructions_between_marks(tmp_path: Path) -> None:
    counts, rest = counted(tmp_path, LOG)
    assert "Trace" not in rest.read_text()
    assert "exit_group(0)" in rest.read_text()
    found = read_counts(counts, rest, libraries=(), vector_bits=512)
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


def test_what_ran_belongs_to_a_kernel_or_else_to_its_library(tmp_path: Path) -> None:
    kernel = "kai_kernel_matmul_clamp_f32_f32_f32p_sme2_mopa"
    library = write_elf(
        tmp_path / "libxnnpack_kernels.so",
        [(A, 0x40, kernel), (B, 0x40, "tomorrow")],
        unwind=[(C, 0x40)],
    )
    mapped = f'81 openat(AT_FDCWD,"/x/{library.name}",O_RDONLY) = 4\n'
    mapped += "81 mmap(NULL,36864,PROT_READ|PROT_EXEC,MAP_PRIVATE,4,0) = 0x0\n"
    counts, rest = counted(tmp_path, mapped + LOG)
    found = read_counts(counts, rest, libraries=[library], vector_bits=512)
    executed = {name: row[0] for segment in found.segments for name, row in segment.code.items()}
    assert executed.keys() == {
        kernel.replace("kernel", "run", 1), "tomorrow", f"{library.name}+{C:#x}"
    }  # fmt: skip
    # It has no name that anybody knows, but an outer product.
    assert found.code["tomorrow"] == Code(KernelFamily.SME, ("fp32 outer product",))
    # Code of a library that no symbol and no unwind table knows is still the library's.
    (tmp_path / "bare").mkdir()
    bare = write_elf(tmp_path / "bare" / library.name, [(0x8000, 0x40, kernel)])
    found = read_counts(counts, rest, libraries=[bare], vector_bits=512)
    assert {name for segment in found.segments for name in segment.code} == {library.name}


def test_a_block_that_was_stopped_before_it_ran_does_not_count(tmp_path: Path) -> None:
    stopped = ran(B) + f"Stopped execution of TB chain before 0x7f00 [{B:016x}] \n"
    log = LOG.replace(ran(B) * 1000, ran(B) * 500 + stopped + ran(B) * 500)
    once, again = (
        read_counts(*counted(tmp_path, text), libraries=(), vector_bits=512) for text in (LOG, log)
    )
    assert once == again


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


def test_a_counter_that_others_could_replace_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SME2_CACHE_DIR", str(tmp_path / "cache"))
    before = os.umask(0)
    try:
        program = block_counter()
    finally:
        os.umask(before)
    made = program.read_bytes()
    for path in (program, program.parent):
        assert path.stat().st_mode & 0o022 == 0
        # As earlier versions made it: another user wrote a program of their own there.
        program.write_bytes(b"#!/bin/sh\ntouch owned\n")
        path.chmod(0o777)
        if os.getuid() == 0:
            os.chown(program, 65534, 65534)
        assert block_counter().read_bytes() == made
