"""The baseline as JSON: schema, migrations, parsing and rendering. Nothing touches a disk here."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from pytest_sme2.errors import BaselineError
from pytest_sme2.profile.structure import sort_structure
from pytest_sme2.results import (
    Agreement,
    Arm,
    Baseline,
    BaselineSession,
    Category,
    Estimate,
    Executor,
    Fingerprint,
    Kernel,
    KernelCensus,
    KernelFamily,
    OperatorCount,
    Spread,
    Structure,
)

# The history of the file. A change of its meaning raises the number and adds the function that
# turns the version before it into the new one to MIGRATIONS, under the old number.
#   1  structure and kernels by arm, sessions of process medians with their epochs, speedup, shares
#      and times of the traced runs, memory, size, agreement of outputs, versions
SCHEMA = 1

_LONGEST_LINE = 240

Document = dict[str, Any]
Migration = Callable[[Document], Document]
MIGRATIONS: Mapping[int, Migration] = {}


def damaged(path: Path, problem: str) -> str:
    return (
        f"{path}: the baseline cannot be read: {problem}. Restore it from version control, "
        "or remove it and run with --update-baselines. It was not changed."
    )


def migrate(
    document: Document,
    path: Path,
    *,
    migrations: Mapping[int, Migration],
    schema: int = SCHEMA,
) -> Document:
    """The document in the present schema, one version after another."""
    version = document.get("schema")
    if not isinstance(version, int) or isinstance(version, bool):
        raise BaselineError(damaged(path, f"its schema is {version!r}, not a number"))
    if version > schema:
        raise BaselineError(
            f"{path}: was written with schema {version}; this pytest-sme2 knows up to {schema}. "
            "Update pytest-sme2. The baseline was not changed."
        )
    while version < schema:
        step = migrations.get(version)
        if step is None:
            raise BaselineError(damaged(path, f"schema {version} was never a baseline's"))
        document = {**step(document), "schema": version + 1}
        version += 1
    return document


def parse(text: str, path: Path) -> Baseline:
    """The baseline a file's text holds."""
    try:
        document = json.loads(text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise BaselineError(damaged(path, f"it is not JSON ({error})")) from error
    if not isinstance(document, dict):
        raise BaselineError(damaged(path, "it is not a JSON object"))
    document = migrate(document, path, migrations=MIGRATIONS)
    try:
        return _from_document(document)
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        problem = f"missing {error}" if isinstance(error, KeyError) else str(error)
        raise BaselineError(damaged(path, problem)) from error


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is not a number")


_Kind = TypeVar("_Kind", str, bool, dict[str, Any], list[Any])


def _typed(value: object, kind: type[_Kind], what: str) -> _Kind:
    if not isinstance(value, kind):
        raise ValueError(f"{what} is {value!r}, not a {kind.__name__}")
    return value


def _text(document: Document, key: str) -> str:
    return _typed(document[key], str, key)


def _table(document: Document, key: str) -> Document:
    return _typed(document.get(key, {}), dict, key)


def _real(value: object, what: str) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ValueError(f"{what} is {value!r}, not a number")
    return float(value)


def _count(value: object, what: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ValueError(f"{what} is {value!r}, not a count")
    return value


def _reals(value: object, what: str) -> tuple[float, ...]:
    numbers = tuple(_real(number, what) for number in _typed(value, list, what))
    if not all(number > 0 for number in numbers):
        raise ValueError(f"{what} holds a time that is not positive")
    return numbers


def _strings(value: object, what: str) -> dict[str, str]:
    table = _typed(value, dict, what)
    return {key: _typed(text, str, f"{what}.{key}") for key, text in table.items()}


def _plain(number: float) -> float | int:
    """Whole numbers without a trailing ``.0``, which only adds noise to a diff."""
    return int(number) if float(number).is_integer() and abs(number) < 2**53 else number


def _structure_to(structure: Structure) -> Document:
    operators: dict[str, Document] = {str(executor): {} for executor in Executor}
    for entry in structure.operators:
        facts: Document = {
            "category": str(entry.category),
            "count": entry.count,
            "kind": entry.kind,
        }
        facts |= {name: True for name in ("matrix", "sme2") if getattr(entry, name)}
        operators[str(entry.executor)][entry.name] = facts
    return {"operators": operators, "summary": _summary(structure)}


def _summary(structure: Structure) -> Document:
    """What a person wants to see change; derived, so that it is checked against the rest."""
    return {
        **{str(category): structure.in_category(category) for category in Category},
        "delegated": structure.executed_by(Executor.DELEGATED),
        "matrix": structure.matrix,
        "matrix on sme2": structure.sme2,
        "portable": structure.executed_by(Executor.PORTABLE),
    }


def _structure_from(document: Document, arm: str) -> Structure:
    counts = []
    for executor, operators in _table(document, "operators").items():
        for name, facts in _typed(operators, dict, executor).items():
            count = OperatorCount(
                name=name,
                category=Category(_text(facts, "category")),
                kind=_text(facts, "kind"),
                executor=Executor(executor),
                matrix=_typed(facts.get("matrix", False), bool, "matrix"),
                sme2=_typed(facts.get("sme2", False), bool, "sme2"),
                count=_count(facts["count"], f"count of {name!r}"),
            )
            counts.append(count)
    structure = sort_structure(counts)
    if document.get("summary") != _summary(structure):
        raise ValueError(
            f"the summary of structure.{arm} does not add up to its operators (edited by hand?)"
        )
    return structure


def _kernels_to(census: KernelCensus) -> Document:
    families: dict[str, list[str]] = {}
    for kernel in census.kernels:
        families.setdefault(str(kernel.family), []).append(kernel.name)
    return {
        "names": {family: sorted(names) for family, names in families.items()},
        "source": census.source,
    }


def _kernels_from(document: Document, arm: Arm) -> KernelCensus:
    kernels = [
        Kernel(_typed(name, str, "kernel"), KernelFamily(family), 1)
        for family, names in _table(document, "names").items()
        for name in _typed(names, list, family)
    ]
    return census_of_names(KernelCensus(arm, _text(document, "source"), tuple(kernels)))


def census_of_names(census: KernelCensus) -> KernelCensus:
    """The census without its counts, which depend on how blocks were translated."""
    names = {(kernel.name, kernel.family) for kernel in census.kernels}
    kernels = tuple(Kernel(name, family, 1) for name, family in sorted(names))
    return replace(census, kernels=kernels)


def _session_to(session: BaselineSession) -> Document:
    return {
        "epoch": session.epoch,
        "executorch": session.executorch,
        "load_ns": _arms_to(session.loads_ns, _list_to),
        "median_ns": _arms_to(session.medians_ns, _list_to),
        "program": session.program,
        "recorded": session.recorded,
        "runner": session.runner,
        "runtime": session.runtime,
        "session": session.session,
        "threads": session.threads,
        **({} if session.yardstick_ns is None else {"yardstick_ns": _plain(session.yardstick_ns)}),
    }


def _session_from(document: object) -> BaselineSession:
    table = _typed(document, dict, "session")
    return BaselineSession(
        session=_text(table, "session"),
        recorded=_text(table, "recorded"),
        epoch=_count(table["epoch"], "epoch"),
        threads=_count(table["threads"], "threads"),
        runner=_text(table, "runner"),
        executorch=_text(table, "executorch"),
        medians_ns=_arms_from(table, "median_ns", _reals),
        loads_ns=_arms_from(table, "load_ns", _reals),
        yardstick_ns=next(iter(_reals([table["yardstick_ns"]], "yardstick_ns")))
        if "yardstick_ns" in table
        else None,
        program=_text(table, "program") if "program" in table else "",
        runtime=_text(table, "runtime") if "runtime" in table else "",
    )


def _list_to(values: Sequence[float]) -> list[float | int]:
    return [_plain(value) for value in values]


_Value = TypeVar("_Value")


def _arms_to(values: Mapping[Arm, _Value], convert: Callable[[_Value], Any]) -> Document:
    return {str(arm): convert(value) for arm, value in values.items()}


def _arms_from(
    document: Document, key: str, convert: Callable[[Any, str], _Value]
) -> dict[Arm, _Value]:
    table = _table(document, key)
    return {Arm(arm): convert(value, f"{key}.{arm}") for arm, value in sorted(table.items())}


def _spreads_to(shares: Mapping[Category, Spread]) -> Document:
    return {str(key): _list_to((s.low, s.value, s.high)) for key, s in shares.items()}


def _spreads_from(value: object, what: str) -> dict[Category, Spread]:
    found = {}
    for name, numbers in _typed(value, dict, what).items():
        low, middle, high = (_real(number, what) for number in _typed(numbers, list, what))
        found[Category(name)] = Spread(middle, low, high)
    return found


def _times_to(times: Mapping[Any, float]) -> Document:
    return {str(key): _plain(value) for key, value in times.items()}


def _category_times(value: object, what: str) -> dict[Category, float]:
    table = _typed(value, dict, what)
    return {Category(name): _real(number, what) for name, number in table.items()}


def _operator_times(value: object, what: str) -> dict[str, float]:
    table = _typed(value, dict, what)
    return {name: _real(number, what) for name, number in table.items()}


def _estimate_to(estimate: Estimate) -> Document:
    return {
        "confidence": estimate.confidence,
        "high": estimate.high,
        "low": estimate.low,
        "pairs": estimate.pairs,
        "value": estimate.value,
    }


def _estimate_from(document: object) -> Estimate | None:
    if document is None:
        return None
    table = _typed(document, dict, "speedup")
    value, low, high, confidence = (
        _real(table[key], f"speedup.{key}") for key in ("value", "low", "high", "confidence")
    )
    return Estimate(value, low, high, confidence, _count(table["pairs"], "speedup.pairs"))


def _agreement_to(agreement: Agreement) -> Document:
    def number(value: float | None) -> float | None:
        # An infinite error has no number in JSON; with ``identical`` false it reads back the same.
        return None if value is None or math.isinf(value) else value

    return {
        "against": agreement.against,
        "arm": str(agreement.arm),
        "cosine": agreement.cosine,
        "dtype": agreement.dtype,
        "has_nan": agreement.has_nan,
        "identical": agreement.identical,
        "index": agreement.index,
        "max_abs": number(agreement.max_abs),
        "max_rel": number(agreement.max_rel),
        "sqnr_db": agreement.sqnr_db,
    }


def _agreement_from(document: object) -> Agreement:
    table = _typed(document, dict, "outputs")

    def optional(key: str) -> float | None:
        return None if table[key] is None else _real(table[key], key)

    errors = [optional("max_abs"), optional("max_rel")]
    return Agreement(
        against=_text(table, "against"),
        arm=Arm(_text(table, "arm")),
        index=_count(table["index"], "index"),
        dtype=_text(table, "dtype"),
        identical=_typed(table["identical"], bool, "identical"),
        max_abs=math.inf if errors[0] is None else errors[0],
        max_rel=math.inf if errors[1] is None else errors[1],
        sqnr_db=optional("sqnr_db"),
        cosine=optional("cosine"),
        has_nan=_typed(table["has_nan"], bool, "has_nan"),
    )


def to_document(baseline: Baseline) -> Document:
    """The baseline as the JSON file has it."""
    return {
        "schema": SCHEMA,
        "model": baseline.model,
        "variant": baseline.variant,
        "fingerprint": {
            "facts": dict(baseline.fingerprint.facts),
            "target": baseline.fingerprint.target,
        },
        "structure": _arms_to(baseline.structures, _structure_to),
        "kernels": _arms_to(baseline.kernels, _kernels_to),
        "sessions": [_session_to(session) for session in baseline.sessions],
        "speedup": None if baseline.speedup is None else _estimate_to(baseline.speedup),
        "shares": _arms_to(baseline.shares, _spreads_to),
        "category_ns": _arms_to(baseline.category_ns, _times_to),
        "operator_ns": _arms_to(baseline.operator_ns, _times_to),
        "peak_bytes": _arms_to(baseline.peak_bytes, int),
        "program": {
            "bytes": baseline.pte_bytes,
            "sha256": baseline.pte_sha256,
            "weights": baseline.weights,
        },
        "outputs": [_agreement_to(agreement) for agreement in baseline.agreements],
        "versions": dict(baseline.versions),
    }


def _from_document(document: Document) -> Baseline:
    fingerprint = _typed(document["fingerprint"], dict, "fingerprint")
    facts = _strings(fingerprint["facts"], "fingerprint.facts")
    program = _typed(document["program"], dict, "program")
    size = program["bytes"]
    structures = _table(document, "structure")
    kernels = _table(document, "kernels")
    return Baseline(
        model=_text(document, "model"),
        variant=_text(document, "variant"),
        fingerprint=Fingerprint(_text(fingerprint, "target"), tuple(sorted(facts.items()))),
        structures={Arm(arm): _structure_from(structures[arm], arm) for arm in structures},
        kernels={Arm(arm): _kernels_from(kernels[arm], Arm(arm)) for arm in kernels},
        sessions=tuple(
            _session_from(entry) for entry in _typed(document["sessions"], list, "sessions")
        ),
        speedup=_estimate_from(document["speedup"]),
        shares=_arms_from(document, "shares", _spreads_from),
        category_ns=_arms_from(document, "category_ns", _category_times),
        operator_ns=_arms_from(document, "operator_ns", _operator_times),
        peak_bytes=_arms_from(document, "peak_bytes", _count),
        pte_bytes=None if size is None else _count(size, "program.bytes"),
        pte_sha256=_text(program, "sha256"),
        weights=_text(program, "weights"),
        agreements=tuple(
            _agreement_from(entry) for entry in _typed(document["outputs"], list, "outputs")
        ),
        versions=_strings(document["versions"], "versions"),
    )


def render(baseline: Baseline) -> str:
    """The file's text: sorted, a fact a line, so that a diff shows what changed and of what."""
    try:
        return _render(to_document(baseline), "") + "\n"
    except ValueError as error:
        raise BaselineError(
            f"The baseline of {baseline.model}-{baseline.variant} cannot be written: a value is "
            f"no number ({error}). Measure it again."
        ) from error


def _render(value: Any, indent: str) -> str:
    if isinstance(value, dict) and value:
        line = json.dumps(value, sort_keys=True, allow_nan=False)
        flat = not any(isinstance(entry, (dict, list)) for entry in value.values())
        # Only facts about one thing share a line; its name stands before them.
        if flat and indent and len(line) <= _LONGEST_LINE and len({*map(type, value.values())}) > 1:
            return line
        inner = indent + "  "
        # The schema number comes first: it says how to read the rest.
        keys = sorted(value, key=lambda key: (bool(indent) or key != "schema", key))
        entries = [f"{inner}{json.dumps(key)}: {_render(value[key], inner)}" for key in keys]
        return "{\n" + ",\n".join(entries) + f"\n{indent}}}"
    if isinstance(value, list) and any(isinstance(entry, (dict, list, str)) for entry in value):
        inner = indent + "  "
        entries = [inner + _render(entry, inner) for entry in value]
        return "[\n" + ",\n".join(entries) + f"\n{indent}]"
    return json.dumps(value, allow_nan=False)
