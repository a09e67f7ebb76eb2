"""Cases of ``.pte`` files that were exported elsewhere: no model, no code, only the program.

One that cannot be used is a case with its reason, so that the others run.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from pytest_sme2.errors import ExportError, ProgramError, UsageError
from pytest_sme2.export.store import META_FILE, load_artifact
from pytest_sme2.results import AS_EXPORTED, Artifact, MethodOutline, TensorSpec
from pytest_sme2.session.cases import Case
from pytest_sme2.session.settings import Settings
from pytest_sme2.system.files import PROGRAM_SUFFIX, file_sha256, is_program
from pytest_sme2.trace.program import read_outline

METHOD = "forward"
XNNPACK = "XnnpackBackend"


def program_case(pte: Path, threads: int = 1) -> Case:
    """The case of a ``.pte`` file. Raises ProgramError if it cannot be used."""
    pte = pte.expanduser().absolute()
    if not pte.is_file():
        raise UsageError(f"There is no program {str(pte)!r}. Make one with `sme2 export`.")
    artifact = _recorded(pte) or _artifact(pte)
    return Case(artifact.model, None, threads, program=artifact)


def chosen_programs(settings: Settings) -> list[Case]:
    """The cases of files: those that are named, else all that the ini file names."""
    asked = settings.models
    named = program_cases(filter(is_program, asked), settings.threads)
    known = {case.id for case in named}
    return named + [
        case
        for case in program_cases(settings.programs, settings.threads)
        if case.id not in known and (not asked or case.model in asked)
    ]


def program_cases(patterns: Iterable[str], threads: Sequence[int]) -> list[Case]:
    """The cases of all files that match; a file that cannot be used is a case with its reason.

    Raises UsageError for a pattern that matches nothing.
    """
    files: dict[Path, None] = {}
    for pattern in patterns:
        found = _matching(pattern)
        if not found:
            raise UsageError(
                f"There is no program {pattern!r}. Give a {PROGRAM_SUFFIX} file or a pattern."
            )
        files.update(dict.fromkeys(found))
    cases: list[Case] = []
    taken: set[str] = set()
    for file in files:
        case = _named_apart(_case_or_problem(file), file, taken)
        if case.problem is not None:
            cases.append(case)
            continue
        sweep = len(threads) > 1
        cases += [dataclasses.replace(case, threads=count, sweep=sweep) for count in threads]
    return cases


def _matching(pattern: str) -> list[Path]:
    path = Path(pattern).expanduser().absolute()
    # A file may have brackets in its name.
    if path.is_file():
        return [path]
    rest = path.relative_to(path.anchor)
    return sorted(file for file in Path(path.anchor).glob(str(rest)) if file.is_file())


def _case_or_problem(file: Path) -> Case:
    try:
        return program_case(file)
    except (ProgramError, ExportError) as error:
        return Case(file.stem, None, problem=str(error))


def _named_apart(case: Case, file: Path, taken: set[str]) -> Case:
    """The case under a name that no other has: with its folder where two files are called alike."""
    for part in (None, *file.parent.parts[::-1]):
        name = case.model if part is None else f"{part}/{case.model}"
        program = case.program and dataclasses.replace(case.program, model=name)
        case = dataclasses.replace(case, model=name, program=program)
        if case.id not in taken:
            break
    taken.add(case.id)
    return case


def _recorded(pte: Path) -> Artifact | None:
    """The program as ``sme2 export`` wrote it, where its record is beside it."""
    if not (pte.parent / META_FILE).is_file():
        return None
    recorded = load_artifact(pte.parent)
    return recorded if recorded.pte.absolute() == pte else None


def _artifact(pte: Path) -> Artifact:
    method = _method(pte)
    inputs, outputs = _tensors(method.inputs), _tensors(method.outputs)
    etrecord = pte.with_name(f"{pte.name}.etrecord")
    input_files = _beside(pte, "input", inputs)
    return Artifact(
        model=pte.stem,
        variant=AS_EXPORTED,
        folder=pte.parent,
        pte=pte,
        sha256=file_sha256(pte),
        inputs=inputs,
        outputs=outputs,
        input_files=input_files,
        # What is expected is known only for inputs that are known.
        reference_files=_beside(pte, "reference", outputs) if input_files else (),
        etrecord=etrecord if etrecord.is_file() else None,
        weights="as exported",
    )


def _method(pte: Path) -> MethodOutline:
    methods = {method.name: method for method in read_outline(pte)}
    method = methods.get(METHOD)
    if method is None:
        names = ", ".join(methods) or "none"
        raise ProgramError(
            f"{pte}: it has no method {METHOD!r}; it has: {names}. Only that method is run."
        )
    foreign = [backend for backend in method.backends if backend != XNNPACK]
    if foreign:
        raise ProgramError(
            f"{pte}: it needs {', '.join(foreign)}, which the runner does not have. Export it for "
            "XNNPACK."
        )
    return method


def _tensors(specs: Iterable[TensorSpec | None]) -> tuple[TensorSpec, ...]:
    """All of them, or none where one is not a tensor: then no file can stand for it."""
    known = tuple(specs)
    return tuple(spec for spec in known if spec is not None) if None not in known else ()


def _beside(pte: Path, what: str, specs: Sequence[TensorSpec]) -> tuple[Path, ...]:
    """The raw values beside the program, if there are any: ``NAME.input_0.bin``, or
    ``input_0.bin`` where the folder has no other program.
    """
    names = [f"{pte.stem}.{what}"]
    if sum(1 for _ in pte.parent.glob(f"*{PROGRAM_SUFFIX}")) == 1:
        names.append(what)
    for name in names:
        files = [pte.with_name(f"{name}_{index}.bin") for index in range(len(specs))]
        there = [file for file in files if file.is_file()]
        if not there:
            continue
        for file, spec in zip(files, specs, strict=True):
            needed = math.prod(spec.shape) * np.dtype(spec.dtype).itemsize
            size = file.stat().st_size if file in there else None
            if size != needed:
                has = "is missing" if size is None else f"has {size} bytes"
                raise ProgramError(f"{pte}: {file.name} {has}. It must have {needed} bytes.")
        return tuple(files)
    return ()
