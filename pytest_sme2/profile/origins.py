"""The file beside an ETDump that remembers where its program's operators come from.

The ETRecord itself is large, since it holds the weights, and may be gone later. It is read in
``trace/etrecord.py``.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pytest_sme2.errors import EtdumpError
from pytest_sme2.results import FORWARD, Attribution, Executor, Operator, Origin
from pytest_sme2.system.files import write_text
from pytest_sme2.system.reading import read_json
from pytest_sme2.trace.etrecord import read_attribution

SUFFIX = ".origins.json"
# 1: the first.
SCHEMA = 1


def beside(etdump: Path) -> Path:
    return etdump.with_name(etdump.name.removesuffix(".etdump") + SUFFIX)


def keep_origins(
    etdump: Path, etrecord: Path | None, say: Callable[[str], None], method: str = FORWARD
) -> None:
    """Remember what the ETRecord says of the method; a run does not fail for want of it."""
    beside(etdump).unlink(missing_ok=True)
    if etrecord is None:
        return
    try:
        found = read_attribution(etrecord, method)
    except EtdumpError as error:
        say(f"where operators come from stays unknown: {error}")
        return
    document = {"schema": SCHEMA, **asdict(found)}
    write_text(beside(etdump), json.dumps(document, separators=(",", ":")) + "\n")


def kept_origins(etdump: Path) -> Attribution | None:
    """What ``keep_origins`` wrote; None where it did not."""
    path = beside(etdump)
    if not path.is_file():
        return None
    remedy = "Remove it, or run the model again."
    document = read_json(path, remedy=remedy, error=EtdumpError, finite=True)
    try:
        if document["schema"] != SCHEMA:
            raise ValueError(f"its schema is {document['schema']!r}, this version reads {SCHEMA}")
        return Attribution(
            aten=_words(document["aten"]),
            modules=_words(document["modules"]),
            origins={int(row): _origin(entry) for row, entry in document["origins"].items()},
            # Files of before have none.
            matrix={
                int(row): tuple((str(name), str(module)) for name, module in entries)
                for row, entries in document.get("matrix", {}).items()
            },
        )
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError) as error:
        raise EtdumpError(f"{path} cannot be used: {error}. {remedy}") from error


# What XNNPACK may run an operator of the graph as.
_RUNS_AS: Mapping[str, tuple[str, ...]] = {
    "aten.convolution": ("Convolution", "Deconvolution", "Fully Connected"),
    "aten.bmm": ("Batch Matrix Multiply",),
}
_LINEAR = ("Fully Connected", "Dynamic Fully Connected", "Convolution")
_MATRIX = frozenset({*_LINEAR, *(name for names in _RUNS_AS.values() for name in names)})


def match_modules(
    traced: Sequence[tuple[Operator, int]], attribution: Attribution | None
) -> tuple[str, ...]:
    """For each operator, with its instruction, the path of its module; empty where not known.

    A delegate has its matrix operators in the order of the graph. Where number or kind of them do
    not agree, nothing is claimed.
    """
    answer = [""] * len(traced)
    if attribution is None:
        return tuple(answer)
    places: dict[int, list[int]] = {}
    for place, (operator, instruction) in enumerate(traced):
        if operator.executor is Executor.PORTABLE:
            origin = attribution.origins.get(instruction)
            answer[place] = "" if origin is None else origin.module
        elif operator.operation in _MATRIX:
            places.setdefault(instruction, []).append(place)
    for instruction, members in places.items():
        known = attribution.matrix.get(instruction, ())
        if len(known) == len(members) and all(
            traced[place][0].operation in _RUNS_AS.get(name.rpartition(".")[0], _LINEAR)
            for place, (name, _) in zip(members, known, strict=True)
        ):
            for place, (_, module) in zip(members, known, strict=True):
                answer[place] = module
    return tuple(answer)


def _words(entries: Mapping[str, list[str]]) -> dict[int, tuple[str, ...]]:
    return {int(row): tuple(map(str, words)) for row, words in entries.items()}


def _origin(entry: Mapping[str, Any]) -> Origin:
    words = ("written", "module", "module_type", "file", "code")
    return Origin(
        **{word: str(entry[word]) for word in words},
        line=int(entry["line"]),
        constant=entry["constant"] is True,
    )
