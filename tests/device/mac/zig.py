"""Builds for a Mac with zig, a clang that has the Mac's headers and a linker of its own.

The first time zig compiles its C++ library, which takes a minute or two. That stays in the cache.
"""

from __future__ import annotations

import importlib.metadata
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from pytest_sme2.runners.sme2 import build_runner
from pytest_sme2.system.cache import cache_folder
from pytest_sme2.system.toolchain import Compiler

OLDEST = "aarch64-macos.14.0"
# zig keeps a C++ library per level of optimization: the same level everywhere, and it makes one.
_TARGET = ("-target", OLDEST, "-O3")
_UNWINDER = (
    "libunwind.cpp",
    "UnwindLevel1.c",
    "UnwindLevel1-gcc-ext.c",
    "UnwindRegistersSave.S",
    "UnwindRegistersRestore.S",
)


def zig_version() -> str:
    try:
        return importlib.metadata.version("ziglang")
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("zig is not installed: pip install ziglang")


def _variables() -> dict[str, str]:
    kept = str(cache_folder() / "zig")
    return {"ZIG_GLOBAL_CACHE_DIR": kept, "ZIG_LOCAL_CACHE_DIR": kept}


def build_for_mac(sdk: Path, folder: Path) -> Path:
    """The runner, built by the product's own code; zig stands in for a Mac's compilers."""
    programs = {}
    for name, target in {"cc": True, "c++": True, "ar": False}.items():
        words = " ".join((name, *_TARGET)) if target else name
        exports = " ".join(f"{key}='{value}'" for key, value in _variables().items())
        program = folder / f"zig-{name}"
        program.write_text(
            f'#!/bin/sh\nexport {exports}\nexec "{sys.executable}" -m ziglang {words} "$@"\n'
        )
        program.chmod(0o755)
        programs[name] = str(program)
    return build_runner(
        sdk,
        folder / "build",
        log=folder / "build.log",
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


def build_libcxx(folder: Path) -> Path:
    """The C++ library and the unwinder, which come with a Mac, as one dylib."""
    import ziglang

    library = folder / "libcxx.dylib"
    empty = folder / "empty.cpp"
    empty.touch()
    told = _zig(["c++", *_TARGET, "-shared", empty, "-o", library], ZIG_VERBOSE_LINK="1")
    archives = re.findall(r"\S+/libc\+\+(?:abi)?\.a", told)
    assert len(archives) == 2, f"zig does not say what it links: {told}"
    sources = Path(ziglang.__file__).parent / "lib" / "libunwind"
    _zig(
        [
            *("c++", *_TARGET, "-shared", "-fno-exceptions", "-fno-rtti"),
            *("-I", sources / "include"),
            *(sources / "src" / name for name in _UNWINDER),
            # All of it: which part is needed, only the loader will know.
            *("-Wl,--no-gc-sections", "-Wl,--whole-archive", *archives),
            *("-o", library),
        ]
    )
    return library


def _zig(arguments: Sequence[str | Path], **variables: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "ziglang", *arguments],
        env={**os.environ, **_variables(), **variables},
        capture_output=True,
        text=True,
        timeout=3600,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stderr
