"""What a loader would look at in the Mac's runner, built against the real macOS wheel.

The tests in ``mac/`` run it.
"""

from __future__ import annotations

import re
import struct
from pathlib import Path
from typing import NamedTuple

from tests.device.mac.rig import mac

EXECUTABLE, DYLIB = 2, 6


class MachO(NamedTuple):
    """What a loader would look at."""

    kind: int
    libraries: tuple[str, ...]
    search_paths: tuple[str, ...]
    sections: dict[str, int]
    """Size by ``segment,section``."""
    least_macos: int | None


def read_mach_o(path: Path) -> MachO:
    data = path.read_bytes()
    magic, cpu, _, kind, commands = struct.unpack_from("<5I", data)
    assert (magic, cpu) == (0xFEEDFACF, 0x0100000C), f"{path} is not Mach-O for arm64"
    libraries: list[str] = []
    search_paths: list[str] = []
    sections, least = {}, None
    position = 32
    for _ in range(commands):
        command, size = struct.unpack_from("<II", data, position)
        body = data[position : position + size]
        if command in (0xC, 0x8000001C):  # LC_LOAD_DYLIB, LC_RPATH
            (offset,) = struct.unpack_from("<I", body, 8)
            text = body[offset:].split(b"\0")[0].decode()
            (libraries if command == 0xC else search_paths).append(text)
        elif command == 0x19:  # LC_SEGMENT_64
            (count,) = struct.unpack_from("<I", body, 64)
            for index in range(count):
                name, segment, _, length = struct.unpack_from("<16s16sQQ", body, 72 + 80 * index)
                key = b",".join(part.rstrip(b"\0") for part in (segment, name))
                sections[key.decode()] = length
        elif command == 0x32:  # LC_BUILD_VERSION
            least = struct.unpack_from("<I", body, 12)[0] >> 16
        position += size
    return MachO(kind, tuple(libraries), tuple(search_paths), sections, least)


def test_the_macs_runner_and_its_switch_compile_and_link() -> None:
    built = mac()
    runner = read_mach_o(built.folder / "sme2_runner")
    assert runner.kind == EXECUTABLE
    assert runner.least_macos == 14
    for library in (
        "executorch",
        "executorch_backend_xnnpack",
        "executorch_etdump",
        "executorch_kernels_optimized",
        "executorch_kernels_quantized",
        "executorch_threadpool",
        "sme2_off",
    ):
        assert f"@rpath/lib{library}.dylib" in runner.libraries
        assert (built.folder / f"lib{library}.dylib").is_file()

    switch = read_mach_o(built.folder / "libsme2_off.dylib")
    assert switch.kind == DYLIB
    assert switch.sections["__DATA,__interpose"] == 16, "one replacement and one original"
    # The switch must not bring ExecuTorch in: dyld loads it before everything else.
    assert switch.libraries == ("/usr/lib/libSystem.B.dylib",)


def test_the_runner_looks_beside_itself_and_nowhere_twice() -> None:
    """Older linkers keep a search path that is given twice, and newer dyld refuses such a file."""
    built = mac()
    paths = read_mach_o(built.folder / "sme2_runner").search_paths
    assert paths[0] == "@loader_path"
    link = (built.build / "build.ninja").read_text()
    (flags,) = re.findall(r"^  LINK_FLAGS = (.*-rpath.*)$", link, re.MULTILINE)
    given = re.findall(r"-rpath(?:,| -Xlinker )(\S+)", flags)
    assert sorted(given) == sorted(paths), "each once, and none but the wheel's own"
    assert "-rpath" not in link.replace(flags, "")
