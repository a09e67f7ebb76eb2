"""The devices programs run on, and which one the user means."""

from __future__ import annotations

from pytest_sme2.emulator import find_qemu
from pytest_sme2.errors import TargetError
from pytest_sme2.settings import Settings, parse_device
from pytest_sme2.targets.base import Target
from pytest_sme2.targets.emulated import EmulatedTarget
from pytest_sme2.targets.local import LocalTarget

__all__ = ["EmulatedTarget", "LocalTarget", "Target", "choose_target"]


def choose_target(settings: Settings) -> Target:
    """The target the settings ask for.

    ``auto`` is this machine if it has SME2, else the emulator if there is one, else this machine
    without SME2, whose capabilities then say why.
    """
    device = parse_device(settings.device)
    if device == "emulated":
        return EmulatedTarget(find_qemu(settings.qemu))
    if device == "auto":
        return _automatic(settings)
    local = LocalTarget()
    if local.name != device:
        raise TargetError(
            f"The device {device!r} is a machine of its own kind, and this one is "
            f"{local.name!r}. Choose {local.name}, emulated or auto."
        )
    return local


def _automatic(settings: Settings) -> Target:
    local = LocalTarget()
    if local.capabilities().sme2:
        return local
    try:
        return EmulatedTarget(find_qemu(settings.qemu))
    except TargetError as error:
        if settings.qemu is not None:
            raise
        return LocalTarget(note=f"Nor can it be emulated: {error}")
