"""Builds the stock ``executor_runner`` in a user's ExecuTorch checkout, with SME2 on and off.

Plans are pure values. Checks change nothing. Only ``build`` starts the compiler, in a separate
folder. ``sme2.py`` builds the runner from the wheel.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from pytest_sme2.errors import BuildError, BusyError, ElfError
from pytest_sme2.results import Arm, KernelFamily
from pytest_sme2.runners.source_checks import tree_version
from pytest_sme2.runners.source_plan import (
    LOG,
    BuildStep,
    SourceBuild,
    Tools,
    build_environment,
    plan,
)
from pytest_sme2.system.elf import read_elf
from pytest_sme2.system.locks import locked
from pytest_sme2.system.processes import run_process
from pytest_sme2.trace.kernel_log import family_of, is_microkernel

TIMEOUT_SECONDS = 4 * 3600.0
RECORD = "sme2-build.json"


@dataclass(frozen=True)
class Built:
    """One finished runner."""

    arm: Arm
    binary: Path
    families: frozenset[KernelFamily] | None
    """The kernel families in the binary; None if it has no symbols."""


def build(
    request: SourceBuild,
    tools: Tools,
    *,
    progress: Callable[[str], None] = lambda line: None,
    timeout_seconds: float = TIMEOUT_SECONDS,
) -> tuple[Built, ...]:
    """Configure and compile each side; the log of each stays in its build folder."""
    built = []
    try:
        with locked(request.folder / ".lock", "building there", timeout_seconds=0):
            for step in plan(request, tools):
                built.append(_build_step(request, step, progress, timeout_seconds))
    except BusyError as error:
        raise BuildError(
            f"Another process is building in {request.folder}. Wait for it, or choose "
            "another place with --out DIR."
        ) from error
    return tuple(built)


def _build_step(
    request: SourceBuild,
    step: BuildStep,
    progress: Callable[[str], None],
    timeout_seconds: float,
) -> Built:
    step.folder.mkdir(parents=True, exist_ok=True)
    log = step.folder / LOG
    with log.open("wb") as file:
        for what, command in (("configuring", step.configure), ("compiling", step.build)):
            progress(f"{what} {step.binary} (log: {log})")
            finished = run_process(
                command,
                timeout_seconds=timeout_seconds,
                environment=build_environment(),
                stdout=file,
            )
            file.write(finished.stderr.encode())
            file.flush()
            if finished.timed_out:
                raise BuildError(
                    f"{what} the SME2 {step.arm} runner took more than {timeout_seconds:.0f} s and "
                    f"was stopped. See {log}."
                )
            if finished.returncode != 0:
                raise BuildError(
                    f"{what} the SME2 {step.arm} runner failed with exit code "
                    f"{finished.returncode}: {_first_error(log)} See {log}."
                )
    if not step.binary.is_file():
        raise BuildError(
            f"the build succeeded but made no {step.binary}. Is {request.tree} ExecuTorch 1.4 or "
            "newer?"
        )
    families = families_in(step.binary)
    _check_switch(step, families)
    record = {
        "tree": str(request.tree),
        "executorch": tree_version(request.tree),
        "platform": request.platform,
        "variant": request.variant,
        "sme2": str(step.arm),
        "configure": list(step.configure),
    }
    (step.folder / RECORD).write_text(json.dumps(record, indent=2) + "\n")
    return Built(step.arm, step.binary, families)


def _first_error(log: Path) -> str:
    """The most useful line of a build log."""
    lines = log.read_text(errors="replace").splitlines()
    for pattern in (r"^CMake Error", r"\berror:", r"^FAILED:"):
        for index, line in enumerate(lines):
            if re.search(pattern, line):
                # CMake prints the place on the first line and the problem on the second.
                shown = lines[index : index + 2] if line.startswith("CMake Error") else [line]
                return " ".join(part.strip() for part in shown).strip()[:300] + "."
    return f"{lines[-1].strip()[:300]}." if lines else "it printed nothing."


def families_in(binary: Path) -> frozenset[KernelFamily] | None:
    """The kernel families in a binary; None if it is stripped or has another format."""
    try:
        symbols = read_elf(binary).symbols
    except ElfError:
        return None
    kernels = {symbol.name for symbol in symbols if is_microkernel(symbol.name)}
    return frozenset(family_of(name) for name in kernels) if kernels else None


def _check_switch(step: BuildStep, families: frozenset[KernelFamily] | None) -> None:
    if families is None:
        return
    if step.arm is Arm.ON and KernelFamily.SME2 not in families:
        raise BuildError(
            f"{step.binary} was built with SME2 on but has no SME2 kernel: the compiler or XNNPACK "
            f"is too old. See {step.folder / LOG}."
        )
    wrong = families & {KernelFamily.SME, KernelFamily.SME2}
    if step.arm is Arm.OFF and wrong:
        raise BuildError(
            f"{step.binary} was built with SME2 off but has "
            f"{' and '.join(sorted(family.value.upper() for family in wrong))} kernels: this "
            "ExecuTorch does not know XNNPACK_ENABLE_ARM_SME and XNNPACK_ENABLE_ARM_SME2."
        )
