"""Which cases a run has: the selected models times their variants times the thread counts; and
those of ``.pte`` files that were exported elsewhere: no model, no code, only the program.

Each method of a program is a case. One that cannot be used is a case with its reason, so that the
others run.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from pytest_sme2.errors import ExportError, ProgramError, UsageError
from pytest_sme2.export.registry import ModelEntry, Registry
from pytest_sme2.export.store import META_FILE, load_artifact
from pytest_sme2.export.variant import Variant, parse_variant
from pytest_sme2.results.run import AS_EXPORTED, FORWARD, Artifact, MethodOutline, TensorSpec
from pytest_sme2.session.settings import Settings
from pytest_sme2.system.files import PROGRAM_SUFFIX, file_sha256, is_program
from pytest_sme2.trace.program import read_outline
from pytest_sme2.verdict.contract import case_of

_BROKEN = "broken"
XNNPACK = "XnnpackBackend"


@dataclass(frozen=True)
class Case:
    """One model in one variant with one thread count: what a test is run for."""

    model: str
    variant: Variant | None
    threads: int = 1
    entry: ModelEntry | None = None
    problem: str | None = None
    """Why the model cannot be used; the other fields then only name it."""
    program: Artifact | None = field(default=None, hash=False)
    """A program that is run as it is, in place of one that is exported from a model."""
    method: str | None = None
    """Which of several methods of a program; None where ``forward`` is the only one."""
    unusable: Path | None = None
    """The file of a program that has a problem, so that one can be told how to look at it again."""
    label: str = ""
    """What tells several cases of one program apart."""

    @property
    def id(self) -> str:
        if self.problem is not None:
            return f"{self.model}-{_BROKEN}"
        label = self.label and f"-{self.label}"
        return f"{case_of(self.model, self.variant_name, self.threads)}{label}"

    @property
    def names(self) -> frozenset[str]:
        """By which it is chosen: its own, and that of its program, which means all methods."""
        return frozenset((self.model, self.model.removesuffix(f":{self.method}")))

    @property
    def variant_name(self) -> str:
        """The variant as results and baselines have it."""
        if self.program is not None:
            return self.program.variant
        if self.unusable is not None:
            return AS_EXPORTED
        return _BROKEN if self.variant is None else str(self.variant)


def check_names(registry: Registry, programs: Sequence[Case], settings: Settings) -> None:
    """Raises UsageError for a chosen name that neither a model nor a program has."""
    known = {name for case in programs for name in case.names}
    for name in settings.models:
        if not is_program(name) and name not in known:
            registry.get(name)


def select_cases(
    registry: Registry,
    programs: Sequence[Case],
    settings: Settings,
    *,
    emulated: bool,
    models: Iterable[str] | None = None,
    variants: Iterable[str] | None = None,
) -> list[Case]:
    """All cases of a run.

    ``models`` and ``variants`` narrow the selection further, as a test's marker does. A name that
    no model has is a usage error; a broken model folder is a case of its own. ``programs`` are
    the cases of files, which have no variants: a run that names variants leaves them out.
    """
    models = None if models is None else tuple(models)
    wanted = None if variants is None else {parse_variant(word) for word in variants}
    named = {name for case in programs for name in case.names}
    cases = []
    for name in _chosen_models(registry, settings, models, named):
        entry = registry.get(name)
        for variant in _chosen_variants(entry, settings, emulated):
            if wanted is not None and not wanted & {variant, Variant(variant.precision)}:
                continue
            cases += [Case(name, variant, threads, entry) for threads in settings.threads]
    if wanted is None and not settings.variants:
        asked = None if models is None else {*models}
        cases += [case for case in programs if asked is None or not case.names.isdisjoint(asked)]
    if not settings.models and models is None:
        cases += [
            Case(problem.name, None, problem=f"{problem}\n{problem.traceback}".rstrip())
            for problem in registry.problems
        ]
    return cases


def _chosen_models(
    registry: Registry, settings: Settings, models: Iterable[str] | None, programs: set[str]
) -> list[str]:
    """Those of the registry; ``programs`` are the names that are not its."""
    asked = [name for name in settings.models if not is_program(name) and name not in programs]
    selected = list(asked if settings.models else registry.names)
    if models is None:
        return selected
    named = [registry.get(name).name for name in models if name not in programs]
    return [name for name in named if not settings.models or name in selected]


def _chosen_variants(entry: ModelEntry, settings: Settings, emulated: bool) -> Iterable[Variant]:
    if not settings.variants:
        return entry.defaults(emulated=emulated)
    found = (entry.resolve(asked, emulated=emulated) for asked in settings.variants)
    return dict.fromkeys(itertools.chain.from_iterable(found))


def program_case(pte: Path, threads: int = 1, method: str | None = None) -> Case:
    """The case of one method of a ``.pte`` file: ``forward``, or the only one, unless named.

    Raises ProgramError if it cannot be used.
    """
    pte = pte.expanduser().absolute()
    if not pte.is_file():
        raise UsageError(f"There is no program {str(pte)!r}. Make one with `sme2 export`.")
    cases = {case.method or FORWARD: case for case in _cases_of(pte)}
    names, (first, *others) = ", ".join(cases), cases
    usual = FORWARD if FORWARD in cases else first
    if others and method is None and usual != FORWARD:
        raise UsageError(f"{pte}: it has several methods. Choose one with --method: {names}.")
    found = cases.get(method or usual, cases[first])
    if found.problem is not None:
        raise ProgramError(found.problem)
    if method not in (None, *cases):
        raise UsageError(f"{pte}: it has no method {method!r}. It has: {names}.")
    return replace(found, threads=threads)


def chosen_programs(settings: Settings) -> list[Case]:
    """The cases of files: those that are named, else all that the ini file names."""
    asked = settings.models
    named = program_cases(filter(is_program, asked), settings.threads)
    known = {case.id for case in named}
    return named + [
        case
        for case in program_cases(settings.programs, settings.threads)
        if case.id not in known and (not asked or not case.names.isdisjoint(asked))
    ]


def program_cases(patterns: Iterable[str], threads: Sequence[int]) -> list[Case]:
    """The cases of all methods of all files that match.

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
        for one in _cases_of(file):
            case = _named_apart(one, file, taken)
            each = [replace(case, threads=count) for count in threads]
            cases += [case] if case.problem is not None else each
    return cases


def _matching(pattern: str) -> list[Path]:
    path = Path(pattern).expanduser().absolute()
    # A file may have brackets in its name.
    if path.is_file():
        return [path]
    rest = path.relative_to(path.anchor)
    return sorted(file for file in Path(path.anchor).glob(str(rest)) if file.is_file())


def _cases_of(file: Path) -> list[Case]:
    """One for each method, those that cannot be used included."""
    try:
        recorded = _recorded(file)
        if recorded is not None:
            return [Case(recorded.model, None, program=recorded)]
        methods, sha256 = _methods(file), file_sha256(file)
    except (ProgramError, ExportError) as error:
        return [Case(file.stem, None, problem=str(error), unusable=file)]
    cases = []
    for name in methods:
        try:
            artifact = _artifact(file, methods[name], sha256, alone=len(methods) == 1)
            cases.append(Case(artifact.model, None, program=artifact, method=artifact.method))
        except ProgramError as error:
            only, title = None if [*methods] == [FORWARD] else name, _case_name(file, name)
            cases.append(Case(title, None, problem=str(error), method=only, unusable=file))
    return cases


def _case_name(file: Path, method: str) -> str:
    """``net``, and ``net:decode`` for a method that is not ``forward``."""
    return file.stem if method == FORWARD else f"{file.stem}:{method}"


def _named_apart(case: Case, file: Path, taken: set[str]) -> Case:
    """The case under a name that no other has: with its folder where two files are called alike."""
    for part in (None, *file.parent.parts[::-1]):
        name = case.model if part is None else f"{part}/{case.model}"
        program = case.program and replace(case.program, model=name)
        case = replace(case, model=name, program=program)
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


def _etrecord(pte: Path) -> Path | None:
    path = pte.with_name(f"{pte.name}.etrecord")
    return path if path.is_file() else None


def _artifact(pte: Path, method: MethodOutline, sha256: str, *, alone: bool) -> Artifact:
    foreign = [backend for backend in method.backends if backend != XNNPACK]
    if foreign:
        raise ProgramError(
            f"{pte}: it needs {', '.join(foreign)}, which the runner does not have. Export it for "
            "XNNPACK."
        )
    inputs, outputs = _tensors(method.inputs), _tensors(method.outputs)
    input_files = _beside(pte, method.name, "input", inputs)
    return Artifact(
        model=_case_name(pte, method.name),
        variant=AS_EXPORTED,
        folder=pte.parent,
        pte=pte,
        sha256=sha256,
        inputs=inputs,
        outputs=outputs,
        input_files=input_files,
        # What is expected is known only for inputs that are known.
        reference_files=_beside(pte, method.name, "reference", outputs) if input_files else (),
        etrecord=_etrecord(pte),
        weights="as exported",
        method=None if alone and method.name == FORWARD else method.name,
    )


def _methods(pte: Path) -> dict[str, MethodOutline]:
    """Those that compute something: a program may also tell constants, such as a largest size."""
    methods = {found.name: found for found in read_outline(pte)}
    running = {name: found for name, found in methods.items() if found.instructions}
    if not running:
        raise ProgramError(f"{pte}: it has no method that computes anything. Export it again.")
    return running


def _tensors(specs: Iterable[TensorSpec | None]) -> tuple[TensorSpec, ...]:
    """All of them, or none where one is not a tensor: then no file can stand for it."""
    known = tuple(specs)
    return tuple(spec for spec in known if spec is not None) if None not in known else ()


def _beside(pte: Path, method: str, what: str, specs: Sequence[TensorSpec]) -> tuple[Path, ...]:
    """The raw values beside the program, if there are any: ``NAME.input_0.bin``, or
    ``input_0.bin`` where the folder has no other program; ``NAME.METHOD.input_0.bin`` for a method
    that is not ``forward``.
    """
    names = [f"{pte.stem}.{what}" if method == FORWARD else f"{pte.stem}.{method}.{what}"]
    if method == FORWARD and sum(1 for _ in pte.parent.glob(f"*{PROGRAM_SUFFIX}")) == 1:
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
