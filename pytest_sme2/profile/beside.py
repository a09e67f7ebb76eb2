"""The files beside an ETDump that remember its program: shapes, and where operators come from.

The program may be gone later. The ETRecord may be, too; it is large, since it holds the weights.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from pytest_sme2.errors import EtdumpError, ProgramError, Sme2Error
from pytest_sme2.results.run import FORWARD, Attribution, MethodShapes, Origin
from pytest_sme2.system.files import file_state, json_value, read_bytes, structured, write_text
from pytest_sme2.trace.etrecord import read_attribution
from pytest_sme2.trace.program import read_program

SHAPES, ORIGINS = ".shapes.json", ".origins.json"
# Of both files. 1: the first.
SCHEMA = 1
_REMEDY = "Remove it, or run the model again."
_Value = TypeVar("_Value")


def beside(etdump: Path, suffix: str) -> Path:
    return etdump.with_name(etdump.name.removesuffix(".etdump") + suffix)


def _text(values: Mapping[str, object]) -> str:
    text = json.dumps({"schema": SCHEMA, **values}, default=vars, separators=(",", ":"))
    return f"{text}\n"


def _read(path: Path, error: type[Sme2Error], made: Callable[[Any], _Value]) -> _Value | None:
    """What ``made`` makes of the document; None where there is none."""
    if not path.is_file():
        return None
    data = read_bytes(path, remedy=_REMEDY, error=error)
    try:
        found: _Value = _value(data, made)
        return found
    except (Sme2Error, ValueError, KeyError, TypeError, AttributeError) as reason:
        raise error(f"{path} cannot be used: {str(reason).rstrip(' .')}. {_REMEDY}") from reason


@functools.lru_cache(maxsize=4)
def _value(data: bytes, made: Callable[[Any], _Value]) -> _Value:
    """Both arms of a case have the same, which is asked for several times."""
    document = json_value(data, "its text", remedy="", strict=True)
    if document["schema"] != SCHEMA:
        raise ValueError(f"its schema is {document['schema']!r}, this version reads {SCHEMA}")
    return made(document)


def keep_shapes(
    etdump: Path, program: Path, say: Callable[[str], None], method: str = FORWARD
) -> None:
    """Remember the method that ran: another may have the same operators in other sizes.

    Shapes help, but no run fails for want of them: a program in a format of its own still runs.
    """
    path = beside(etdump, SHAPES)
    try:
        methods = [found for found in read_program(program) if found.name == method]
    except ProgramError as error:
        path.unlink(missing_ok=True)
        say(f"the shapes of operators stay unknown: {error}")
        return
    write_text(path, _text({"methods": methods}))


def kept_shapes(etdump: Path) -> tuple[MethodShapes, ...]:
    """What ``keep_shapes`` wrote; nothing where it did not."""
    return _read(beside(etdump, SHAPES), ProgramError, _methods) or ()


def _methods(document: Any) -> tuple[MethodShapes, ...]:
    methods: tuple[MethodShapes, ...] = structured(document["methods"], tuple[MethodShapes, ...])
    return methods


def keep_origins(
    etdump: Path, etrecord: Path | None, say: Callable[[str], None], method: str = FORWARD
) -> None:
    """Remember what the ETRecord says of the method; a run does not fail for want of it."""
    path = beside(etdump, ORIGINS)
    path.unlink(missing_ok=True)
    if etrecord is None:
        return
    try:
        text = _origins_text(etrecord, method, file_state(etrecord), Path.cwd())
    except EtdumpError as error:
        say(f"where operators come from stays unknown: {error}")
        return
    write_text(path, text)


@functools.lru_cache(maxsize=1)
def _origins_text(etrecord: Path, method: str, _state: object, _here: Path) -> str:
    """Both arms of a case have the same ETRecord."""
    read = read_attribution(etrecord, method)
    # Thousands of operators share a few files.
    from_here = functools.cache(_from_here)

    def moved(origin: Origin) -> Origin:
        way = tuple(frame._replace(file=from_here(frame.file)) for frame in origin.way)
        return replace(origin, file=from_here(origin.file), way=way)

    origins = {row: moved(origin) for row, origin in read.origins.items()}
    nodes = {
        row: [(name, moved(origin)) for name, origin in members]
        for row, members in read.nodes.items()
    }
    return _text({**vars(read), "origins": origins, "nodes": nodes})


def _from_here(file: str) -> str:
    """A file of this folder by its path from here: an export may have been made in another copy."""
    parts = Path(file).parts
    endings = (Path(*parts[first:]) for first in range(1, len(parts)))
    return next((path.as_posix() for path in endings if path.is_file()), file)


def kept_origins(etdump: Path) -> Attribution | None:
    """What ``keep_origins`` wrote; None where it did not."""
    return _read(beside(etdump, ORIGINS), EtdumpError, _attribution)


def _attribution(document: Any) -> Attribution:
    attribution: Attribution = structured(document, Attribution)
    return attribution
