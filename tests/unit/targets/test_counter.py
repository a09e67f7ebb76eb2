"""What is said when the program that counts, or what it listens to, fails."""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path

import pytest

from pytest_sme2.errors import RunError
from pytest_sme2.targets.counter import block_counter, counting

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="needs named pipes")


def make_counter(folder: Path, script: str) -> Path:
    program = folder / "counter"
    program.write_text(f"#!/bin/sh\n{script}\n", "utf-8")
    program.chmod(0o755)
    return program


def run_that_fails(program: Path, folder: Path, reason: str) -> None:
    with counting(program, folder / "counts", folder / "rest") as pipe:
        _write_until_nobody_reads(pipe)
        raise RunError(reason)


def test_a_counter_that_failed_is_the_reason_why_the_emulator_did(tmp_path: Path) -> None:
    program = make_counter(tmp_path, "read line; echo block_counter: out of memory >&2; exit 3")
    with pytest.raises(RunError, match="counts instructions failed: out of memory"):
        run_that_fails(program, tmp_path, "ended by signal 13")


def test_an_emulator_that_failed_by_itself_is_its_own_reason(tmp_path: Path) -> None:
    program = make_counter(tmp_path, "read line; cat > /dev/null")
    with pytest.raises(RunError, match="ended by signal 11"):
        run_that_fails(program, tmp_path, "ended by signal 11")


def test_a_line_that_is_too_long_is_read_to_its_end(tmp_path: Path) -> None:
    rest = tmp_path / "rest"
    with counting(block_counter(), tmp_path / "counts", rest) as pipe, pipe.open("wb") as log:
        for _ in range(8):
            log.write(b"x" * (1 << 20))
        log.write(b"\nthe next line\n")
    assert rest.read_bytes().endswith(b"the next line\n")


def _write_until_nobody_reads(pipe: Path) -> None:
    """As an emulator does; or until a thousand lines were read."""
    descriptor = os.open(pipe, os.O_WRONLY)
    with contextlib.suppress(BrokenPipeError):
        for _ in range(1000):
            os.write(descriptor, b"line\n")
    os.close(descriptor)
