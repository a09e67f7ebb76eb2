"""A kernel of XNNPACK that is broken on purpose, by one instruction, in a copy of the runner.

The machine code is that of the wheel of ExecuTorch 1.5.1 for Linux on Arm.
"""

from __future__ import annotations

import dataclasses
import shutil
import struct
from dataclasses import dataclass
from pathlib import Path

from pytest_sme2.runners.base import Runner
from pytest_sme2.system.elf import read_elf

LIBRARY = "libexecutorch_backend_xnnpack.so"
EXECUTORCH = "1.5.1"

NOTHING = 0xD503201F
"""nop"""


@dataclass(frozen=True)
class Plant:
    """One instruction of one kernel, replaced."""

    name: str
    what: str
    kernel: str
    offset: int
    word: int
    """As it is in the wheel."""
    instead: int


DEPTH_TAIL = Plant(
    "depth tail fp32",
    "one of four outer products is left out where the depth is not a multiple of 4",
    *("kai_kernel_matmul_clamp_f32_f32p2vlx1_f32p2vlx1biasf32_sme2_mopa", 0x158),
    *(0x80870380, NOTHING),
)


def planted(runner: Runner, plant: Plant, folder: Path) -> Runner:
    """The runner with one instruction replaced."""
    shutil.copytree(runner.folder, folder)
    library = folder / LIBRARY
    elf = read_elf(library)
    function = next(entry for entry in elf.symbols if entry.name == plant.kernel)
    data = bytearray(library.read_bytes())
    address = function.address + plant.offset
    segment = next(part for part in elf.segments if 0 <= address - part.address < part.file_size)
    place = address - segment.address + segment.offset
    (word,) = struct.unpack_from("<I", data, place)
    if word != plant.word:
        raise ValueError(f"{plant.name}: {word:#x} is in the library in place of {plant.word:#x}")
    struct.pack_into("<I", data, place, plant.instead)
    library.write_bytes(data)
    return dataclasses.replace(runner, folder=folder)
