"""The command that measures a case again. Pure.

It is one of ``sme2 run``: that needs no test, so it works wherever the model is.
"""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_sme2.results import AS_EXPORTED, FORWARD, CaseResult
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
    cpus = settings.cpus
    phone = {
        "adb-server": settings.adb_server,
        "bundle": settings.device_bundle,
        "max-celsius": None if settings.max_celsius is None else f"{settings.max_celsius:g}",
        "power-mode": None if settings.power_mode == "keep" else settings.power_mode,
        "cpus": (cpus if isinstance(cpus, str) else ",".join(map(str, cpus))) or None,
    }
    values = [
        ("--weights", settings.weights),
        ("--qemu", settings.qemu),
        ("--runner-on", settings.runner_on),
        ("--runner-off", settings.runner_off),
        ("--cpu", settings.emulated_cpu),
        *(("--serial", serial) for serial in settings.serials),
        *(("--phone", f"{name}={value}") for name, value in phone.items() if value is not None),
        ("--phone", "fixed-performance" if settings.fixed_performance else None),
    ]
    words += [str(word) for entry in values if entry[1] is not None for word in entry]
    switches = {"--fake-phone": settings.fake_phone, "--no-cost": settings.no_cost}
    return shlex.join([*words, *(flag for flag, given in switches.items() if given)])
