"""Reads files that others wrote: any damage becomes one error with the place and the remedy.

A file may be anything: missing, a device, endless, not text, deeply nested.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import stat
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

from pytest_sme2.errors import Sme2Error

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

# Far above every document that this project writes: 200 cases take 5 MB.
DOCUMENT_BYTES = 64 << 20


def open_plain(path: Path) -> BinaryIO:
    """Open a plain file for reading; OSError for anything else, which may be endless or block."""
    # Without O_NONBLOCK a pipe without a writer would block.
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "it is not a plain file", str(path))
    return os.fdopen(descriptor, "rb")


@contextlib.contextmanager
def _readable(where: object, what: str, remedy: str, error: type[Sme2Error]) -> Iterator[None]:
    try:
        yield
    except (OSError, ValueError, RecursionError, MemoryError) as reason:
        raise error(f"{where} cannot be read: {what}{_in_short(reason)}. {remedy}") from reason


def read_bytes(
    path: Path, *, remedy: str, limit: int = DOCUMENT_BYTES, error: type[Sme2Error] = Sme2Error
) -> bytes:
    """The content of a plain file of at most ``limit`` bytes."""
    with _readable(path, "", remedy, error), open_plain(path) as file:
        data = file.read(limit + 1)
    if len(data) > limit:
        raise error(f"{path} cannot be read: it has more than {limit >> 20} MiB. {remedy}")
    return data


def read_text_if_there(
    path: Path, *, remedy: str, limit: int = DOCUMENT_BYTES, error: type[Sme2Error] = Sme2Error
) -> str | None:
    """The text of a plain file, or None where there is no such file."""
    try:
        data = read_bytes(path, remedy=remedy, limit=limit, error=error)
    except error as reason:
        if isinstance(reason.__cause__, FileNotFoundError):
            return None
        raise
    with _readable(path, "", remedy, error):
        return data.decode("utf-8-sig")


def read_json(
    path: Path, *, remedy: str, error: type[Sme2Error] = Sme2Error, strict: bool = False
) -> Any:
    data = read_bytes(path, remedy=remedy, error=error)
    return json_value(data, str(path), remedy=remedy, error=error, strict=strict)


def read_members(path: Path) -> Mapping[str, Any]:
    """The members of a JSON object; none where there is no such object to be read."""
    try:
        document = read_json(path, remedy="")
    except Sme2Error:
        return {}
    return document if isinstance(document, dict) else {}


def json_value(
    data: bytes | str,
    where: str,
    *,
    remedy: str,
    error: type[Sme2Error] = Sme2Error,
    strict: bool = False,
) -> Any:
    """The value of a JSON text; ``strict`` refuses infinities and NaN, which JSON does not have,
    and a name that a table has twice, of which a reader may see the other one.
    """
    with _readable(where, "it is not valid JSON: ", remedy, error):
        text = data if isinstance(data, str) else data.decode("utf-8-sig")
        if not strict:
            return json.loads(text)
        return json.loads(text, parse_constant=_refuse_constant, object_pairs_hook=_table)


def read_toml(path: Path, *, remedy: str, error: type[Sme2Error] = Sme2Error) -> Mapping[str, Any]:
    data = read_bytes(path, remedy=remedy, error=error)
    return toml_value(data, str(path), remedy=remedy, error=error)


def toml_value(
    data: bytes | str, where: str, *, remedy: str, error: type[Sme2Error] = Sme2Error
) -> Mapping[str, Any]:
    with _readable(where, "it is not valid TOML: ", remedy, error):
        text = data if isinstance(data, str) else data.decode("utf-8-sig")
        table: Mapping[str, Any] = tomllib.loads(text)
        return table


def _table(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    table = dict(pairs)
    if len(table) < len(pairs):
        ((twice, _),) = Counter(name for name, _ in pairs).most_common(1)
        raise ValueError(f"{twice!r} stands twice in one table")
    return table


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not a number")


def _in_short(reason: Exception) -> str:
    if isinstance(reason, RecursionError):
        return "it is nested too deeply"
    if isinstance(reason, MemoryError):
        return "it does not fit into memory"
    if isinstance(reason, UnicodeDecodeError):
        return f"byte {reason.start} is not UTF-8"
    return getattr(reason, "strerror", None) or str(reason)[:300]
