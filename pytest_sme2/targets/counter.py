"""The program that counts executed blocks as the emulator logs them: built once, run beside it."""

from __future__ import annotations

import contextlib
import hashlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

from pytest_sme2.errors import BuildError, RunError
from pytest_sme2.system.cache import cache_folder, working_folder
from pytest_sme2.system.files import unwritable
from pytest_sme2.system.locks import locked
from pytest_sme2.system.platforms import host_platform
from pytest_sme2.system.processes import run_process, whitelisted_environment
from pytest_sme2.system.toolchain import find_compiler

SOURCE = Path(__file__).parent.parent / "trace" / "block_counter.c"

_BUILD_SECONDS = 300.0
_END_SECONDS = 600.0


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


@contextlib.contextmanager
def counting(program: Path, counts: Path, rest: Path) -> Iterator[Path]:
    """A pipe for the emulator's log, which is counted as it comes; whole once this ends.

    Raises StorageError where the counter could not write what it counted.
    """
    reading, writing = os.pipe()
    try:
        counter = subprocess.Popen(
            [program, counts, rest],
            stdin=reading,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            env=whitelisted_environment(),
            start_new_session=True,
        )
    except BaseException:
        os.close(writing)
        raise
    finally:
        os.close(reading)
    failure: RunError | None = None
    try:
        # A path, since the emulator opens its log by name; no file, so that none can be left over.
        yield Path(f"/proc/{os.getpid()}/fd/{writing}")
    except RunError as error:
        failure = error
    except BaseException:
        counter.kill()
        raise
    finally:
        # Held open until the emulator has ended, however it does, so that the end is seen then.
        os.close(writing)
        try:
            said = counter.communicate(timeout=_END_SECONDS)[1].decode(errors="replace")
        finally:
            counter.kill()
    # An emulator whose log nobody reads ends with SIGPIPE: then the counter is the reason.
    if counter.returncode != 0:
        problem = said.strip().removeprefix("block_counter: ") or f"exit {counter.returncode}"
        if counter.returncode == 1:
            raise unwritable(counts, OSError(0, problem)) from failure
        raise RunError(f"The program that counts instructions failed: {problem}.") from failure
    if failure is not None:
        raise failure
