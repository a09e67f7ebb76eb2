"""Emulated runs that were made before: the same program on the same emulator does the same again.

Operators, kernels and outputs of an emulated run depend on nothing but what is in its key; times
do, and are never used. So a run that is asked for again is taken from the cache, and a suite in
which one model changed emulates that model alone.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import hashlib
import json
import platform
import shutil
from pathlib import Path

from pytest_sme2.errors import Sme2Error, StorageError
from pytest_sme2.results import CountedInference, KernelCensus, RunRequest
from pytest_sme2.runners.base import Runner
from pytest_sme2.system.cache import cache_folder, mark_used, put_in_place, working_folder
from pytest_sme2.system.files import decode, encode, file_sha256, inside
from pytest_sme2.system.locks import locked
from pytest_sme2.system.reading import read_json
from pytest_sme2.targets.base import RESULT_NAME, Job, make_place, read_files
from pytest_sme2.targets.census import EmulatedRun, observed_run
from pytest_sme2.targets.emulated import EmulatedTarget

_RECORD = "remembered.json"
# What a census and counts are made by: with other code, a run must be looked at again.
_CODE = (
    "system/elf.py",
    "trace/block_counter.c",
    "trace/code_map.py",
    "trace/cost_log.py",
    "trace/instructions.py",
    "trace/kernel_log.py",
    "targets/base.py",
    "targets/census.py",
    "targets/emulated.py",
    "targets/guest.py",
    "targets/remembered.py",
)


def remembered_run(
    target: EmulatedTarget,
    runner: Runner,
    request: RunRequest,
    folder: Path,
    *,
    fresh: bool = False,
    cache: Path | None = None,
) -> tuple[EmulatedRun, bool]:
    """A run, and whether it was made before; ``fresh``: run it in any case."""
    kept = (cache or cache_folder()) / "emulated" / run_key(target, runner, request)
    job = Job(runner, request, folder)
    found = None if fresh else _recall(target, job, kept)
    if found is not None:
        return found, True
    made = observed_run(target, runner, request, folder)
    _keep(made, folder, kept)
    return made, False


def run_key(target: EmulatedTarget, runner: Runner, request: RunRequest) -> str:
    """Everything that operators, kernels and outputs depend on, as one hash."""
    package = Path(__file__).parent.parent
    asked = {
        field.name: getattr(request, field.name)
        for field in dataclasses.fields(request)
        # How long it may take, and where, changes nothing about what is computed.
        if field.name not in ("artifact", "timeout_seconds", "cpus")
    }
    parts = {
        "code": [_file_hash(package / name) for name in _CODE],
        "machine": platform.machine(),
        "emulator": [_file_hash(target.qemu.path), *target.launcher(request.arm)[1:]],
        "environment": dict(target.environment),
        "runner": [runner.kind, runner.sha256],
        "program": [request.artifact.sha256, request.artifact.method],
        "inputs": [file_sha256(path) for path in request.artifact.input_files],
        "earlier": [file_sha256(path) for path in request.artifact.earlier_files],
        "request": asked,
    }
    text = json.dumps(parts, sort_keys=True, default=str)
    return hashlib.sha256(text.encode(errors="surrogateescape")).hexdigest()[:32]


@functools.cache
def _file_hash(path: Path) -> str:
    return file_sha256(path)


def _recall(target: EmulatedTarget, job: Job, kept: Path) -> EmulatedRun | None:
    """The run that is kept there, put where the job wants it; None where there is no whole one."""
    try:
        record = read_json(kept / _RECORD, remedy="")
        census: KernelCensus = decode(record["census"], KernelCensus, kept)
        counted: CountedInference | None = decode(record["counted"], CountedInference | None, kept)
        place = make_place(job)
        for name, digest in record["files"].items():
            copy = inside(job.folder, name)
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.unlink(missing_ok=True)
            shutil.copyfile(inside(kept, name), copy)
            # The copy, not what is kept: another machine may write there meanwhile.
            if file_sha256(copy) != digest:
                return None
        run = read_files(target.name, job, place, emulated=True)
        mark_used(kept)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError, Sme2Error):
        # Never kept, or damaged since: it is made again, and says itself what is wrong here.
        return None
    return EmulatedRun(run, census, counted)


def _keep(made: EmulatedRun, folder: Path, kept: Path) -> None:
    run = made.run
    here = folder.absolute()
    written = [run.log, run.etdump, *(output.file for output in run.outputs)]
    names = [path.absolute().relative_to(here) for path in written if path is not None]
    if (here / RESULT_NAME).is_file():  # a stock runner leaves none
        names.append(Path(RESULT_NAME))
    record = {
        "census": encode(made.census),
        "counted": encode(made.counted),
        "files": {str(name): file_sha256(folder / name) for name in names},
    }
    # The run itself is whole: a full or read-only cache only means to run it once more.
    with (
        contextlib.suppress(OSError, StorageError),
        locked(Path(f"{kept}.lock"), f"writing {kept}"),
        working_folder(kept) as temporary,
    ):
        for name in names:
            (temporary / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(folder / name, temporary / name)
        (temporary / _RECORD).write_text(json.dumps(record), encoding="utf-8")
        put_in_place(temporary, kept)
