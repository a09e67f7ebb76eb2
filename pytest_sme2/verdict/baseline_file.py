"""The baseline as JSON: schema, parsing and rendering. Nothing touches a disk here."""

from __future__ import annotations

import dataclasses
import functools
import json
import operator
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from pytest_sme2.errors import BaselineError
from pytest_sme2.profile.operators import sort_structure
from pytest_sme2.results import (
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
    StoredCost,
    StoredGeneration,
    StoredOperator,
    Structure,
    Tolerance,
)
from pytest_sme2.system.files import cattrs_library, has_few_parts
from pytest_sme2.system.files import converter as plain_converter
from pytest_sme2.system.reading import json_value
from pytest_sme2.system.wording import count

SCHEMA = 3
"""A change of the file's meaning raises it."""

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
    version = document.pop("schema", None)
    # What nothing compares any more; files have it from before.
    document.pop("outputs", None)
    if isinstance(version, int) and version > SCHEMA:
        raise BaselineError(
            f"{path}: was written with schema {version}; this pytest-sme2 knows up to {SCHEMA}. "
            "Update pytest-sme2. The baseline was not changed."
        )
    if version == 2:
        raise BaselineError(
            f"{path}: was written by an older version, and does not say what must be compared. "
            "Remove it and run with --update-baselines."
        )
    if version is True or version != SCHEMA:
        raise _damaged(path, f"its schema is {version!r}, not {SCHEMA}")
    try:
        baseline = _structured(document)
        _refuse_impossible(baseline)
    except ValueError as error:
        raise _damaged(path, str(error)) from error
    return baseline


# Where the file has a field of a baseline: the conditions of all figures stand together.
_PLACES = {
    "structures": "structure",
    "figures": "threads",
    "costs": "cost",
    "pte_bytes": "program.bytes",
    "pte_sha256": "program.sha256",
    "weights": "program.weights",
    "operators": "program.operators",
    "promised": "accepted.figures",
    "limits": "accepted.limits",
    "settings": "accepted.settings",
    "samples": "accepted.samples",
}
_TABLES = ("program", "accepted")
# What is left out of the file where it says nothing; what is inside of another comes first.
_OPTIONAL = {
    StoredOperator: ("instructions", "kernel", "system", "shapes", "place"),
    Sample: ("odd",),
    BaselineSession: ("phases_ns", "yardstick_ns", "interference", "conditions"),
    Tolerance: [entry.name for entry in fields(Tolerance)],
    # A limit that was not set.
    Limits: [entry.name for entry in fields(Limits) if not isinstance(entry.default, float)],
    Baseline: (
        *("costs", "generation", "operators"),
        *("promised", "limits", "settings", "samples"),
    ),
}


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

    converter.register_structure_hook(int, _count)
    converter.register_structure_hook_factory(dataclasses.is_dataclass, table)
    hooks: tuple[tuple[Any, Callable[..., Any], Callable[..., Any]], ...] = (
        (Structure, _read_structure, _write_structure),
        (Fingerprint, _read_fingerprint, _write_fingerprint),
    )
    for kind, reader, writer in hooks:
        converter.register_structure_hook(kind, functools.partial(reader, converter))
        converter.register_unstructure_hook(kind, functools.partial(writer, converter))
    converter.register_unstructure_hook(KernelCensus, _write_census)
    by_threads = functools.partial(_read_by_threads, converter)
    tables: tuple[tuple[Any, Callable[..., Any]], ...] = (
        (Mapping[Arm, KernelCensus], functools.partial(_read_censuses, converter)),
        (Mapping[int, BaselineFigures], by_threads),
        (Mapping[int, Mapping[str, str]], by_threads),
    )
    for kind, read_all in tables:
        converter.register_structure_hook_func(functools.partial(operator.eq, kind), read_all)
    # Earlier versions stored more of these.
    for kind in (Counts, BaselineFigures, Limits, StoredGeneration):
        converter.register_structure_hook(kind, gen.make_dict_structure_fn(kind, converter))
    for kind, names in _OPTIONAL.items():
        left_out = dict.fromkeys(names, gen.override(omit_if_default=True))
        shorter = gen.make_dict_unstructure_fn(kind, converter, **left_out)
        converter.register_unstructure_hook(kind, shorter)
    return converter


def _count(value: object, _: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ValueError(f"{value!r} is not a count")
    return value


def _read_fingerprint(converter: Any, value: Any, _: object) -> Fingerprint:
    facts = converter.structure(value["facts"], dict[str, str])
    return Fingerprint(converter.structure(value["target"], str), tuple(sorted(facts.items())))


def _write_fingerprint(_: object, found: Fingerprint) -> dict[str, Any]:
    return {"facts": dict(found.facts), "target": found.target}


def _read_by_threads(converter: Any, value: Any, kind: Any) -> dict[int, Any]:
    for key in value:
        if not re.fullmatch(r"[1-9][0-9]{0,3}", key):
            raise ValueError(f"{key!r} is not a thread count")
    found = converter.structure(value, dict[str, kind.__args__[1]])
    return {int(key): each for key, each in found.items()}


def _read_structure(converter: Any, value: Any, _: object) -> Structure:
    """The operators by executor and name; what a person wants to see change stands beside them."""
    entries = [
        {"matrix": False, "sme2": False, **entry, "name": name, "executor": executor}
        for executor, operators in value["operators"].items()
        for name, entry in operators.items()
    ]
    structure = sort_structure(converter.structure(entries, list[OperatorCount]))
    if value["summary"] != _summary(structure):
        raise ValueError("the summary does not add up to its operators (edited by hand?)")
    return structure


def _write_structure(converter: Any, found: Structure) -> dict[str, Any]:
    operators: dict[str, dict[str, Any]] = {str(executor): {} for executor in Executor}
    for entry in map(converter.unstructure, found.operators):
        where, name, _ = entry.pop("executor"), entry.pop("name"), entry.pop("unproven")
        operators[where][name] = {key: said for key, said in entry.items() if said is not False}
    return {"operators": operators, "summary": _summary(found)}


def _summary(structure: Structure) -> dict[str, int]:
    return {
        **{str(category): structure.in_category(category) for category in Category},
        "delegated": structure.executed_by(Executor.DELEGATED),
        "matrix": structure.matrix,
        "matrix on sme2": structure.sme2 - structure.sme1,
        **({"matrix on sme1": structure.sme1} if structure.sme1 else {}),
        "portable": structure.executed_by(Executor.PORTABLE),
    }


def _read_censuses(converter: Any, value: Any, _: object) -> dict[Arm, KernelCensus]:
    found = {}
    for key, census in value.items():
        names = converter.structure(census["names"], dict[KernelFamily, list[str]])
        kernels = tuple(Kernel(name, family, 1) for family in names for name in names[family])
        source = converter.structure(census["source"], str)
        found[Arm(key)] = census_of_names(KernelCensus(Arm(key), source, kernels))
    return found


def _write_census(census: KernelCensus) -> dict[str, Any]:
    names: dict[str, list[str]] = {}
    for kernel in census.kernels:
        names.setdefault(str(kernel.family), []).append(kernel.name)
    return {"names": {of: sorted(each) for of, each in names.items()}, "source": census.source}


def census_of_names(census: KernelCensus) -> KernelCensus:
    """The census without its counts, which depend on how blocks were translated."""
    names = {(kernel.name, kernel.family) for kernel in census.kernels}
    kernels = tuple(Kernel(name, family, 1) for name, family in sorted(names))
    return replace(census, kernels=kernels)


def _structured(document: dict[str, Any]) -> Baseline:
    placed = dict(document)
    for outer in _TABLES:
        inner = placed.pop(outer, {})
        if not isinstance(inner, dict):
            raise ValueError(f"{outer}: is not a table")
        placed |= {f"{outer}.{name}": value for name, value in inner.items()}
    names = {place: name for name, place in _PLACES.items()}
    given = {names.get(place, place): value for place, value in placed.items()}
    few = has_few_parts(document)
    try:
        found: Baseline = _converter(names_fields=few).structure(given, Baseline)
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
    return "is not a table" if isinstance(error, (AttributeError, TypeError)) else str(error)


def _place_first(reason: str) -> str:
    """Cattrs says ``<problem> @ $.<place>``."""
    problem, _, place = reason.rpartition(" @ $")
    place = re.sub(r"^\w+", lambda found: _PLACES.get(found[0], found[0]), place.lstrip("."))
    return f"{place}: {problem}" if place else problem or reason


def _refuse_impossible(found: Baseline) -> None:
    """ValueError for what has the right type, and was never measured."""
    for threads, figures in found.figures.items():
        # An interval of too few pairs begins at 0.
        low, speedup, high = (1, 1, 1) if figures.speedup is None else _ends(figures.speedup)
        if not 0 <= low <= speedup <= high or speedup == 0:
            raise ValueError(
                f"threads.{threads}: holds a speedup that is not in its interval above 0"
            )
    for place, values in _positive(found):
        if any(value <= 0 for value in values):
            raise ValueError(f"{place} holds a figure of 0 or less")
    for arm, cost in found.costs.items():
        _refuse_other_sum(cost, arm)
    for arm, structure in found.structures.items():
        _refuse_other_program(found, arm, structure)
    if (generation := found.generation) is not None:
        steps = 1 + generation.new_tokens
        for costs in generation.costs.values():
            if not len(costs.instructions) == len(costs.system) == steps:
                raise ValueError(f"generation: does not hold {count(steps, 'step')} of each arm")


def _positive(found: Baseline) -> Iterator[tuple[str, Iterable[float]]]:
    """What is above 0 if it was measured, and where it stands."""
    for session in found.sessions:
        of = f"sessions: {session.session!r}:"
        series = {"medians_ns": session.medians_ns, "loads_ns": session.loads_ns}
        for name, by_arm in {**series, **session.phases_ns}.items():
            yield from ((f"{of} {name}.{arm}", times) for arm, times in by_arm.items())
        if session.yardstick_ns is not None:
            yield f"{of} yardstick_ns", (session.yardstick_ns,)
    if (generation := found.generation) is not None:
        yield "generation", (generation.prompt_tokens, generation.new_tokens)
        yield from (("generation", costs.instructions) for costs in generation.costs.values())


def _refuse_other_sum(found: StoredCost, arm: Arm) -> None:
    """ValueError where the total of a cost is not the sum of its parts."""
    operators = found.operators
    rest = found.total.instructions - sum(entry.instructions for entry in operators)
    system = found.system - sum(entry.system for entry in operators)
    if rest < 0 or rest != found.runtime or not 0 <= system <= rest:
        raise ValueError(
            f"the total of cost.{arm} does not add up to its operators and runtime "
            "(edited by hand?)"
        )
    if any(entry.system > entry.instructions for entry in operators):
        raise ValueError(f"cost.{arm}: an operator has more system instructions than instructions")
    if found.sme2_macs > found.macs:
        raise ValueError(f"cost.{arm}: sme2_macs is more than macs")


def _refuse_other_program(baseline: Baseline, arm: Arm, found: Structure) -> None:
    """ValueError where the counts are not those of the operators in the order in which they run."""
    program = baseline.program(arm)
    counts: Counter[str] = Counter()
    for entry in found.operators:
        counts[entry.name] += entry.count
    if program and counts != Counter(entry.name for entry in program):
        raise ValueError(
            f"the counts of structure.{arm} are not those of its program (edited by hand?)"
        )


def _ends(estimate: Estimate) -> tuple[float, float, float]:
    return estimate.low, estimate.value, estimate.high


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
    # A cost has the operators of its arm.
    uncounted = {arm: of for arm, of in baseline.operators.items() if arm not in baseline.costs}
    document: dict[str, Any] = {"schema": SCHEMA}
    for name, value in _converter().unstructure(replace(baseline, operators=uncounted)).items():
        *outer, key = _PLACES.get(name, name).split(".")
        (document.setdefault(outer[0], {}) if outer else document)[key] = value
    return document


def _render(value: Any, indent: str) -> str:
    if isinstance(value, dict) and value:
        line = json.dumps(_plain(value), sort_keys=True, allow_nan=False)
        flat = not any(isinstance(entry, (dict, list, tuple)) for entry in value.values())
        # Only facts about one thing share a line; its name stands before them.
        if flat and indent and len(line) <= _LONGEST_LINE and len({*map(type, value.values())}) > 1:
            return line
        inner = indent + "  "
        # The schema number comes first: it says how to read the rest.
        keys = sorted(value, key=lambda key: (bool(indent) or key != "schema", str(key)))
        entries = [f"{inner}{json.dumps(str(key))}: {_render(value[key], inner)}" for key in keys]
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
