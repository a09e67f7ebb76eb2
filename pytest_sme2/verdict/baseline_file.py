"""The baseline as JSON: schema, parsing and rendering. Nothing touches a disk here."""

from __future__ import annotations

import dataclasses
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from pytest_sme2.errors import BaselineError
from pytest_sme2.profile.operators import sort_structure
from pytest_sme2.results import (
    Arm,
    Baseline,
    Category,
    Estimate,
    Executor,
    Kernel,
    KernelCensus,
    StoredCost,
    Structure,
)
from pytest_sme2.system.files import encode, structured
from pytest_sme2.system.reading import json_value
from pytest_sme2.system.wording import count

SCHEMA = 4
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
        text, f"{path}: the baseline", remedy=REMEDY, error=BaselineError, strict=True
    )
    if not isinstance(document, dict):
        raise _damaged(path, "it is not a JSON object")
    version = document.pop("schema", None)
    if isinstance(version, int) and version > SCHEMA:
        raise BaselineError(
            f"{path}: was written with schema {version}; this pytest-sme2 knows up to {SCHEMA}. "
            "Update pytest-sme2. The baseline was not changed."
        )
    if version in (2, 3):
        raise BaselineError(
            f"{path}: was written by an older version. Remove it and run with --update-baselines."
        )
    if version is True or version != SCHEMA:
        raise _damaged(path, f"its schema is {version!r}, not {SCHEMA}")
    try:
        baseline: Baseline = structured(document, Baseline)
        for arm, structure in baseline.structures.items():
            if document["structures"][arm].pop("summary", None) != _summary(structure):
                raise ValueError("the summary does not add up to its operators (edited by hand?)")
        _refuse_other(document, encode(baseline))
        _refuse_impossible(baseline)
    except ValueError as error:
        raise _damaged(path, str(error)) from error
    return baseline


def _summary(structure: Structure) -> dict[str, int]:
    return {
        **{str(category): structure.in_category(category) for category in Category},
        "delegated": structure.executed_by(Executor.DELEGATED),
        "matrix": structure.matrix,
        "matrix on sme2": structure.sme2 - structure.sme1,
        **({"matrix on sme1": structure.sme1} if structure.sme1 else {}),
        "portable": structure.executed_by(Executor.PORTABLE),
    }


def census_of_names(census: KernelCensus) -> KernelCensus:
    """The census without its counts, which depend on how blocks were translated."""
    names = {(kernel.name, kernel.family) for kernel in census.kernels}
    kernels = tuple(Kernel(name, family, 1) for name, family in sorted(names))
    return KernelCensus(census.arm, census.source, kernels)


def _refuse_other(said: Any, known: Any, place: str = "") -> None:
    """ValueError for what the file says and a baseline does not hold."""
    if isinstance(said, dict):
        if unknown := sorted(said.keys() - known.keys()):
            raise ValueError(f"unknown entries {', '.join(repr(place + each) for each in unknown)}")
        for name, value in said.items():
            if isinstance(value, dict | list):
                _refuse_other(value, known[name], f"{place}{name}.")
            elif type(known[name]) is int and known[name] < 0:
                raise ValueError(f"{place}{name}: {value} is not a count")
    elif said and isinstance(said[0], dict | list):
        for index, value in enumerate(said):
            _refuse_other(value, known[index], f"{place[:-1]}[{index}].")
    elif any(type(each) is int and each < 0 for each in known):
        raise ValueError(f"{place[:-1]}: {min(known)} is not a count")


def _refuse_impossible(found: Baseline) -> None:
    """ValueError for what has the right type, and was never measured."""
    for threads in (*found.figures, *found.promised):
        if not 0 < threads < 10_000:
            raise ValueError(f"{threads} is not a thread count")
    for arm, structure in found.structures.items():
        if structure != sort_structure(
            {(e.name, e.executor): e for e in structure.operators}.values()
        ):
            raise ValueError(f"structures.{arm}: its operators are not sorted, or one comes twice")
    for threads, figures in found.figures.items():
        # An interval of too few pairs begins at 0.
        low, speedup, high = (1, 1, 1) if figures.speedup is None else _ends(figures.speedup)
        if not 0 <= low <= speedup <= high or speedup == 0:
            raise ValueError(
                f"figures.{threads}: holds a speedup that is not in its interval above 0"
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
            f"the total of costs.{arm} does not add up to its operators and runtime "
            "(edited by hand?)"
        )
    if any(entry.system > entry.instructions for entry in operators):
        raise ValueError(f"costs.{arm}: an operator has more system instructions than instructions")


def _refuse_other_program(baseline: Baseline, arm: Arm, found: Structure) -> None:
    """ValueError where the counts are not those of the operators in the order in which they run."""
    program = baseline.program(arm)
    counts: Counter[str] = Counter()
    for entry in found.operators:
        counts[entry.name] += entry.count
    if program and counts != Counter(entry.name for entry in program):
        raise ValueError(
            f"the counts of structures.{arm} are not those of its program (edited by hand?)"
        )


def _ends(estimate: Estimate) -> tuple[float, float, float]:
    return estimate.low, estimate.value, estimate.high


def render(baseline: Baseline) -> str:
    """The file's text: sorted, one fact per line, so that a diff shows what changed."""
    try:
        return _render({"schema": SCHEMA, **_to_document(baseline)}, "") + "\n"
    except ValueError as error:
        raise BaselineError(
            f"The baseline of {baseline.model}-{baseline.variant} cannot be written: a value is "
            f"not a number ({error}). Measure it again."
        ) from error


def _to_document(value: Any) -> Any:
    """JSON types. What is as usual is left out."""
    if isinstance(value, Mapping):
        return {str(name): _to_document(each) for name, each in value.items()}
    if isinstance(value, tuple):
        return [_to_document(each) for each in value]
    if not dataclasses.is_dataclass(value):
        return value
    found = {
        entry.name: _to_document(each)
        for entry in fields(value)
        # Another version may have other usual limits.
        if (each := getattr(value, entry.name)) != _usual(entry) or isinstance(each, float)
    }
    return {**found, "summary": _summary(value)} if isinstance(value, Structure) else found


def _usual(entry: dataclasses.Field[Any]) -> Any:
    made = entry.default_factory
    return entry.default if made is dataclasses.MISSING else made()


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
    if nested and any(isinstance(entry, (dict, list, tuple)) for entry in value):
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
