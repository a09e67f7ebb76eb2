"""Kernels of XNNPACK that are broken on purpose, one instruction each, in a copy of the runner.

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
JUMP_TO_ZERO = 0xD61F03E0
"""br xzr"""
NOT_A_NUMBER = 0x25B8DFE0
"""mov z0.s, #-1"""

_FP32 = "kai_kernel_matmul_clamp_f32_f32p2vlx1_f32p2vlx1biasf32_sme2_mopa"


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


PLANTS = (
    Plant(
        "crash",
        "int8 convolutions jump to address 0 when they pack their input, as in XNNPACK#9898",
        *("kai_kernel_lhs_imatmul_pack_x8p2vlx4_x8p_sme", 0x0, 0xA9B757F4, JUMP_TO_ZERO),
    ),
    Plant(
        "depth tail fp32",
        "one of four outer products is left out where the depth is not a multiple of 4",
        *(_FP32, 0x158, 0x80870380, NOTHING),
    ),
    Plant(
        "row tail fp32",
        "a row is not written where the number of rows leaves 2 or 3 behind the fours",
        *(_FP32, 0x208, 0xA1604341, NOTHING),
    ),
    Plant(
        "NaN fp32",
        "the rows behind the fours are not a number",
        *(_FP32, 0x1F0, 0xC1B8CB40, NOT_A_NUMBER),
    ),
    Plant(
        "one row fp32",
        "one row: the last of each four inputs is left out at the end, up to 64 outputs",
        *("kai_kernel_matmul_clamp_f32_f32_f32p2vlx1b_1x16vl_sme2_mla", 0x1E4, 0xC1588D80, NOTHING),
    ),
    Plant(
        "depth tail fp16",
        "one of four outer products is left out where the depth is not a multiple of 8",
        *("kai_kernel_matmul_clamp_f16_f16p2vlx2_f16p2vlx2_2vlx2vl_sme2_mopa", 0x168),
        *(0x81AE24A0, NOTHING),
    ),
    Plant(
        "depth tail int8",
        "one of four outer products is left out where the depth is not a multiple of 16",
        *("kai_kernel_matmul_clamp_qai8_qai8p2vlx4_qsi8cxpsb2vlx4_2vlx2vl_sme2_mopa", 0x158),
        *(0xA0852600, NOTHING),
    ),
    Plant(
        "columns dynamic int8",
        "the second quarter of the columns stays at the bias",
        *("kai_kernel_matmul_clamp_f32_qai8dxp1vlx4_qsi8cxp4vlx4_1vlx4vl_sme2_mopa", 0x98),
        *(0xA0894881, NOTHING),
    ),
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
