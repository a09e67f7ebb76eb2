"""What is read of a library, whichever format it has: its CPU, names, code and alignment."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

AARCH64 = 183
_MACHINES = {3: "x86", 40: "arm (32 bit)", 62: "x86_64", AARCH64: "arm64", 243: "riscv64"}
# torch's largest library has 400,000 symbols.
_MOST_SYMBOLS = 4_000_000
_LONGEST_NAME = 256


def machine_name(machine: int) -> str:
    """The usual name of ELF's number for a CPU."""
    return _MACHINES.get(machine, f"machine {machine}")


@dataclass(frozen=True)
class Binary:
    """One library or object file for one CPU."""

    kind: str
    architecture: str
    platform: str
    data: bytes
    code: tuple[tuple[int, int], ...] = ()
    """The offset and the size of each part with instructions."""
    defined: frozenset[str] = frozenset()
    undefined: frozenset[str] = frozenset()
    alignment: int | None = None
    """The smallest of its loaded parts; None for a format without."""


def checked_code(data: bytes, parts: Sequence[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    """``parts``, all of them within the file and together no larger than it."""
    if any(offset + size > len(data) for offset, size in parts):
        raise struct.error("code beyond its end")
    if sum(size for _, size in parts) > len(data):
        raise struct.error("more code than bytes")
    return tuple(parts)


def chosen_names(
    data: bytes, symbols: Iterable[tuple[int, bool]], wanted: re.Pattern[bytes]
) -> tuple[frozenset[str], frozenset[str]]:
    """The defined and the undefined names that ``wanted`` has, of places and whether defined."""
    names: dict[bool, set[str]] = {True: set(), False: set()}
    for number, (place, defined) in enumerate(symbols):
        if number == _MOST_SYMBOLS or place >= len(data):
            raise struct.error("too many symbols, or a name beyond its end")
        if match := wanted.match(data, place, place + _LONGEST_NAME):
            names[defined].add(match[1].decode())
    return frozenset(names[True]), frozenset(names[False])
