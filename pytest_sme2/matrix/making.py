"""Makes the answers: runs every cell's program once, counted, on the emulator with SME2.

Programs and runs are kept in the cache, so a matrix that was interrupted goes on where it was.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

from pytest_sme2.errors import Sme2Error
from pytest_sme2.matrix.programs import Programs
from pytest_sme2.profile.build import build_profile
from pytest_sme2.profile.cost import MismatchError, build_cost
from pytest_sme2.results import (
    Arm,
    Artifact,
    Cell,
    CellAnswer,
    Executor,
    InferenceCost,
    KernelMatrix,
    OperatorCost,
    Run,
    RunRequest,
)
from pytest_sme2.runners.base import Runner
from pytest_sme2.system.terminal import Say
from pytest_sme2.targets.emulated import EmulatedTarget
from pytest_sme2.targets.remembered import remembered_run
from pytest_sme2.trace.etdump import read_etdump
from pytest_sme2.trace.program import read_program
from pytest_sme2.verdict.numerics import compare_reference

# One operator takes seconds, also on a busy machine.
_RUN_SECONDS = 900.0
_SAY_EVERY = 20


def make_matrix(
    programs: Programs, target: EmulatedTarget, runner: Runner, cells: Sequence[Cell], say: Say
) -> KernelMatrix:
    """The answers to all of these cells."""
    programs.export(cells)
    answers = []
    for number, cell in enumerate(cells, start=1):
        answers.append(answer_cell(programs.artifact(cell), cell, target, runner))
        if number % _SAY_EVERY == 0:
            say(f"ran {number} of {len(cells)} programs")
    return KernelMatrix(
        executorch=runner.executorch,
        torch=programs.versions.get("torch", ""),
        torchao=programs.versions.get("torchao", ""),
        cpu=target.cpu.model(Arm.ON),
        answers=tuple(answers),
    )


def answer_cell(
    artifact: Artifact | str, cell: Cell, target: EmulatedTarget, runner: Runner
) -> CellAnswer:
    """One run; a program that cannot be exported or run is an answer as well."""
    if isinstance(artifact, str):
        return CellAnswer(cell, problem=artifact)
    request = RunRequest(
        artifact,
        Arm.ON,
        warmup=0,
        runs=1,
        traced=True,
        keep_outputs=True,
        counted=True,
        timeout_seconds=_RUN_SECONDS,
    )
    try:
        with tempfile.TemporaryDirectory(prefix="sme2-matrix-") as name:
            made, _ = remembered_run(target, runner, request, Path(name))
            if made.run.etdump is None or made.counted is None:
                return CellAnswer(cell, problem="the run left no trace")
            columns = read_etdump(made.run.etdump)
            shapes = read_program(artifact.pte)
            profile = build_profile(columns, census=made.census, shapes=shapes)
            cost = build_cost(
                made.counted,
                columns,
                profile,
                cpu=target.cpu.model(Arm.ON),
                toolchain=runner.toolchain,
            )
            return _answer(cell, cost, sqnr_db=_sqnr(made.run, artifact))
    except (Sme2Error, MismatchError) as error:
        return CellAnswer(cell, problem=str(error).strip().splitlines()[0])


def _answer(cell: Cell, cost: InferenceCost, *, sqnr_db: float | None) -> CellAnswer:
    matrix = [entry for entry in cost.operators if entry.matrix]
    if not matrix:
        return CellAnswer(cell, problem="the program ran no matrix operator")
    main = max(matrix, key=lambda entry: entry.counts.instructions)
    macs = sum(entry.macs or 0 for entry in matrix)
    return CellAnswer(
        cell,
        family=_family(main),
        kernel=_kernel(main),
        operators=tuple(entry.name for entry in matrix),
        macs=macs or None,
        instructions=cost.total.instructions,
        sqnr_db=None if sqnr_db is None else round(sqnr_db, 1),
    )


def _family(entry: OperatorCost) -> str:
    if entry.executor is Executor.PORTABLE:
        return "portable"
    return "sme2" if entry.sme2 else "neon"


def _kernel(entry: OperatorCost) -> str:
    """The one that multiplies: packing can take more instructions than the product itself."""
    products = [name for name, _ in entry.kernels if "_pack" not in name]
    return products[0] if products else ""


def _sqnr(run: Run, artifact: Artifact) -> float | None:
    found = compare_reference(artifact, run.outputs, Arm.ON)
    return found[0].sqnr_db if found else None
