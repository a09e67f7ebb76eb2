"""Whether a program can run on a phone: its CPU, its libraries, its place in memory. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from pytest_sme2.system.elf import is_elf, read_layout, read_needs

PHONE_PAGE_BYTES = 16384
"""The largest pages of a phone, from Android 15 on."""


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


def refused_by_phones(files: Mapping[str, Path]) -> dict[str, str]:
    """Programs and libraries that some phone does not load, and why.

    A phone with larger pages than a file is aligned for cannot map it. Android's shell may neither
    have an executable stack nor change code.
    """
    refused = {}
    for name, path in files.items():
        if not is_elf(path):
            continue
        layout = read_layout(path)
        if layout.alignment < PHONE_PAGE_BYTES:
            refused[name] = (
                f"it is aligned to {layout.alignment} bytes, and phones have pages of up to "
                f"{PHONE_PAGE_BYTES}"
            )
        elif layout.executable_stack:
            refused[name] = "it asks for an executable stack"
        elif layout.text_relocations:
            refused[name] = "its code is changed when it is loaded (text relocations)"
    return refused
