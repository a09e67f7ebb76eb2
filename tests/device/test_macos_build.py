"""The Mac's side of the runner: compiled and linked against the real macOS wheel, never run.

zig (the PyPI package ``ziglang``) is a clang with macOS's headers and linker in it. The first
time it compiles its own C++ library, which takes a minute or two; that is kept in the cache.
"""

from __future__ import annotations

import importlib.util
import struct
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from pytest_sme2.runners.build import build_runner
from pytest_sme2.runners.sdk import executorch_sdk
from pytest_sme2.system.cache import cache_folder
from pytest_sme2.system.platforms import MACOS_ARM64
from pytest_sme2.system.toolchain import Compiler

MACOS = "aarch64-macos.14.0"
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
    libraries, search_paths, sections, least = [], [], {}, None
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


def zig(folder: Path) -> dict[str, str]:
    """Programs that CMake takes for a Mac's compilers."""
    if importlib.util.find_spec("ziglang") is None:
        pytest.skip("zig is not installed: pip install ziglang")
    kept = cache_folder() / "zig"
    programs = {}
    for name, words in {
        "cc": f"cc -target {MACOS}",
        "c++": f"c++ -target {MACOS}",
        "ar": "ar",
    }.items():
        program = folder / f"zig-{name}"
        program.write_text(
            "#!/bin/sh\n"
            f"export ZIG_GLOBAL_CACHE_DIR='{kept}' ZIG_LOCAL_CACHE_DIR='{kept}'\n"
            f'exec "{sys.executable}" -m ziglang {words} "$@"\n'
        )
        program.chmod(0o755)
        programs[name] = str(program)
    return programs


@pytest.mark.skipif(sys.platform == "darwin", reason="a Mac builds its runner with its own tools")
def test_the_macs_runner_and_its_switch_compile_and_link(tmp_path: Path) -> None:
    programs = zig(tmp_path)
    sdk = executorch_sdk(MACOS_ARM64)
    build = build_runner(
        sdk,
        tmp_path / "build",
        log=tmp_path / "build.log",
        compiler=Compiler(programs["c++"], "zig", cross=False),
        options={
            "CMAKE_SYSTEM_NAME": "Darwin",
            "CMAKE_SYSTEM_PROCESSOR": "arm64",
            "CMAKE_C_COMPILER": programs["cc"],
            "CMAKE_AR": programs["ar"],
            # zig brings its own headers, and knows the oldest system from its target.
            "CMAKE_OSX_SYSROOT": "",
            "CMAKE_OSX_DEPLOYMENT_TARGET": "",
            # CMake wants one before it believes in a Mac; nothing is installed here.
            "CMAKE_INSTALL_NAME_TOOL": "/bin/true",
        },
    )

    runner = read_mach_o(build / "sme2_runner")
    assert runner.kind == EXECUTABLE
    assert runner.least_macos == 14
    for library in (
        "executorch",
        "executorch_backend_xnnpack",
        "executorch_etdump",
        "executorch_kernels_optimized",
        "executorch_kernels_quantized",
        "executorch_threadpool",
    ):
        assert f"@rpath/lib{library}.dylib" in runner.libraries
        assert (sdk / "lib" / f"lib{library}.dylib").is_file()
    # The binary finds the libraries that lie beside it, wherever the folder is.
    assert "@loader_path" in runner.search_paths

    switch = read_mach_o(build / "libsme2_off.dylib")
    assert switch.kind == DYLIB
    assert switch.sections["__DATA,__interpose"] == 16, "one replacement and one original"
    assert b"hw.optional.arm." in (build / "libsme2_off.dylib").read_bytes()
    # The switch must not bring ExecuTorch in: dyld loads it before everything else.
    assert switch.libraries == ("/usr/lib/libSystem.B.dylib",)
