"""The baseline as JSON: schema, parsing and rendering. Nothing touches a disk here."""

from __future__ import annotations

import dataclasses
import functools
import json
import math
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from pytest_sme2.errors import BaselineError
from pytest_sme2.profile.operators import sort_structure
from pytest_sme2.results import (
    Agreement,
    Arm,
    Baseline,
    BaselineFigures,
    BaselineSession,
    Category,
    Counts,
    Estimate,
    Executor,
    Fingerprint,
    Kernel,
    KernelCensus,
    KernelFamily,
    Limits,
    OperatorCount,
    Sample,
    Spread,
    StoredCost,
    StoredFrontier,
    StoredGeneration,
    StoredOperator,
    Structure,
    Tolerance,
)
from pytest_sme2.system.files import cattrs_library, has_few_parts
from pytest_sme2.system.files import converter as plain_converter
from pytest_sme2.system.reading import json_value
from pytest_sme2.system.wording import count

# A change of the file's meaning raises the number, and needs what turns the version before into it.
# 2: latencies by process. 3: what must be compared, and the conditions it was accepted with.
SCHEMA = 3
_OLDEST = 2

_LONGEST_LINE = 400
_CONFLICT = re.compile(r"^(<<<<<<< |=======$|>>>>>>> )", re.MULTILINE)

REMEDY = (
    "Restore it from version control, or remove it and run with --update-baselines. "
    "It was not changed."
)


def _damaged(path: Path, problem: str) -> BaselineError:
    return BaselineError(f"{path}: the baseline cannot be read: {problem}. {REMEDY}")


def parse(text: str, path: Path) -> Baseline:
    """The baseline that a file's text holds."""
    if _CONFLICT.search(text):
        raise BaselineError(
            f"{path}: holds the conflict markers of a merge: both branches updated this baseline. "
            f"Keep one side (git checkout --ours or --theirs -- {path}), then run with "
            "--update-baselines on the merged code."
        )
    document = json_value(
        text, f"{path}: the baseline", remedy=REMEDY, error=BaselineError, finite=True
    )
    if not isinstance(document, dict):
        raise _damaged(path, "it is not a JSON object")
    version = document.get("schema")
    if isinstance(version, int) and version > SCHEMA:
        raise BaselineError(
            f"{path}: was written with schema {version}; this pytest-sme2 knows up to {SCHEMA}. "
            "Update pytest-sme2. The baseline was not changed."
        )
    if version not in range(_OLDEST, SCHEMA + 1):
        raise _damaged(path, f"its schema is {version!r}, not {SCHEMA}")
    try:
        return _from_file(_structured(document))
    except ValueError as error:
        raise _damaged(path, str(error)) from error


@dataclass(frozen=True)
class _Operator:
    category: Category
    count: int
    kind: str
    matrix: bool = False
    sme2: bool = False
    sme1: bool = False


@dataclass(frozen=True)
class _Structure:
    operators: dict[Executor, dict[str, _Operator]]
    summary: dict[str, int]
    """What a person wants to see change. It is derived, so it is checked against the operators."""


@dataclass(frozen=True)
class _Kernels:
    names: dict[KernelFamily, list[str]]
    source: str


@dataclass(frozen=True)
class _Fingerprint:
    facts: dict[str, str]
    target: str


@dataclass(frozen=True)
class _Program:
    bytes: int | None
    sha256: str
    weights: str
    operators: dict[Arm, list[StoredOperator]] = field(default_factory=dict)


@dataclass(frozen=True)
class _Accepted:
    """The conditions that hold for all figures, and for each thread count the figures."""

    figures: dict[str, dict[str, str]] = field(default_factory=dict)
    limits: Limits | None = None
    settings: dict[str, str] = field(default_factory=dict)
    samples: dict[str, Sample] = field(default_factory=dict)


@dataclass(frozen=True)
class _File:
    schema: int
    model: str
    variant: str
    fingerprint: _Fingerprint
    structure: dict[Arm, _Structure]
    kernels: dict[Arm, _Kernels]
    sessions: list[BaselineSession]
    threads: dict[str, BaselineFigures]
    program: _Program
    outputs: list[Agreement]
    versions: dict[str, str]
    cost: dict[Arm, StoredCost] = field(default_factory=dict)
    frontier: StoredFrontier | None = None
    generation: StoredGeneration | None = None
    accepted: _Accepted = _Accepted()


# What is left out of the file where it says nothing; what is inside of another comes first.
_OPTIONAL = {
    _Operator: ("matrix", "sme2", "sme1"),
    StoredOperator: ("instructions", "kernel", "system", "shapes", "place"),
    Sample: ("odd",),
    BaselineSession: ("phases_ns", "yardstick_ns", "interference", "conditions"),
    Tolerance: [entry.name for entry in fields(Tolerance)],
    # A limit that was not set.
    Limits: [entry.name for entry in fields(Limits) if not isinstance(entry.default, float)],
    _Program: ("operators",),
    _File: ("cost", "frontier", "generation", "accepted"),
}
# Infinite ones have no number in JSON.
_ERRORS = ("max_abs", "max_rel")
# Version 0.1.0 counted these as well.
_FORMER_COUNTS = ("loads", "stores", "loaded_bytes", "stored_bytes")


@functools.cache
def _converter(*, names_fields: bool = True) -> Any:
    """Strict: no value is turned into another type, and no entry is left out or added."""
    gen = cattrs_library().gen
    converter = plain_converter(names_fields=names_fields).copy()

    def table(kind: type) -> Callable[[Any, Any], Any]:
        read = gen.make_dict_structure_fn(kind, converter, _cattrs_forbid_extra_keys=True)

        def check(value: Any, _: Any) -> Any:
            if not isinstance(value, dict):
                raise ValueError(f"{value!r} is not a table")
            return read(value, kind)

        return check

    def counts(value: Any, _: Any) -> Any:
        if isinstance(value, dict):
            value = {name: number for name, number in value.items() if name not in _FORMER_COUNTS}
        return read_counts(value, Counts)

    def agreement(value: Any, _: Any) -> Any:
        if isinstance(value, dict):
            value = value | {key: math.inf for key in _ERRORS if value.get(key, 0) is None}
        return read_agreement(value, Agreement)

    def without_infinity(found: Agreement) -> dict[str, Any]:
        written: dict[str, Any] = write_agreement(found)
        return written | {key: None for key in _ERRORS if math.isinf(written[key])}

    converter.register_structure_hook(int, _count)
    converter.register_structure_hook_factory(dataclasses.is_dataclass, table)
    read_counts, read_agreement = table(Counts), table(Agreement)
    # What is compared with is not part of the result.
    left_out = dict.fromkeys(("peak", "dead"), gen.override(omit=True))
    write_agreement = gen.make_dict_unstructure_fn(Agreement, converter, **left_out)
    converter.register_structure_hook(Counts, counts)
    converter.register_structure_hook(Agreement, agreement)
    converter.register_unstructure_hook(Agreement, without_infinity)
    converter.register_structure_hook(Spread, _spread)
    converter.register_unstructure_hook(
        Spread, lambda spread: [spread.low, spread.value, spread.high]
    )
    for kind, names in _OPTIONAL.items():
        left_out = dict.fromkeys(names, gen.override(omit_if_default=True))
        write = gen.make_dict_unstructure_fn(kind, converter, **left_out)
        converter.register_unstructure_hook(kind, write)
    return converter


def _count(value: object, _: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ValueError(f"{value!r} is not a count")
    return value


def _spread(value: object, _: object) -> Spread:
    if not isinstance(value, list) or len(value) != 3:
        raise ValueError(f"{value!r} is not a list of three numbers")
    low, middle, high = (plain_converter().structure(number, float) for number in value)
    return Spread(middle, low, high)


def _structured(document: dict[str, Any]) -> _File:
    few = has_few_parts(document)
    try:
        found: _File = _converter(names_fields=few).structure(document, _File)
    except Exception as error:  # cattrs gathers whatever the fields raised into a group
        if not few:
            raise ValueError(_reason(error, None)) from error
        reasons = cattrs_library().transform_error(error, format_exception=_reason)
        raise ValueError("; ".join(map(_place_first, reasons[:3]))) from error
    return found


def _reason(error: BaseException, kind: type | None) -> str:
    if isinstance(error, KeyError):
        return "is missing"
    if isinstance(error, cattrs_library().ForbiddenExtraKeysError):
        return f"unknown entries {', '.join(sorted(map(repr, error.extra_fields)))}"
    return "is not a table" if isinstance(error, AttributeError) else str(error)


def _place_first(reason: str) -> str:
    """Cattrs says ``<problem> @ $.<place>``."""
    problem, _, place = reason.rpartition(" @ $")
    return f"{place.lstrip('.')}: {problem}" if place else problem


def _from_file(file: _File) -> Baseline:
    _refuse_impossible(file)
    facts = tuple(sorted(file.fingerprint.facts.items()))
    return Baseline(
        model=file.model,
        variant=file.variant,
        fingerprint=Fingerprint(file.fingerprint.target, facts),
        structures={arm: _structure_from(found, arm) for arm, found in file.structure.items()},
        kernels={arm: _kernels_from(found, arm) for arm, found in file.kernels.items()},
        sessions=tuple(file.sessions),
        figures={int(key): found for key, found in file.threads.items()},
        pte_bytes=file.program.bytes,
        pte_sha256=file.program.sha256,
        weights=file.program.weights,
        frontier=file.frontier,
        generation=file.generation,
        costs={arm: _cost_from(found, arm, file.schema) for arm, found in file.cost.items()},
        agreements=tuple(file.outputs),
        versions=file.versions,
        promised={int(key): found for key, found in file.accepted.figures.items()},
        limits=file.accepted.limits,
        settings=file.accepted.settings,
        samples=file.accepted.samples,
        operators={arm: tuple(found) for arm, found in file.program.operators.items()},
        schema=file.schema,
    )


def _cost_from(found: StoredCost, arm: Arm, schema: int) -> StoredCost:
    """The cost, whose total is the sum of its parts."""
    total, operators = found.total.instructions, found.operators
    rest = total - sum(entry.instructions for entry in operators)
    system = found.system - sum(entry.system for entry in operators)
    # Before schema 3 a file did not say what was executed outside of operators.
    if rest < 0 or rest != (rest if schema < 3 else found.runtime) or not 0 <= system <= rest:
        raise ValueError(
            f"the total of cost.{arm} does not add up to its operators and runtime "
            "(edited by hand?)"
        )
    if any(entry.system > entry.instructions for entry in operators):
        raise ValueError(f"cost.{arm}: an operator has more system instructions than instructions")
    if found.sme2_macs > found.macs:
        raise ValueError(f"cost.{arm}: sme2_macs is more than macs")
    return replace(found, runtime=rest)


def _refuse_impossible(file: _File) -> None:
    """ValueError for what has the right type, and was never measured."""
    for key in {*file.threads, *file.accepted.figures}:
        if not re.fullmatch(r"[1-9][0-9]{0,3}", key):
            raise ValueError(f"threads: {key!r} is not a thread count")
    for key, figures in file.threads.items():
        # An interval of too few pairs begins at 0.
        low, speedup, high = (1, 1, 1) if figures.speedup is None else _ends(figures.speedup)
        if not 0 <= low <= speedup <= high or speedup == 0:
            raise ValueError(f"threads.{key}: holds a speedup that is not in its interval above 0")
        for arm, shares in figures.shares.items():
            if not all(0 <= each.low <= each.value <= each.high <= 1 for each in shares.values()):
                raise ValueError(f"threads.{key}.shares.{arm}: a share is not in its interval")
    for session in file.sessions:
        taken = [("medians_ns", session.medians_ns), ("loads_ns", session.loads_ns)]
        taken += session.phases_ns.items()
        series = [(f"{name}.{arm}", times) for name, of in taken for arm, times in of.items()]
        if session.yardstick_ns is not None:
            series.append(("yardstick_ns", (session.yardstick_ns,)))
        for name, times in series:
            if any(time <= 0 for time in times):
                of = f"{name} of {session.session!r}"
                raise ValueError(f"sessions: {of} holds a time of 0 or less")
    for arm, found in file.structure.items():
        _refuse_other_program(file, arm, found)
    if (frontier := file.frontier) is not None:
        ends = [time for of in frontier.times_ns.values() for time in of.values()]
        if min((*_ends(frontier.speedup), *ends)) <= 0:
            raise ValueError("frontier: holds a time or a speedup of 0 or less")
    if (generation := file.generation) is not None:
        steps = 1 + generation.new_tokens
        for costs in generation.costs.values():
            whole = len(costs.instructions) == len(costs.system) == steps
            if not whole or min(costs.instructions) <= 0:
                raise ValueError(f"generation: does not hold {count(steps, 'step')} of each arm")
        ends = [end for speedup in generation.speedups.values() for end in _ends(speedup)]
        if min((generation.prompt_tokens, generation.new_tokens, *ends)) <= 0:
            raise ValueError("generation: holds a speedup or a number of tokens of 0 or less")


def _refuse_other_program(file: _File, arm: Arm, found: _Structure) -> None:
    """ValueError where the counts are not those of the operators in the order in which they run."""
    counted = file.cost.get(arm)
    program = file.program.operators.get(arm, ()) if counted is None else counted.operators
    counts: Counter[str] = Counter()
    for operators in found.operators.values():
        counts.update({name: entry.count for name, entry in operators.items()})
    if program and counts != Counter(entry.name for entry in program):
        raise ValueError(
            f"the counts of structure.{arm} are not those of its program (edited by hand?)"
        )


def _ends(estimate: Estimate) -> tuple[float, float, float]:
    return estimate.low, estimate.value, estimate.high


def _structure_from(found: _Structure, arm: Arm) -> Structure:
    structure = sort_structure(
        OperatorCount(name=name, executor=executor, **vars(entry))
        for executor, operators in found.operators.items()
        for name, entry in operators.items()
    )
    if found.summary != _summary(structure):
        raise ValueError(
            f"the summary of structure.{arm} does not add up to its operators (edited by hand?)"
        )
    return structure


def _summary(structure: Structure) -> dict[str, int]:
    return {
        **{str(category): structure.in_category(category) for category in Category},
        "delegated": structure.executed_by(Executor.DELEGATED),
        "matrix": structure.matrix,
        "matrix on sme2": structure.sme2 - structure.sme1,
        **({"matrix on sme1": structure.sme1} if structure.sme1 else {}),
        "portable": structure.executed_by(Executor.PORTABLE),
    }


def _kernels_from(found: _Kernels, arm: Arm) -> KernelCensus:
    kernels = [Kernel(name, family, 1) for family, names in found.names.items() for name in names]
    return census_of_names(KernelCensus(arm, found.source, tuple(kernels)))


def census_of_names(census: KernelCensus) -> KernelCensus:
    """The census without its counts, which depend on how blocks were translated."""
    names = {(kernel.name, kernel.family) for kernel in census.kernels}
    kernels = tuple(Kernel(name, family, 1) for name, family in sorted(names))
    return replace(census, kernels=kernels)


def render(baseline: Baseline) -> str:
    """The file's text: sorted, one fact per line, so that a diff shows what changed."""
    try:
        return _render(_to_document(baseline), "") + "\n"
    except ValueError as error:
        raise BaselineError(
            f"The baseline of {baseline.model}-{baseline.variant} cannot be written: a value is "
            f"not a number ({error}). Measure it again."
        ) from error


def _to_document(baseline: Baseline) -> dict[str, Any]:
    file = _File(
        schema=SCHEMA,
        model=baseline.model,
        variant=baseline.variant,
        fingerprint=_Fingerprint(dict(baseline.fingerprint.facts), baseline.fingerprint.target),
        structure={arm: _structure_to(found) for arm, found in baseline.structures.items()},
        kernels={arm: _kernels_to(census) for arm, census in baseline.kernels.items()},
        sessions=list(baseline.sessions),
        threads={str(threads): figures for threads, figures in baseline.figures.items()},
        program=_Program(
            baseline.pte_bytes,
            baseline.pte_sha256,
            baseline.weights,
            {
                arm: list(found)
                for arm, found in baseline.operators.items()
                if arm not in baseline.costs
            },
        ),
        outputs=list(baseline.agreements),
        versions=dict(baseline.versions),
        cost=dict(baseline.costs),
        frontier=baseline.frontier,
        generation=baseline.generation,
        accepted=_Accepted(
            {str(threads): dict(found) for threads, found in baseline.promised.items()},
            baseline.limits,
            dict(baseline.settings),
            dict(baseline.samples),
        ),
    )
    document: dict[str, Any] = _converter().unstructure(file)
    return document


def _structure_to(structure: Structure) -> _Structure:
    operators: dict[Executor, dict[str, _Operator]] = {executor: {} for executor in Executor}
    for entry in structure.operators:
        operators[entry.executor][entry.name] = _Operator(
            entry.category, entry.count, entry.kind, entry.matrix, entry.sme2, entry.sme1
        )
    return _Structure(operators, _summary(structure))


def _kernels_to(census: KernelCensus) -> _Kernels:
    families: dict[KernelFamily, list[str]] = {}
    for kernel in census.kernels:
        families.setdefault(kernel.family, []).append(kernel.name)
    return _Kernels({family: sorted(names) for family, names in families.items()}, census.source)


def _render(value: Any, indent: str) -> str:
    if isinstance(value, dict) and value:
        line = json.dumps(_plain(value), sort_keys=True, allow_nan=False)
        flat = not any(isinstance(entry, (dict, list, tuple)) for entry in value.values())
        # Only facts about one thing share a line; its name stands before them.
        if flat and indent and len(line) <= _LONGEST_LINE and len({*map(type, value.values())}) > 1:
            return line
        inner = indent + "  "
        # The schema number comes first: it says how to read the rest.
        keys = sorted(value, key=lambda key: (bool(indent) or key != "schema", key))
        entries = [f"{inner}{json.dumps(key)}: {_render(value[key], inner)}" for key in keys]
        return "{\n" + ",\n".join(entries) + f"\n{indent}}}"
    nested = isinstance(value, (list, tuple))
    if nested and any(isinstance(entry, (dict, list, tuple, str)) for entry in value):
        inner = indent + "  "
        entries = [inner + _render(entry, inner) for entry in value]
        return "[\n" + ",\n".join(entries) + f"\n{indent}]"
    return json.dumps(_plain(value), allow_nan=False)


def _plain(value: Any) -> Any:
    """Whole numbers without a trailing ``.0``, which only adds noise to a diff."""
    if isinstance(value, dict):
        return {key: _plain(entry) for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(entry) for entry in value]
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        return int(value)
    return value
