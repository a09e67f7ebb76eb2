"""The command that measures a case again.

It is one of ``sme2 run``: that needs no test, so it works wherever the model is.
"""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from pytest_sme2.results import AS_EXPORTED, FORWARD
from pytest_sme2.session.options import OPTIONS
from pytest_sme2.session.settings import PHONE, Settings
from pytest_sme2.system.files import from_here

if TYPE_CHECKING:
    from pytest_sme2.session.cases import Case
    from pytest_sme2.session.run_directory import CaseRecord


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
