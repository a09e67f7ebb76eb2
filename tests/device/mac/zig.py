"""Builds for a Mac with zig, a clang that has the Mac's headers and a linker of its own.

zig would compile all of its C++ library for the first program, which takes a minute or two. A Mac
brings that library itself, and so does ``build_libcxx``: the part that a runner needs.
"""

from __future__ import annotations

import importlib.metadata
import os
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from pytest_sme2.runners.sme2 import build_runner
from pytest_sme2.system.cache import cache_folder
from pytest_sme2.system.provision import Compiler
from tests.support import HANGS

OLDEST = "aarch64-macos.14.0"
# Quick to compile: what takes time in a run is in the wheel's libraries.
_TARGET = ("-target", OLDEST, "-O0", "-g0", "-fno-sanitize=undefined")
# What the runner and the wheel's libraries look for in the system's C++ library.
_LIBCXX = (
    *("algorithm", "call_once", "chrono", "condition_variable", "condition_variable_destructor"),
    *("error_category", "exception", "fstream", "functional", "future", "hash", "ios"),
    *("ios.instantiations", "locale", "memory", "mutex", "mutex_destructor", "new"),
    *("new_handler", "new_helpers", "optional", "random", "stdexcept", "string"),
    *("system_error", "thread", "typeinfo", "variant", "verbose_abort"),
)
# They declare anew what headers declare otherwise.
_ALONE = ("condition_variable_destructor", "error_category", "memory", "mutex_destructor")
_BUILDING = (
    *("-D_LIBCPP_BUILDING_LIBRARY", "-D_LIBCXXABI_BUILDING_LIBRARY", "-DLIBCXX_BUILDING_LIBCXXABI"),
    *("-D_LIBCPP_HAS_NO_PRAGMA_SYSTEM_HEADER", "-DNDEBUG", "-faligned-allocation", "-std=c++23"),
    "-w",
)
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


def build_for_mac(sdk: Path, folder: Path, libcxx: Path) -> Path:
    """The runner, built by the product's own code; zig stands in for a Mac's compilers."""
    programs = {}
    for name, target in {"cc": True, "c++": True, "ar": False}.items():
        words = " ".join((name, *_TARGET)) if target else name
        exports = " ".join(f"{key}='{value}'" for key, value in _variables().items())
        program = folder / f"zig-{name}"
        # With its headers, and without its library.
        linking = 'case " $* " in *" -c "*) ;; *) set -- "$@" -nostdlib++ ;; esac\n' * target
        program.write_text(
            f"#!/bin/sh\nexport {exports}\n{linking}"
            f'exec "{sys.executable}" -m ziglang {words} "$@"\n'
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
            "CMAKE_EXE_LINKER_FLAGS": str(libcxx),
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

    zigs = Path(ziglang.__file__).parent / "lib"
    library = folder / "libcxx.dylib"
    sources = [path for path in sorted((zigs / "libcxx/src").iterdir()) if path.stem in _LIBCXX]
    # Those left out are for other systems.
    others = ("cxa_noexception", "stdlib_new_delete")
    abi = sorted((zigs / "libcxxabi/src").glob("*.cpp"))
    abi = [path for path in abi if path.stem not in others]
    # Most of the time goes into headers: what can is compiled as one.
    units = {path.stem: [path] for path in sources if path.stem in _ALONE}
    units |= {"abi": abi, "all": [path for path in sources if path.stem not in _ALONE]}
    include = [
        f"-I{zigs / name}"
        for name in ("libcxx/src", "libcxx/libc", "libcxxabi/src", "libunwind/include")
    ]

    def compiled(name: str, unit: Sequence[Path]) -> Path:
        source = folder / f"{name}.cpp"
        source.write_text("".join(f'#include "{path}"\n' for path in unit), "utf-8")
        made = source.with_suffix(".o")
        _zig(["c++", *_TARGET, *_BUILDING, *include, "-c", source, "-o", made])
        return made

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        made = list(pool.map(compiled, units, units.values()))
    unwinder = zigs / "libunwind"
    _zig(
        [
            *("c++", *_TARGET, "-shared", "-nostdlib++", "-fno-exceptions", "-fno-rtti"),
            *("-I", unwinder / "include"),
            *(unwinder / "src" / name for name in _UNWINDER),
            # All of it: which part is needed, only the loader will know.
            *("-Wl,--no-gc-sections", "-Wl,-install_name,/usr/lib/libc++.1.dylib"),
            *made,
            *("-o", library),
        ]
    )
    return library


def _zig(arguments: Sequence[str | Path]) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "ziglang", *arguments],
        env={**os.environ, **_variables()},
        capture_output=True,
        text=True,
        timeout=HANGS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
