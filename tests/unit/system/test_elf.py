from __future__ import annotations

import contextlib
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_sme2.errors import ElfError
from pytest_sme2.system.elf import Function, read_elf
from tests.support.elf_writer import CODE_OFFSET, CODE_SIZE, write_elf


def real_libraries() -> list[Path]:
    """ELF files that every Linux test machine has, with and without a full symbol table."""
    import numpy as np

    folder = Path(np.__file__).parent
    return [Path(sys.executable).resolve(), *sorted(folder.rglob("_multiarray_umath*.so"))]


def readelf(path: Path, *options: str) -> list[str]:
    words = ["readelf", *options, "--wide", str(path)]
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout.splitlines()


needs_readelf = pytest.mark.skipif(
    sys.platform != "linux" or shutil.which("readelf") is None,
    reason="the oracle, readelf, is not here",
)


@needs_readelf
def test_symbols_agree_with_readelf() -> None:
    for path in real_libraries():
        expected = set()
        for words in map(str.split, readelf(path, "--syms", "--dyn-syms")):
            if len(words) >= 8 and words[3] in ("FUNC", "IFUNC") and words[6] != "UND":
                expected.add((int(words[1], 16), int(words[2], 0), words[7].split("@")[0]))
        read = {
            (function.address, function.size, function.name.split("@")[0])
            for function in read_elf(path).symbols
        }
        assert read == {entry for entry in expected if entry[1]} != set(), path


@needs_readelf
def test_unwind_table_agrees_with_readelf() -> None:
    for path in real_libraries():
        expected = set()
        for line in readelf(path, "--debug-dump=frames"):
            if " FDE " in line and "pc=" in line:
                start, end = (int(word, 16) for word in line.rsplit("pc=", 1)[1].split(".."))
                expected.add((start, end - start))
        elf = read_elf(path)
        starts = {symbol.address for symbol in elf.symbols}
        assert expected, path
        assert {(function.address, function.size) for function in elf.unnamed} == {
            entry for entry in expected if entry[0] not in starts
        }


def test_addresses_resolve_within_bounds_only(tmp_path: Path) -> None:
    symbols = [(0x1100, 0x40, "first"), (0x1200, 0x10, "second")]
    path = write_elf(tmp_path / "lib.so", symbols, unwind=[(0x1200, 0x10), (0x1300, 0x20)])
    first, second = (Function(*symbol) for symbol in symbols)
    places = (0x10FF, 0x1100, 0x113F, 0x1140, 0x1200, 0x131F, 0x1320)
    found = [*map(read_elf(path).function_at, places)]
    assert found == [None, first, first, None, second, Function(0x1300, 0x20, ""), None]


def test_file_offsets_become_addresses(tmp_path: Path) -> None:
    elf = read_elf(write_elf(tmp_path / "lib.so", [], shift=0x10000))
    assert elf.address_of(CODE_OFFSET) == CODE_OFFSET + 0x10000
    assert elf.address_of(CODE_OFFSET - 1) is None
    assert elf.address_of(0xFFFFFF) is None


@pytest.mark.parametrize(
    "content",
    [b"", b"\x7fELF", b"#!/bin/sh\n", b"\x7fELF\x01\x01" + bytes(100), b"\xcf\xfa\xed\xfe" * 40],
    ids=["empty", "magic", "script", "elf32", "mach-o"],
)
def test_file_that_is_not_elf_or_not_there_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "not a library.so"
    with pytest.raises(ElfError, match="No such file"):
        read_elf(path)
    path.write_bytes(content)
    with pytest.raises(ElfError, match="not a little-endian 64-bit ELF file"):
        read_elf(path)


@pytest.mark.slow
@given(data=st.data())
def test_damage_is_an_elf_error_or_harmless(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    path = tmp_path_factory.mktemp("elf") / "lib.so"
    content = bytearray(
        write_elf(path, [(0x1100, 16, "kernel")], unwind=[(0x1200, 8)]).read_bytes()
    )
    # The code is empty padding: damage there says nothing.
    interesting = [*range(6, 176), *range(0xA000, len(content))]
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.sampled_from(interesting))] = data.draw(st.integers(0, 255))
    length = data.draw(st.sampled_from([len(content), len(content) - 30, 0xA010, 100]))
    path.write_bytes(bytes(content[:length]))
    # Anything but an ElfError, or a read that succeeds, fails the test.
    with contextlib.suppress(ElfError):
        read_elf(path).function_at(0x1100)


UNWIND = CODE_OFFSET + CODE_SIZE


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """One function in the symbols, another in the unwind table alone."""
    return write_elf(tmp_path / "a.so", [(0x1100, 16, "kernel")], unwind=[(0x1200, 8)])


def patch(path: Path, offset: int, new: bytes) -> Path:
    data = bytearray(path.read_bytes())
    data[offset : offset + len(new)] = new
    path.write_bytes(bytes(data))
    return path


def test_a_file_without_sections_has_its_unwind_table(small: Path) -> None:
    elf = read_elf(patch(small, 40, bytes(8)))
    assert elf.function_at(0x1100) is None
    assert elf.function_at(0x1200) == Function(0x1200, 8, "")


@pytest.mark.parametrize("offset", [UNWIND, UNWIND + 12 + 8 + 8], ids=["table", "entry"])
def test_unwind_table_of_another_encoding_is_ignored(small: Path, offset: int) -> None:
    elf = read_elf(patch(small, offset, b"\x02"))
    assert elf.function_at(0x1100) == Function(0x1100, 16, "kernel")
    assert elf.function_at(0x1200) is None
