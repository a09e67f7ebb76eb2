"""What an operator's name says of SME2 on a device, where no instruction is seen: a table for each
version of ExecuTorch, made by running that version on the emulator. Nothing is guessed.

``python -m tools.names`` makes the tables that are shipped. Of other versions, and for names that
no table has, each counted run on the emulator adds what it saw to a table in the cache.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from packaging.version import Version

from pytest_sme2.errors import Sme2Error, UsageError
from pytest_sme2.results.profile import Operator
from pytest_sme2.results.run import PAIR, Arm
from pytest_sme2.system.cache import cache_folder, trusted
from pytest_sme2.system.files import decode, encode, read_json, safe_name, write_text
from pytest_sme2.system.locks import locked

SCHEMA = 1
_REMEDY = "Remove it, and run the program on the emulator again."
_SHIPPED = Path(__file__).parent / "names"


@dataclass(frozen=True)
class KnownName:
    """The kernels with most of the instructions, in all runs: empty where they have no name."""

    sme2: tuple[str, ...] = ()
    sme1: tuple[str, ...] = ()
    other: tuple[str, ...] = ()
    """Of runs with and without SME2 where it executed no instruction of streaming mode."""


@dataclass(frozen=True)
class NameTable:
    executorch: str
    names: Mapping[str, KnownName] = field(default_factory=dict)
    schema: int = SCHEMA


def read_table(path: Path) -> NameTable:
    document = read_json(path, remedy=_REMEDY, error=UsageError)
    table: NameTable = decode(document, NameTable, path, remedy=_REMEDY, error=UsageError)
    if table.schema != SCHEMA:
        raise UsageError(f"{path} has schema {table.schema}, this version reads {SCHEMA}.")
    return table


def write_table(table: NameTable, path: Path) -> None:
    """One line per name."""
    rows = (f"{json.dumps(name)}: {json.dumps(encode(table.names[name]))}" for name in
            sorted(table.names))  # fmt: skip
    head = f'{{"schema": {SCHEMA}, "executorch": {json.dumps(table.executorch)}, "names": {{\n'
    write_text(path, head + ",\n".join(rows) + "\n}}\n")


@functools.cache
def shipped_tables() -> Mapping[str, NameTable]:
    """By version of ExecuTorch, oldest first."""
    tables = [read_table(path) for path in _SHIPPED.glob("*.json")]
    return {each.executorch: each for each in sorted(tables, key=lambda e: Version(e.executorch))}


def table_of(executorch: str) -> NameTable:
    """What is known of one version; of ETDumps that do not say theirs, what the newest does."""
    shipped = shipped_tables()
    base = shipped.get(executorch or [*shipped][-1], NameTable(executorch))
    with contextlib.suppress(OSError, Sme2Error):
        made = read_table(trusted(_made(base.executorch), cache_folder()))
        return NameTable(base.executorch, {**made.names, **base.names})
    return base


def seen_names(runs: Mapping[Arm, Sequence[tuple[Operator, str]]]) -> dict[str, KnownName]:
    """What the arms of one program show, whose operators are those that executed instructions
    prove; each with its kernel. Of one arm alone, a name could mean something else on the other.
    """
    if not runs.keys() >= set(PAIR):
        return {}
    found: dict[str, dict[str, set[str]]] = {}
    for operator, kernel in itertools.chain.from_iterable(runs.values()):
        if operator.matrix or operator.kind == "depthwise":
            place = "sme1" if operator.sme1 else "sme2" if operator.sme2 else "other"
            found.setdefault(operator.name, {}).setdefault(place, set()).add(kernel)
    return {
        name: KnownName(**{place: tuple(sorted(kernels)) for place, kernels in places.items()})
        for name, places in found.items()
    }


def keep_names(executorch: str, seen: Mapping[str, KnownName]) -> None:
    """Add what counted runs saw of names that the table does not have."""
    known = table_of(executorch).names
    new = {name: each for name, each in seen.items() if name not in known}
    if not (new and executorch):
        return
    path = _made(executorch)
    # Without it the next run on a device says what to do.
    with contextlib.suppress(OSError, Sme2Error), locked(Path(f"{path}.lock"), f"writing {path}"):
        write_table(NameTable(executorch, {**table_of(executorch).names, **new}), path)


def _made(executorch: str) -> Path:
    return cache_folder() / "names" / f"{safe_name(executorch)}.json"
