"""The program that counts executed blocks as the emulator logs them: built once, run beside it."""

from __future__ import annotations

import hashlib
import os
import re
from pathlib import Path
from typing import NoReturn

from pytest_sme2.errors import BuildError, RunError
from pytest_sme2.system.cache import cache_folder, working_folder
from pytest_sme2.system.files import unwritable
from pytest_sme2.system.locks import locked
from pytest_sme2.system.platforms import host_platform
from pytest_sme2.system.processes import run_process
from pytest_sme2.system.toolchain import find_compiler

SOURCE = Path(__file__).parent.parent / "trace" / "block_counter.c"

_BUILD_SECONDS = 300.0
# Blocks as they are translated, system calls, and what hardly ever happens: the sum of their bits
# is a number that stands nowhere else in QEMU's memory. The bits are those of QEMU's qemu/log.h.
_ITEMS = "in_asm,strace,unimp,mmu,pcall,fpu"
_LEVEL = 1 << 1 | 1 << 19 | 1 << 10 | 1 << 12 | 1 << 6 | 1 << 17
# exec and nochain: every block that runs, and no jump from one to the next without a line.
_EVERY_BLOCK = 1 << 5 | 1 << 13
# The counter's exit code.
_UNWRITABLE = 120


def block_counter(cache: Path | None = None) -> Path:
    """The counter for this machine: from the cache, else compiled now, by one process."""
    compiler = find_compiler(host_platform())
    digest = hashlib.sha256(SOURCE.read_bytes())
    digest.update(os.fsencode(f"{compiler.cxx}\0{compiler.version}\0{host_platform()}"))
    folder = (cache or cache_folder()) / "tools" / f"block_counter-{digest.hexdigest()[:12]}"
    program = folder / "block_counter"
    if program.exists():
        return program
    with locked(folder.with_name(f"{folder.name}.lock"), "compiling the counter of instructions"):
        if not program.exists():
            with working_folder(folder) as temporary:
                # A C++ compiler is what building the runner asks for; it knows C as well.
                command = [compiler.cxx, "-x", "c", "-O2", str(SOURCE), "-o"]
                finished = run_process(
                    [*command, str(temporary / program.name)], timeout_seconds=_BUILD_SECONDS
                )
                if finished.returncode != 0:
                    raise BuildError(
                        "The program that counts instructions could not be compiled with "
                        f"{compiler.cxx}: {finished.stderr.strip()[-500:]}"
                    )
                temporary.rename(folder)
    return program


def counter_command(program: Path, counts: Path, rest: Path, *, late: bool) -> tuple[str, ...]:
    """What stands before QEMU's own command, to count what it logs.

    ``late``: the blocks that run are logged from the inference on, which takes a third of the time.
    """
    level = _LEVEL if late else _LEVEL | _EVERY_BLOCK
    return (str(program), str(counts), str(rest), hex(level), hex(_EVERY_BLOCK if late else 0))


def log_options(*, late: bool) -> tuple[str, ...]:
    """QEMU's options for the log that the counter reads."""
    items = _ITEMS if late else f"{_ITEMS},exec,nochain"
    return ("-d", items, "-D", "/proc/self/fd/3")


def raise_failure(failure: RunError, log: Path, counts: Path) -> NoReturn:
    """Raise why the run failed: an emulator whose counter failed says less than the counter."""
    found = re.findall(rb"^block_counter: (.*)$", log.read_bytes(), re.MULTILINE)
    if not found:
        raise failure
    problem = found[-1].decode(errors="replace")
    if f"exit code {_UNWRITABLE}" in str(failure):
        raise unwritable(counts, OSError(0, problem)) from failure
    raise RunError(f"The program that counts instructions failed: {problem}.") from failure
