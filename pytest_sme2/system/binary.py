"""What is read of a library, whichever format it has: its CPU, names, code and alignment."""

from __future__ import annotations

import re
import struct
from collections.abc import Sequence
from dataclasses import dataclass, field

AARCH64 = 183
"""ELF's number of arm64."""
_MACHINES = {3: "x86", 40: "arm (32 bit)", 62: "x86_64", AARCH64: "arm64", 243: "riscv64"}
# The largest library at hand has 400,000. More would only take time.
_MOST_SYMBOLS = 4_000_000
_LONGEST_NAME = 256


def machine_name(machine: int) -> str:
    """The usual name of ELF's number for a CPU."""
    return _MACHINES.get(machine, f"machine {machine}")


@dataclass
class Names:
    """The names of a symbol table that match ``wanted``: all others are passed over."""

    data: bytes = b""
    wanted: re.Pattern[bytes] = re.compile(rb"(?!)")
    defined: set[str] = field(default_factory=set)
    undefined: set[str] = field(default_factory=set)
    _taken: int = 0

    def take(self, place: int, *, defined: bool) -> None:
        """The name at ``place``, without the underscore that Apple's compilers put before it."""
        self._taken += 1
        if self._taken > _MOST_SYMBOLS or place >= len(self.data):
            raise struct.error("too many symbols, or a name beyond its end")
        match = self.wanted.match(self.data, place, place + _LONGEST_NAME)
        if match:
            (self.defined if defined else self.undefined).add(match[1].decode())


@dataclass(frozen=True)
class Binary:
    """One library or object file for one CPU."""

    kind: str
    architecture: str
    platform: str
    data: bytes = field(repr=False)
    code: tuple[tuple[int, int], ...] = ()
    """The offset and the size of each part with instructions."""
    names: Names = field(default_factory=Names, repr=False)
    alignment: int | None = None
    """The smallest of its loaded parts; None where nothing of it is loaded as it is."""


def checked_code(data: bytes, parts: Sequence[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    """``parts``, all of them within the file and together no larger than it."""
    if any(offset + size > len(data) for offset, size in parts):
        raise struct.error("code beyond its end")
    if sum(size for _, size in parts) > len(data):
        raise struct.error("more code than bytes")
    return tuple(parts)
