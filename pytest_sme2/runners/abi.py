"""Whether a program can run on a phone: its CPU, and libraries that phones do not have. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from pytest_sme2.system.elf import is_elf, read_needs

AARCH64 = 183
_MACHINES = {3: "x86", 40: "arm (32 bit)", 62: "x86_64", AARCH64: "arm64", 243: "riscv64"}


def machine_name(machine: int) -> str:
    """The usual name of ELF's number for a CPU."""
    return _MACHINES.get(machine, f"machine {machine}")


def unmet_needs(files: Mapping[str, Path]) -> dict[str, tuple[str, ...]]:
    """Programs and libraries of a Linux bundle that need a library which is not in it.

    Without Android's programs: what they need is on every phone.
    """
    unmet = {}
    for name, path in files.items():
        if not is_elf(path):
            continue
        needed = read_needs(path).libraries
        absent = tuple(library for library in needed if library not in files)
        if "libc.so.6" in needed and absent:
            unmet[name] = absent
    return unmet
