"""What an ELF file asks of the system it is to run on: machine, loader, libraries. Pure."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pytest_sme2.errors import BuildError

AARCH64 = 183
_MACHINES = {3: "x86", 40: "arm (32 bit)", 62: "x86_64", AARCH64: "arm64", 243: "riscv64"}
ABI_MACHINES = {"arm64-v8a": AARCH64, "armeabi-v7a": 40, "x86_64": 62, "x86": 3, "riscv64": 243}
_PT_LOAD, _PT_DYNAMIC, _PT_INTERP = 1, 2, 3
_DT_NEEDED, _DT_STRTAB = 1, 5


@dataclass(frozen=True)
class Elf:
    """The part of an ELF file's headers that decides where it can run."""

    machine: int
    interpreter: str | None
    needed: tuple[str, ...]

    @property
    def machine_name(self) -> str:
        return _MACHINES.get(self.machine, f"machine {self.machine}")


def read_elf(path: Path) -> Elf:
    """The headers of a 64-bit little-endian file, or of a 32-bit one as far as its machine."""
    data = path.read_bytes()
    if data[:4] != b"\x7fELF" or len(data) < 64:
        raise BuildError(f"{path} is not a program (no ELF header). Give the runner itself.")
    machine = struct.unpack_from("<H", data, 18)[0]
    if data[4] != 2 or data[5] != 1:
        return Elf(machine, None, ())
    try:
        return _read_64(data, machine)
    except (struct.error, ValueError, UnicodeDecodeError) as error:
        raise BuildError(f"{path} is a damaged program ({error}). Build it again.") from error


def unmet_needs(files: Mapping[str, Path]) -> dict[str, tuple[str, ...]]:
    """Programs and libraries of a Linux bundle whose own libraries are not all in it.

    Android's programs are left out: what they need is on every phone.
    """
    unmet = {}
    for name, path in files.items():
        if not is_elf(path):
            continue
        needed = read_elf(path).needed
        absent = tuple(library for library in needed if library not in files)
        if "libc.so.6" in needed and absent:
            unmet[name] = absent
    return unmet


def is_elf(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(4) == b"\x7fELF"


def _read_64(data: bytes, machine: int) -> Elf:
    offset, size, count = (
        struct.unpack_from("<Q", data, 32)[0],
        struct.unpack_from("<H", data, 54)[0],
        struct.unpack_from("<H", data, 56)[0],
    )
    segments = [
        struct.unpack_from("<IIQQQQ", data, offset + index * size) for index in range(count)
    ]
    interpreter = None
    entries: list[tuple[int, int]] = []
    for kind, _, start, _, _, length in segments:
        if kind == _PT_INTERP:
            interpreter = data[start : start + length].rstrip(b"\0").decode()
        elif kind == _PT_DYNAMIC:
            entries = [
                struct.unpack_from("<qQ", data, place)
                for place in range(start, min(start + length, len(data) - 15), 16)
            ]
    tables = [value for tag, value in entries if tag == _DT_STRTAB]
    if not tables:
        return Elf(machine, interpreter, ())
    strings = _file_offset(segments, tables[0])
    needed = tuple(_string(data, strings + value) for tag, value in entries if tag == _DT_NEEDED)
    return Elf(machine, interpreter, needed)


def _file_offset(segments: list[tuple[int, ...]], address: int) -> int:
    for kind, _, start, virtual, _, length in segments:
        if kind == _PT_LOAD and virtual <= address < virtual + length:
            return start + address - virtual
    raise ValueError("its string table is nowhere")


def _string(data: bytes, start: int) -> str:
    return data[start : data.index(b"\0", start)].decode()
