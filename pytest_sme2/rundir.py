"""The run directory: what was measured about each case, written by one process, read by any.

The ETDumps are the source of truth, so profiles are not stored: they are read from the dumps
again. Everything else about a case stands in its ``metrics.json``, how it was made in its
``manifest.json``.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_sme2.errors import Sme2Error, StorageError, UsageError
from pytest_sme2.results import Arm, Check, Measured, Measurement

if TYPE_CHECKING:
    from pytest_sme2.categories import Rule

METRICS = "metrics.json"
MANIFEST = "manifest.json"
SCHEMA = 2


@dataclass(frozen=True)
class CaseRecord:
    """One case as it stands in the run directory."""

    schema: int
    id: str
    measured: Measured
    measurement: Measurement | None
    checks: tuple[Check, ...]
    etdumps: Mapping[Arm, str]
    """By arm, the traced run's ETDump, relative to the record's folder."""
    state: Mapping[str, str] = field(default_factory=dict)
    """The device's state as far as it is no part of its fingerprint: battery, screen, heat …"""
    remembered: tuple[Arm, ...] = ()
    """The arms whose emulated run was made before and taken from the cache."""


def experiment_folder(case_folder: Path, target: str, arm: Arm) -> Path:
    """Where one arm's files lie."""
    return case_folder / f"{target}_sme2_{arm}"


def write_text(path: Path, text: str) -> None:
    """Replace a file whole: a reader sees the old one or the new one, never half of it."""
    try:
        _replace(path, text)
    except OSError as error:
        raise unwritable(path, error) from error


def unwritable(path: Path, error: OSError) -> StorageError:
    """What to say about a file of the run directory, or a report, that cannot be written."""
    return StorageError(
        f"{path}: cannot be written: {error.strerror or error}. Make room in {path.parent}, or "
        "choose another folder: --sme2-out, --sme2-report (pytest), --out, --html (sme2)."
    )


def _replace(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=".", suffix=".part")
    temporary = Path(name)
    try:
        # A name may hold what is no valid text; a report must not fail on it.
        with os.fdopen(
            handle, "w", encoding="utf-8", errors="backslashreplace", newline=""
        ) as stream:
            stream.write(text)
        # mkstemp makes files that only their owner may read.
        temporary.chmod(0o666 & ~_umask())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def write_json(path: Path, value: object) -> None:
    write_text(path, json.dumps(value, indent=1, ensure_ascii=False) + "\n")


def write_record(folder: Path, record: CaseRecord) -> None:
    slim = replace(record, measured=replace(record.measured, profiles={}))
    write_json(folder / METRICS, _converter().unstructure(slim))


def read_record(folder: Path, *, rules: Sequence[Rule] = ()) -> CaseRecord:
    """The case in ``folder``, with its profiles rebuilt from the ETDumps."""
    from pytest_sme2.etdump import read_etdump
    from pytest_sme2.profile import build_profile
    from pytest_sme2.shapes import kept_shapes

    path = folder / METRICS
    try:
        document: Any = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UsageError(
            f"{folder} is not a case of a run directory: it has no {METRICS}."
        ) from None
    except (OSError, ValueError, RecursionError) as error:
        raise Sme2Error(f"{path} cannot be read: {error}. Run the case again.") from error
    if isinstance(document, dict) and document.get("schema") not in (SCHEMA, None):
        raise Sme2Error(
            f"{path} is of schema {document['schema']!r}, this version reads {SCHEMA}. "
            "Use the version that wrote it, or run the case again."
        )
    record: CaseRecord = decode(document, CaseRecord, path)
    profiles = {}
    for arm, name in record.etdumps.items():
        try:
            columns = read_etdump(folder / name)
        except Sme2Error as error:
            raise type(error)(f"{path} names an ETDump that cannot be used: {error}") from error
        profiles[arm] = build_profile(
            columns,
            rules=rules,
            census=record.measured.kernels.get(arm),
            shapes=kept_shapes(folder / name),
        )
    return replace(record, measured=replace(record.measured, profiles=profiles))


def find_records(root: Path) -> Iterator[Path]:
    """The folders of all cases below a run directory, sorted; ``root`` may be one itself."""
    yield from sorted(path.parent for path in root.rglob(METRICS))


def _converter() -> Any:
    from cattrs.preconf.json import make_converter

    return make_converter()


def encode(value: object) -> Any:
    """A value of results.py as JSON's own types."""
    return _converter().unstructure(value)


def decode(document: Any, kind: Any, where: Path | str) -> Any:
    """A value of results.py from JSON's own types, or an error that names the field."""
    import cattrs

    try:
        return _converter().structure(document, kind)
    except Exception as error:  # cattrs gathers whatever the fields raised into a group
        reasons = cattrs.transform_error(error)
        raise Sme2Error(
            f"{where} is damaged: {'; '.join(reasons[:3])}. Run the case again."
        ) from error
