"""A Mac without a Mac: its real binaries, loaded by ``macload`` on a CPU that QEMU emulates.

The runner is built for macOS and lies beside the libraries of ExecuTorch's macOS wheel. The loader
(the C files of this folder) does the work of dyld and answers for the system's C library, as an
M4 with macOS 26 would. What it cannot show: Apple's own dyld, its scheduler, its code signing.
"""

from __future__ import annotations

import functools
import hashlib
import os
import shlex
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from pytest_sme2.errors import Sme2Error
from pytest_sme2.runners import sme2
from pytest_sme2.runners.base import LOADER
from pytest_sme2.runners.sdk import executorch_sdk, sdk_version
from pytest_sme2.runners.sme2 import RUNNER_SOURCES, Sme2Runner
from pytest_sme2.system.cache import cache_folder, working_folder
from pytest_sme2.system.locks import locked
from pytest_sme2.system.platforms import LINUX_AARCH64, MACOS_ARM64
from pytest_sme2.system.provision import Compiler, find_compiler
from pytest_sme2.system.qemu import find_qemu
from tests.device.mac import zig
from tests.support import HANGS

HERE = Path(__file__).parent
M4 = HERE / "m4.txt"
_LOADER = ("macload.c", "image.c", "fixups.c", "system.c", "machine.c", "threads.c", "thunks.S")


@dataclass(frozen=True)
class Mac:
    """Programs for a Mac, and what starts them here."""

    folder: Path
    """The runner and its libraries, as the product lays them beside each other on a Mac."""
    build: Path
    """Where the runner was built."""
    libcxx: Path
    start: tuple[str, ...]
    """The words before a Mac's program."""

    def runner(
        self,
        folder: Path,
        *,
        answers: Path = M4,
        dyld: str = "obeys",
        efficiency_percent: int = 0,
    ) -> Sme2Runner:
        """The Mac's runner, to be started as any other; ``folder`` gets what starts it.

        ``dyld`` is what macload.c knows, ``efficiency_percent`` the time on slow cores.
        """
        folder.mkdir(parents=True, exist_ok=True)
        variables = {
            "MAC_LIBCXX": str(self.libcxx),
            "MAC_ANSWERS": str(answers),
            "MAC_DYLD": dyld,
            "MAC_EFFICIENCY": str(efficiency_percent),
            "MAC_LOADER": " ".join(self.start),
        }
        program = folder / sme2.PROGRAM
        exports = "".join(
            f"export {name}={shlex.quote(text)}\n" for name, text in variables.items()
        )
        command = shlex.join([*self.start, str(self.folder / sme2.PROGRAM)])
        program.write_text(f'#!/bin/sh\n{exports}exec {command} "$@"\n')
        program.chmod(0o755)
        return Sme2Runner("wheel", MACOS_ARM64, sdk_version(None), folder)


def other_answers(path: Path, changes: Mapping[str, str | None]) -> Path:
    """The M4's answers with other values; None takes one away."""
    lines = []
    for line in M4.read_text().splitlines():
        kind, name, value = line.split(maxsplit=2)
        changed = changes.get(name, value)
        if changed is not None:
            lines.append(f"{kind} {name} {changed}\n")
    path.write_text("".join(lines))
    return path


@functools.cache
def mac() -> Mac:
    """Everything that is needed, built once and kept in the cache."""
    if sys.platform == "darwin":
        pytest.skip("a Mac runs its programs itself")
    try:
        qemu = find_qemu()
        here = sme2.wheel_runner(LINUX_AARCH64)
        compiler = find_compiler(LINUX_AARCH64)
    except Sme2Error as error:
        pytest.skip(str(error))
    folder = cache_folder() / "test-tools" / f"mac-{_key(compiler)}"
    with locked(Path(f"{folder}.lock"), "building for a Mac"):
        if not folder.exists():
            with working_folder(folder) as temporary:
                _build(temporary / "mac", compiler)
                (temporary / "mac").rename(folder)
    libraries = str(here.folder)
    return Mac(
        folder / "runner",
        folder / "build",
        folder / "libcxx.dylib",
        (
            *(str(qemu.path), "-cpu", "max,sme512=on"),
            *(f"{libraries}/{LOADER}", "--library-path", libraries),
            str(folder / "macload"),
        ),
    )


def _key(compiler: Compiler) -> str:
    digest = hashlib.sha256()
    for part in (zig.zig_version(), sdk_version(None), compiler.cxx, compiler.version):
        digest.update(os.fsencode(part) + b"\0")
    names = {*_LOADER, "image.h", "fixups.h", "macload.h", "rig.py", "zig.py"}
    for path in sorted(HERE / name for name in names) + sorted(RUNNER_SOURCES.iterdir()):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:12]


def _build(folder: Path, compiler: Compiler) -> None:
    folder.mkdir()
    sdk = executorch_sdk(MACOS_ARM64)
    sme2._BUILD_SECONDS = HANGS
    build = zig.build_for_mac(sdk, folder, zig.build_libcxx(folder))
    sme2._assemble(build, sdk, folder / "runner", MACOS_ARM64, compiler)
    _compile_loader(folder, compiler)


def _compile_loader(folder: Path, compiler: Compiler) -> None:
    words: list[str | Path] = [compiler.cxx, "-O1", "-g", "-Wall", "-Wno-unused-parameter"]
    for name in _LOADER:
        words += ["-x", "c" if name.endswith(".c") else "assembler-with-cpp", HERE / name]
    # The stand-ins are looked up by name when a program is loaded.
    words += ["-x", "none", "-rdynamic", "-Wl,--as-needed", "-lm", "-ldl", "-lpthread"]
    subprocess.run([*words, "-o", folder / "macload"], check=True, timeout=HANGS)
