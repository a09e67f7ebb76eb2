"""The run directory: what was measured about each case, written by one process, read by any.

The ETDumps are the source of truth, so profiles are not stored: they are read from the dumps
again. Everything else about a case stands in its ``metrics.json``, how it was made in its
``manifest.json``. It belongs to one run at a time: the files of two would be taken for one's.

What one pytest run did with the tests that it found. The runs of many machines merge by it.
"""

from __future__ import annotations

import contextlib
import json
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_sme2.errors import BusyError, Sme2Error, UsageError
from pytest_sme2.profile.beside import kept_origins, kept_shapes
from pytest_sme2.profile.build import build_profiles
from pytest_sme2.profile.coverage import named_by_chip
from pytest_sme2.results.case import RUNTIME, CaseResult, Check, Limits
from pytest_sme2.results.evidence import KernelCensus, KernelFamily
from pytest_sme2.results.profile import Profile
from pytest_sme2.results.run import AS_EXPORTED, FORWARD, Arm, Fingerprint
from pytest_sme2.results.timing import PairedTiming
from pytest_sme2.session.options import OPTIONS
from pytest_sme2.session.settings import PHONE, Settings
from pytest_sme2.system.files import (
    decode,
    encode,
    from_here,
    inside,
    read_json,
    unwritable,
    write_json,
    write_text,
)
from pytest_sme2.system.locks import holder_of, locked
from pytest_sme2.trace.etdump import read_etdump
from pytest_sme2.verdict.contract import Asked

if TYPE_CHECKING:
    from pytest_sme2.session.cases import Case

METRICS = "metrics.json"
MANIFEST = "manifest.json"
SCHEMA = 2
LOCK = ".run.lock"


@dataclass(frozen=True)
class CaseRecord:
    """One case as it stands in the run directory."""

    schema: int
    id: str
    measured: CaseResult
    measurement: PairedTiming | None
    checks: tuple[Check, ...]
    etdumps: Mapping[Arm, str]
    """By arm, the traced run's ETDump, relative to the record's folder."""
    state: Mapping[str, str] = field(default_factory=dict)
    """The device's state that is not part of its fingerprint: battery, screen, heat …"""
    remembered: tuple[Arm, ...] = ()
    """The arms whose emulated run was made before and taken from the cache."""
    reproduce: str = ""
    """The command that measures the case again, in the folder where it was measured."""
    limits: Limits | None = None
    """Those that its checks were judged by."""


def write_record(folder: Path, record: CaseRecord) -> None:
    slim = encode(replace(record, measured=replace(record.measured, profiles={})))
    # On one line: laying it out takes six times as long.
    text = json.dumps(slim, ensure_ascii=False, separators=(",", ":"))
    write_text(folder / METRICS, f"{text}\n")


def read_profile(
    etdump: Path,
    census: KernelCensus | None,
    fingerprint: Fingerprint,
    executed: Sequence[KernelFamily] | None = None,
    executorch: str = "",
) -> Profile:
    """Where the time of a traced run goes, with what was kept beside its ETDump."""
    profile = build_profiles(
        read_etdump(etdump),
        census=census,
        executed=executed,
        executorch=executorch,
        attribution=kept_origins(etdump),
        shapes=kept_shapes(etdump),
    )[0]
    return named_by_chip(profile, census, fingerprint.sme1)


def read_record(folder: Path) -> CaseRecord:
    """The case in ``folder``, with its profiles rebuilt from the ETDumps."""
    path = folder / METRICS
    if not path.exists():
        raise UsageError(f"{folder} is not a case of a run directory: it has no {METRICS}.")
    document: Any = read_json(path, remedy="Run the case again.")
    if isinstance(document, dict) and document.get("schema") not in (SCHEMA, None):
        raise Sme2Error(
            f"{path} is of schema {document['schema']!r}, this version reads {SCHEMA}. "
            "Use the version that wrote it, or run the case again."
        )
    record: CaseRecord = decode(document, CaseRecord, path)
    profiles = {}
    for arm, name in record.etdumps.items():
        try:
            etdump = inside(folder, name)
        except ValueError as error:
            raise Sme2Error(f"{path} is damaged: {error}. Run the case again.") from error
        measured, census = record.measured, record.measured.kernels.get(arm)
        executed, executorch = measured.executed(arm), measured.versions.get(RUNTIME, "")
        try:
            profiles[arm] = read_profile(etdump, census, measured.fingerprint, executed, executorch)
        except Sme2Error as error:
            raise type(error)(f"{path} names an ETDump that cannot be used: {error}") from error
    return replace(record, measured=replace(record.measured, profiles=profiles))


def find_records(root: Path) -> Iterator[Path]:
    """The folders of all cases below a run directory, sorted; ``root`` may be one itself."""
    yield from sorted(path.parent for path in root.rglob(METRICS))


def _make_ignored_folder(folder: Path) -> None:
    """Make a folder for results, which git then ignores. One that is there stays as it is."""
    if folder.is_dir() and any(folder.iterdir()):
        return
    folder.mkdir(parents=True, exist_ok=True)
    (folder / ".gitignore").write_text("# Results of pytest-sme2\n*\n", encoding="utf-8")


def hold_run_directory(folder: Path) -> contextlib.ExitStack:
    """A run directory that is this run's until that is closed, or the process ends.

    Raises UsageError where another run uses it.
    """
    held = contextlib.ExitStack()
    try:
        _make_ignored_folder(folder)
        held.enter_context(locked(folder / LOCK, "using it", timeout_seconds=0))
    except BusyError:
        raise UsageError(
            f"{folder} is in use by another run{holder_of(folder / LOCK)}. Wait for it, or give "
            "this one a folder of its own: --sme2-out (pytest), --out (sme2 run)."
        ) from None
    except OSError as error:
        raise unwritable(folder, error) from error
    return held


TESTS = "tests.json"
SHARD_SCHEMA = 3
_REMEDY = "Run this shard again."


@dataclass(frozen=True)
class Shard:
    """One run of pytest, alone or as a part of a larger one."""

    schema: int
    exit_code: int
    tests: Mapping[str, str] = field(default_factory=dict)
    """By node id: ``passed``, ``failed``, ``error`` or ``skipped``."""
    found: tuple[str, ...] = ()
    """All tests, also those that were left to other machines; empty where that is not known."""
    number: int | None = None
    """From 1; None where no plugin that shards is in use."""
    of: int | None = None
    asked: Asked | None = None
    """None of a run that compares nothing, such as an update of baselines."""
    cases: tuple[str, ...] = ()
    """The folders of its cases, inside of the run directory."""
    problems: tuple[str, ...] = ()
    """What else made it red, besides its tests and its checks."""


def write_shard(out: Path, shard: Shard) -> None:
    write_json(out / TESTS, encode(shard))


def read_shard(folder: Path) -> Shard:
    path = folder / TESTS
    if not path.is_file():
        raise UsageError(
            f"{str(folder)!r} is not the run directory of a pytest run: it has no {TESTS}. Give "
            "the folder that --sme2-out named."
        )
    shard: Shard = decode(read_json(path, remedy=_REMEDY, strict=True), Shard, path, remedy=_REMEDY)
    if shard.schema != SHARD_SCHEMA:
        raise UsageError(
            f"{path} is of schema {shard.schema}, this version reads {SHARD_SCHEMA}. {_REMEDY}"
        )
    return shard


# The command that measures a case again is one of `sme2 run`: that needs no test, so it works
# wherever the model is.
_SAID = ("weights", "runner", "cpu", "arms", "serial")


def reproduce_command(record: CaseRecord) -> str:
    """As the record has it; for one of an older version, what can be said without it."""
    measured = record.measured
    if record.reproduce or measured.variant == AS_EXPORTED:
        return record.reproduce or "sme2 run --config EXPERIMENT.json"
    return shlex.join(_words(measured.model, measured.variant, measured.fingerprint.target))


# What `sme2 advise` does not take: it runs each variant once, with SME2 on, on one thread.
_RUN_ALONE = ("--threads", "--weights", "--arms")


def advise_command(record: CaseRecord, rewrite: str) -> str:
    """The advice on the same case, found and run as the case was."""
    ran = shlex.split(reproduce_command(record))
    if "--config" in ran:
        # A file of experiments names a program; the advice is on the model that it is of.
        measured = record.measured
        ran = _words(measured.model, measured.variant, measured.fingerprint.target)
    given = iter(ran[2:])
    words = ["sme2", "advise"]
    for word in given:
        if word in _RUN_ALONE:
            next(given, "")
        else:
            words.append("--variants" if word == "--variant" else word)
    return shlex.join([*words, *(("--try", rewrite) if rewrite else ())])


def _words(model: str, variant: str, device: str) -> list[str]:
    return ["sme2", "run", model, "--variant", variant, "--device", device]


def run_command(case: Case, settings: Settings, device: str) -> str:
    """For a shell, with everything that was chosen about the case and its device."""
    pte = case.unusable if case.program is None else case.program.pte
    words = _words(case.model, case.variant_name, device)
    if pte is not None:
        method = [] if case.method in (None, FORWARD) else ["--method", str(case.method)]
        words = ["sme2", "run", str(pte), *method, "--device", device]
    if case.threads != 1:
        words += ["--threads", str(case.threads)]
    # The command is typed where the run was made.
    folders = [str(from_here(folder)) for folder in settings.model_folders]
    for folder in folders if folders != ["models"] else ():
        words += ["--models-folder", folder]
    for option in OPTIONS:
        if option.name in ("phone", *_SAID):
            words += _said(f"--{option.name}", option.field, settings)
    return shlex.join(words)


def _said(flag: str, field: str, settings: Settings) -> list[str]:
    """An option as it is typed, where it was chosen."""
    if not field:
        names = {name: field for name, (field, _) in PHONE.items() if name != "patience"}
        said = (_said(name, field, settings) for name, field in names.items())
        return [word for words in said if words for word in (flag, "=".join(words))]
    value = getattr(settings, field)
    if value == getattr(Settings(), field):
        return []
    if value is True:
        return [flag]
    if field == "serials":
        return [word for serial in value for word in (flag, serial)]
    if isinstance(value, tuple):
        value = ",".join(map(str, value))
    return [flag, f"{value:g}" if isinstance(value, float) else str(value)]
