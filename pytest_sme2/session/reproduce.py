"""The command that measures a case again. Pure.

It is one of ``sme2 run``: that needs no test, so it works wherever the model is.
"""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_sme2.results import AS_EXPORTED, FORWARD, PAIR, CaseResult
from pytest_sme2.session.settings import Settings

if TYPE_CHECKING:
    from pytest_sme2.session.cases import Case
    from pytest_sme2.session.run_directory import CaseRecord


def reproduce_command(record: CaseRecord) -> str:
    """As the record has it; for one of an older version, what can be said without it."""
    return record.reproduce or _of_result(record.measured)


def _of_result(measured: CaseResult) -> str:
    if measured.variant == AS_EXPORTED:
        return "sme2 run --config EXPERIMENT.json"
    return shlex.join(_words(measured.model, measured.variant, measured.fingerprint.target))


def _words(model: str, variant: str, device: str) -> list[str]:
    return ["sme2", "run", model, "--variant", variant, "--device", device]


def _program_words(pte: Path, method: str | None, device: str) -> list[str]:
    chosen = [] if method in (None, FORWARD) else ["--method", str(method)]
    return ["sme2", "run", str(pte), *chosen, "--device", device]


def run_command(case: Case, settings: Settings, device: str) -> str:
    """For a shell, with everything that was chosen about the case and its device."""
    pte = case.unusable if case.program is None else case.program.pte
    if pte is None:
        words = _words(case.model, case.variant_name, device)
    else:
        words = _program_words(pte, case.method, device)
    if case.threads != 1:
        words += ["--threads", str(case.threads)]
    folders = [] if settings.model_folders == (Path("models"),) else settings.model_folders
    for folder in folders:
        words += ["--models-folder", str(folder)]
    files = {
        "--weights": settings.weights,
        "--qemu": settings.qemu,
        "--runner-on": settings.runner_on,
        "--runner-off": settings.runner_off,
        "--device-bundle": settings.device_bundle,
        "--sme2-cpu": settings.emulated_cpu,
        "--adb-server": settings.adb_server,
        "--max-celsius": settings.max_celsius,
    }
    for flag, value in files.items():
        if value is not None:
            words += [flag, f"{value:g}" if isinstance(value, float) else str(value)]
    for serial in settings.serials:
        words += ["--serial", serial]
    if device == "android" and settings.power_mode != "keep":
        words += ["--power-mode", settings.power_mode]
    if settings.cpus:
        cpus = settings.cpus
        words += ["--cpus", cpus if isinstance(cpus, str) else ",".join(map(str, cpus))]
    if settings.arms != PAIR:
        words += ["--sme2-arms", ",".join(settings.arms)]
    switches = {
        "--fixed-performance": settings.fixed_performance,
        "--sme2-fake-phone": settings.fake_phone,
        "--no-cost": settings.no_cost,
    }
    return shlex.join([*words, *(flag for flag, chosen in switches.items() if chosen)])
