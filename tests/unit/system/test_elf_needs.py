"""What programs need of the system they are to run on: real ones, and broken ones."""

from __future__ import annotations

import contextlib
import struct
from pathlib import Path

import pytest

from pytest_sme2.errors import ElfError
from pytest_sme2.system.elf import (
    AARCH64,
    is_elf,
    machine_name,
    read_needs,
    unmet_needs,
)


def make_elf(machine: int = AARCH64, needed: tuple[str, ...] = (), interpreter: str = "") -> bytes:
    """A 64-bit file with the segments that are read: its loaded parts hold the names it needs."""
    strings, named = b"\0", []
    for name in needed:
        named.append((1, len(strings)))
        strings += name.encode() + b"\0"
    table = [*named, (5, 0x1000), (0, 0)]
    entries = b"".join(struct.pack("<qQ", *entry) for entry in table)
    count = 2 + bool(interpreter)
    start = 64 + 56 * count
    after = start + len(strings)
    end = after + len(entries)
    length = len(strings)
    segments = [
        (1, 5, start, 0x1000, 0x1000, length, length, 1),
        (2, 6, after, 0, 0, len(entries), len(entries), 8),
    ]
    if interpreter:
        segments.append((3, 4, end, 0, 0, len(interpreter) + 1, len(interpreter) + 1, 1))
    header = b"\x7fELF\x02\x01\x01" + bytes(9)
    header += struct.pack("<HHIQQQIHHHHHH", 3, machine, 1, 0, 64, 0, 0, 64, 56, count, 0, 0, 0)
    packed = b"".join(struct.pack("<IIQQQQQQ", *segment) for segment in segments)
    return header + packed + strings + entries + interpreter.encode() + b"\0"


def test_what_is_written_is_read(tmp_path: Path) -> None:
    path = tmp_path / "program"
    path.write_bytes(make_elf(needed=("libc.so.6", "libm.so.6"), interpreter="/lib/ld.so"))
    needs = read_needs(path)
    assert needs.machine == AARCH64
    assert machine_name(needs.machine) == "arm64"
    assert needs.libraries == ("libc.so.6", "libm.so.6")
    assert needs.interpreter == "/lib/ld.so"


def test_other_machines_are_named(tmp_path: Path) -> None:
    path = tmp_path / "program"
    path.write_bytes(make_elf(machine=62))
    assert machine_name(read_needs(path).machine) == "x86_64"
    path.write_bytes(make_elf(machine=9999))
    assert machine_name(read_needs(path).machine) == "machine 9999"
    # 32 bit: only the machine is told.
    data = bytearray(make_elf(machine=40))
    data[4] = 1
    path.write_bytes(bytes(data))
    assert machine_name(read_needs(path).machine) == "arm (32 bit)"


def test_a_damaged_program_or_none_at_all_is_an_elf_error(tmp_path: Path) -> None:
    path = tmp_path / "program"
    path.write_text("#!/bin/sh\n", encoding="utf-8")
    assert not is_elf(path)
    with pytest.raises(ElfError, match="is not a program"):
        read_needs(path)
    whole = make_elf(needed=("libc.so.6",), interpreter="/lib/ld.so")
    for length in range(64, len(whole)):
        path.write_bytes(whole[:length])
        # Whatever was cut off: read, or refused in our words, but never another exception.
        with contextlib.suppress(ElfError):
            read_needs(path)


def test_a_bundle_that_lacks_a_library(tmp_path: Path) -> None:
    for name, needed in {
        "runner": ("libc.so.6", "liba.so"),
        "liba.so": ("libc.so.6",),
        "android_runner": ("libc.so", "libandroid.so"),
    }.items():
        (tmp_path / name).write_bytes(make_elf(needed=needed))
    files = {path.name: path for path in tmp_path.iterdir()}
    assert unmet_needs(files) == {"runner": ("libc.so.6",), "liba.so": ("libc.so.6",)}
    (tmp_path / "libc.so.6").write_bytes(make_elf())
    assert unmet_needs({**files, "libc.so.6": tmp_path / "libc.so.6"}) == {}
