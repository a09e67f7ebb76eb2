"""Makes the answers: runs every sheet's program on the emulator, with SME2 and with SME1 alone.

Programs and runs are kept in the cache, so a matrix that was interrupted goes on where it was.
"""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from pytest_sme2.errors import Sme2Error
from pytest_sme2.profile.build import build_profiles
from pytest_sme2.profile.cost import MismatchError, build_cost, executed_families
from pytest_sme2.profile.cost import multiply_accumulates as macs_of
from pytest_sme2.results.evidence import Cell, CellAnswer, KernelMatrix, OperatorCost
from pytest_sme2.results.profile import Executor
from pytest_sme2.results.run import Arm, Artifact, MethodShapes, Run, RunRequest
from pytest_sme2.runners.base import Runner
from pytest_sme2.system.terminal import Say
from pytest_sme2.system.wording import count
from pytest_sme2.targets.emulated import EmulatedTarget, Traced, remembered_run
from pytest_sme2.trace.etdump import read_etdump
from pytest_sme2.trace.program import read_program
from pytest_sme2.verdict.numerics import compare_reference
from tools.matrix.cells import HEADS, KEYS, Sheet, multiply_accumulates, sheets, sizes
from tools.matrix.programs import Programs, SheetProgram

# One sheet takes seconds, also on a busy machine.
_RUN_SECONDS = 900.0
_SAY_EVERY = 3
# The most used first, so that a stopped run has them for every operator.
_ORDER = ("fp32", "fp16", "int8 per channel", "dynamic int8", "int4 per channel", "int4 per group")

_Answers = dict[Cell, CellAnswer]


def empty_matrix(programs: Programs, target: EmulatedTarget, runner: Runner) -> KernelMatrix:
    """The matrix that these will make, before its first answer."""
    return KernelMatrix(
        executorch=runner.executorch,
        torch=programs.versions.get("torch", ""),
        torchao=programs.versions.get("torchao", ""),
        cpu=target.cpu.model(Arm.ON),
        answers=(),
    )


def make_matrix(
    programs: Programs,
    target: EmulatedTarget,
    runner: Runner,
    cells: Sequence[Cell],
    say: Say,
    known: Mapping[Cell, CellAnswer],
    keep: Callable[[Iterable[CellAnswer]], None],
) -> None:
    """``keep`` gets the answers to all of these cells that are there after each sheet. What is
    ``known`` is not asked again.
    """
    found: _Answers = {cell: known[cell] for cell in cells if cell in known}

    def answer(wanted: Sequence[Sheet], arm: Arm) -> list[Sheet]:
        """The sheets that must be taken apart."""
        apart = []
        for number, sheet in enumerate(wanted, start=1):
            answers = answer_sheet(programs.program(sheet), sheet, target, runner, arm)
            if answers is None:
                apart.append(sheet)
            else:
                for cell, new in answers.items():
                    found[cell] = new if arm is Arm.ON else joined(found[cell], new, arm)
                keep(found.values())
            if number % _SAY_EVERY == 0:
                say(f"made and ran {number} of {count(len(wanted), 'program')}")
        return apart

    try:
        for arm in (Arm.ON, Arm.SME1, Arm.OFF):
            wanted = [cell for cell in cells if _is_open(found.get(cell), arm)]
            apart = answer(sorted(sheets(wanted), key=_turn), arm)
            if apart:
                say(f"taking {count(len(apart), 'program')} apart: {', '.join(map(str, apart))}")
                answer(list(itertools.chain.from_iterable(each.alone() for each in apart)), arm)
    finally:
        programs.close()


def _is_open(answer: CellAnswer | None, arm: Arm) -> bool:
    if arm is Arm.ON or answer is None:
        return answer is None
    return bool(answer.family) and not (answer.sme1 if arm is Arm.SME1 else answer.off)


def joined(on: CellAnswer, new: CellAnswer, arm: Arm) -> CellAnswer:
    """The answer with what ran where SME2, or all of SME, was hidden."""
    if arm is Arm.OFF:
        return replace(on, off=new.operators, off_kernel=new.kernel)
    return replace(on, sme1=new.family, sme1_kernel=new.kernel, sme1_instructions=new.instructions)


def _turn(sheet: Sheet) -> int:
    data_type = sheet.cells[0].data_type
    return _ORDER.index(data_type) if data_type in _ORDER else len(_ORDER)


def answer_sheet(
    program: SheetProgram,
    sheet: Sheet,
    target: EmulatedTarget,
    runner: Runner,
    arm: Arm = Arm.ON,
) -> _Answers | None:
    """The answers to all cells of a sheet; None where they can only be had one by one.

    A program that cannot be exported or run is an answer as well, for a cell alone.
    """
    single = len(sheet.cells) == 1
    answers = {cell: CellAnswer(cell, problem=text) for cell, text in program.problems.items()}
    if program.artifact is None:
        # The whole sheet failed, or each of its cells did, on its own.
        return answers if single or len(set(program.problems.values())) > 1 else None
    try:
        found = _run_sheet(program.artifact, program.cells, target, runner, arm)
    except (Sme2Error, MismatchError) as error:
        problem = str(error).strip().splitlines()[0]
        return {cell: CellAnswer(cell, problem=problem) for cell in sheet.cells} if single else None
    return None if found is None and not single else {**answers, **(found or {})}


def _run_sheet(
    artifact: Artifact, cells: Sequence[Cell], target: EmulatedTarget, runner: Runner, arm: Arm
) -> _Answers | None:
    shapes = read_program(artifact.pte)
    # The portable kernels take hundreds of instructions for a product: counting them takes minutes,
    # and says nothing about SME2.
    counted = any(_delegated(method) for method in shapes)
    request = RunRequest(
        artifact, arm, warmup=0, runs=1, traced=True, keep_outputs=True, counted=counted,
        timeout_seconds=_RUN_SECONDS,
    )  # fmt: skip
    with tempfile.TemporaryDirectory(prefix="sme2-matrix-") as name:
        made = remembered_run(target, runner, request, Path(name))
        operators = _products(made, shapes, target, runner)
        if not operators:
            return {
                cell: CellAnswer(cell, problem="the program ran no matrix operator")
                for cell in cells
            }
        shared = share_out([entry.macs if counted else None for entry in operators], cells)
        if shared is None:
            return None
        sqnr = _sqnr(made.run, artifact, len(cells))
        return {
            cell: _answer(cell, [operators[index] for index in shared[cell]], sqnr_db=sqnr[place])
            for place, cell in enumerate(cells)
        }


def _delegated(method: MethodShapes) -> bool:
    """Whether XNNPACK runs one of its matrix operators."""
    calls = itertools.chain.from_iterable(method.calls.values())
    return any("::" not in entry.operation for entry in calls)


@dataclass(frozen=True)
class _Product:
    name: str
    macs: int | None
    cost: OperatorCost | None
    """None where not counted."""


def _products(
    made: Traced, shapes: Sequence[MethodShapes], target: EmulatedTarget, runner: Runner
) -> list[_Product]:
    """In the order in which they ran."""
    if made.run.etdump is None:
        raise MismatchError("the run left no trace")
    columns = read_etdump(made.run.etdump)
    executed = None if made.counted is None else executed_families(made.counted, columns)
    profile = build_profiles(columns, census=made.census, shapes=shapes, executed=executed)[0]
    costs: Sequence[OperatorCost | None] = [None] * len(profile.operators)
    if made.counted is not None:
        cpu = target.cpu.model(Arm.ON)
        built = build_cost(made.counted, columns, profile, cpu=cpu, toolchain=runner.toolchain)
        costs = built.operators
    return [
        _Product(entry.operator.name, macs_of(entry.shapes), cost)
        for entry, cost in zip(profile.operators, costs, strict=True)
        # With one input channel a convolution is depthwise as well.
        if entry.operator.matrix or entry.operator.kind == "depthwise"
    ]


def share_out(
    macs: Sequence[int | None], cells: Sequence[Cell]
) -> Mapping[Cell, tuple[int, ...]] | None:
    """Which operators, by place, belong to which cell; None where that cannot be told.

    ``macs`` are the multiply-accumulates of each operator. All cells of a sheet have the same
    number of operators. Where all products are known they tell a cell from the others; where none
    is, the order of the layers does.
    """
    each, rest = divmod(len(macs), len(cells))
    if rest or not each:
        return None
    places = [tuple(range(start, start + each)) for start in range(0, len(macs), each)]
    if len(cells) == 1 or all(known is None for known in macs):
        return dict(zip(cells, places, strict=True))
    known = [number for number in macs if number is not None]
    if len(known) != len(macs):
        return None
    return _layer_by_layer(known, cells, places) or _step_by_step(known, cells)


def _layer_by_layer(
    macs: Sequence[int], cells: Sequence[Cell], places: Sequence[tuple[int, ...]]
) -> Mapping[Cell, tuple[int, ...]] | None:
    """The operators of a layer follow each other."""
    by_macs = {sum(macs[index] for index in place): place for place in places}
    wanted = {cell: multiply_accumulates(cell) for cell in cells}
    if len(by_macs) != len(cells) or set(wanted.values()) != set(by_macs):
        return None
    return {cell: by_macs[number] for cell, number in wanted.items()}


def _step_by_step(
    macs: Sequence[int], cells: Sequence[Cell]
) -> Mapping[Cell, tuple[int, ...]] | None:
    """The first operators of all layers come first, as where each is a delegate call of its own.

    Layers of the same number of products have the same shapes in this step, and keep their order.
    """
    found: dict[Cell, list[int]] = {cell: [] for cell in cells}
    for step in range(len(macs) // len(cells)):
        left = list(range(step * len(cells), (step + 1) * len(cells)))
        for cell in cells:
            wanted = steps(cell)
            fits = (at for at in left if step < len(wanted) and macs[at] == wanted[step])
            place = next(fits, None)
            if place is None:
                return None
            left.remove(place)
            found[cell].append(place)
    return {cell: tuple(places) for cell, places in found.items()}


def steps(cell: Cell) -> tuple[int, ...]:
    """The multiply-accumulates of each operator of a layer, in the order in which they run."""
    if cell.operator != "attention":
        return (multiply_accumulates(cell),)
    size = sizes(cell)
    return HEADS * cell.rows * KEYS * size.inputs, HEADS * cell.rows * KEYS * size.outputs


def _answer(cell: Cell, products: Sequence[_Product], *, sqnr_db: float | None) -> CellAnswer:
    names = tuple(entry.name for entry in products)
    rounded = None if sqnr_db is None else round(sqnr_db, 1)
    costs = [entry.cost for entry in products if entry.cost is not None]
    if not costs:
        return CellAnswer(cell, family="portable", operators=names, sqnr_db=rounded)
    main = max(costs, key=lambda entry: entry.counts.instructions)
    return CellAnswer(
        cell,
        family=_family(main),
        kernel=_kernel(main),
        operators=names,
        macs=sum(entry.macs or 0 for entry in products) or None,
        instructions=sum(entry.counts.instructions for entry in costs),
        sqnr_db=rounded,
    )


def _family(entry: OperatorCost) -> str:
    if entry.executor is Executor.PORTABLE:
        return "portable"
    if not entry.sme2:
        return "neon"
    return "sme1" if entry.sme1 else "sme2"


def _kernel(entry: OperatorCost) -> str:
    """The one that multiplies: packing can take more instructions than the product itself."""
    names = [name for name, _ in entry.kernels]
    products = [name for name in names if "_matmul_" in name or "gemm" in name]
    others = [name for name in names if "_pack" not in name]
    return next(iter(products or others), "")


def _sqnr(run: Run, artifact: Artifact, outputs: int) -> Sequence[float | None]:
    found = compare_reference(artifact, run.outputs, Arm.ON)
    return [entry.sqnr_db for entry in found] if found else [None] * outputs


def merged(old: KernelMatrix, new: KernelMatrix, cells: Sequence[Cell]) -> KernelMatrix:
    """The answers of both, those of ``new`` first, in the order of ``cells``.

    Nothing is taken from another version or another CPU.
    """
    same = replace(old, answers=(), missing=()) == replace(new, answers=(), missing=())
    found = {**(old.by_cell if same else {}), **new.by_cell}
    return replace(
        new,
        answers=tuple(found[cell] for cell in cells if cell in found),
        missing=tuple(cell for cell in cells if cell not in found),
    )
