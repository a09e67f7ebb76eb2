"""The devices programs run on, and which one the user means."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pytest_sme2.emulator import find_qemu
from pytest_sme2.errors import TargetError
from pytest_sme2.results import Fingerprint
from pytest_sme2.settings import Settings, parse_device
from pytest_sme2.targets.base import Target
from pytest_sme2.targets.emulated import EmulatedTarget
from pytest_sme2.targets.local import LocalTarget

__all__ = ["EmulatedTarget", "LocalTarget", "Target", "choose_target"]


def choose_target(
    settings: Settings,
    *,
    run: str | None = None,
    soc: str | None = None,
    like: Fingerprint | None = None,
    wait_seconds: float = 3600.0,
    progress: Callable[[str], None] | None = None,
) -> Target:
    """The target the settings ask for; ``run`` names a run whose workers share their phones.

    Of several phones, ``soc`` and ``like`` ask for one of a kind (``phones.lease_phone``); where
    all are in use, one is waited for.

    ``auto`` is this machine if it has SME2, else the emulator if there is one, else this machine
    without SME2, whose capabilities then say why.
    """
    device = parse_device(settings.device)
    if device == "android":
        return _phone(settings, run, soc=soc, like=like, timeout=wait_seconds, progress=progress)
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


def _phone(settings: Settings, run: str | None, **wishes: Any) -> Target:
    """A phone that is this process's own from here on, until it is restored."""
    options: dict[str, Any] = {
        "progress": wishes.pop("progress"),
        "patience_seconds": min(15.0, settings.patience_seconds),
        "power_mode": settings.power_mode,
        "fixed_performance": settings.fixed_performance,
        "cpus": settings.cpus,
    }
    # What only phones need is imported only for them.
    if settings.fake_phone:
        from pytest_sme2.fake_phone.lab import open_fake_phone

        return open_fake_phone(settings.qemu, **options)
    from pytest_sme2.targets.phones import lease_phone, open_pool, open_server

    server = open_server(settings.adb_server)
    pool = open_pool(server, settings.serials, run=run)
    return lease_phone(server, pool, **wishes, **options)


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
