"""Which function an address of a running program belongs to, from the emulator's log of its start.

The log's ``openat`` and ``mmap`` lines say where each library was put; the library's own symbols
say the rest.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from pytest_sme2.system.elf import ElfFile, Function, read_elf

_OPENED = re.compile(rb'([^/"]+)",O_[^)]*\) = (\d{1,9})\s*$')
_NUMBER = rb"(0x[0-9a-f]{1,16}|\d{1,19})"
_MAPPED = re.compile(
    rb"mmap2?\([^,]*," + _NUMBER + rb",([^,]*),[^,]*,(\d{1,9})," + _NUMBER + rb"\) = " + _NUMBER
)


@dataclass(frozen=True)
class CodePlace:
    """Where in which file an address stands."""

    elf: ElfFile
    address: int
    """The file's own."""
    function: Function | None


@dataclass(frozen=True)
class _Mapping:
    start: int
    end: int
    offset: int
    elf: ElfFile


@dataclass
class CodeMap:
    """Filled line by line; memory grows with the libraries, not with the log."""

    libraries: dict[str, Path]
    _open: dict[int, Path] = field(default_factory=dict)
    _elves: dict[Path, ElfFile] = field(default_factory=dict)
    _mappings: list[_Mapping] = field(default_factory=list)

    @classmethod
    def of(cls, libraries: Iterable[Path]) -> CodeMap:
        """For the files that code may stand in: the runner and the libraries beside it."""
        return cls({path.name: path for path in libraries})

    def take(self, line: bytes) -> None:
        """One line of the log, of any kind."""
        if b"mmap" in line:
            self._mapped(line)
        elif b'",O_' in line:
            self._opened(line)

    def place(self, address: int) -> CodePlace | None:
        """None where no known file was mapped."""
        for mapping in self._mappings:
            if mapping.start <= address < mapping.end:
                own = mapping.elf.address_of(address - mapping.start + mapping.offset)
                if own is None:
                    return None
                return CodePlace(mapping.elf, own, mapping.elf.function_at(own))
        return None

    def is_mapped(self, address: int) -> bool:
        return any(mapping.start <= address < mapping.end for mapping in self._mappings)

    def _opened(self, line: bytes) -> None:
        match = _OPENED.search(line)
        if match:
            name = os.fsdecode(match[1])
            descriptor = int(match[2])
            if name in self.libraries:
                self._open[descriptor] = self.libraries[name]
            else:
                self._open.pop(descriptor, None)

    def _mapped(self, line: bytes) -> None:
        match = _MAPPED.search(line)
        if not match or b"PROT_EXEC" not in match[2]:
            return
        path = self._open.get(int(match[3]))
        if path is None:
            return
        if path not in self._elves:
            self._elves[path] = read_elf(path)
        start = _number(match[5])
        # The newest first: what is mapped over something else hides it.
        self._mappings.insert(
            0,
            _Mapping(start, start + _number(match[1]), _number(match[4]), self._elves[path]),
        )


def _number(word: bytes) -> int:
    return int(word, 16 if word.startswith(b"0x") else 10)
