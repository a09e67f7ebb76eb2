"""The device a run works on: chosen when first needed, exchanged when it dies or another is asked.

What is measured on it is the business of ``session.py``; how a phone is leased, of ``targets``.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from pytest_sme2.errors import (
    ConnectionLostError,
    DeviceGoneError,
    NoDeviceLeftError,
    NotMeasurableError,
    Sme2Error,
    TargetError,
)
from pytest_sme2.results import FarmDevice, Fingerprint
from pytest_sme2.session.settings import Settings
from pytest_sme2.system import provision
from pytest_sme2.system.platforms import emulated_on
from pytest_sme2.system.qemu import DEFAULT_CPU, Qemu, find_qemu, parse_cpu
from pytest_sme2.system.terminal import Say
from pytest_sme2.targets.base import Target
from pytest_sme2.targets.emulated import EmulatedTarget
from pytest_sme2.targets.local import this_machine
from pytest_sme2.targets.settings import parse_device

if TYPE_CHECKING:
    from pytest_sme2.targets.phone.leases import Leased

# What of a fingerprint may name the chip.
_CHIP = ("soc", "cpu", "model")
_SYSTEMS = {"mac": "macOS", "linux": "Linux"}


class Farm(Protocol):
    """Who hands out phones and takes them back."""

    def acquire(self, soc: str | None) -> FarmDevice | None: ...

    def release(self, device: FarmDevice, *, lost: bool) -> None: ...


class HeldDevice:
    """One device at a time, for the whole of a worker's run."""

    def __init__(
        self, settings: Settings, run: Callable[[], str], say: Say, farm: Farm | None = None
    ) -> None:
        """``run`` names the run, so that its workers share their phones."""
        self.settings = settings
        self.farm = farm
        self._handed: FarmDevice | None = None
        self.soc: str | None = None
        """What the running test asks for; None: any device will do."""
        self._run = run
        self.say = say
        self._target: Target | None = None
        self._prepared = False
        self._gone: list[Leased] = []
        self.notes: list[str] = []
        """What was done to have the device: an emulator that was fetched, for example."""
        self.missing: TargetError | None = None
        """Why there is no device that can be used."""

    @property
    def chosen(self) -> Target:
        """The target as it was chosen; nothing is changed on it yet."""
        if self._target is None:
            try:
                self._target = self._choose()
            except TargetError as error:
                self.missing = error
                raise
        return self._target

    @property
    def prepared(self) -> Target:
        """The target, ready to run. One of several phones that cannot be reached is passed over."""
        while not self._prepared:
            target = self.chosen
            try:
                target.prepare()
            except ConnectionLostError as error:
                self._retire(error)
            else:
                self._prepared = True
        return self.chosen

    def ask_for(self, soc: str | None) -> bool:
        """From now on a device whose chip's name holds ``soc``; whether that is a change."""
        if soc == self.soc:
            return False
        self.soc = soc
        if soc is not None and self._target is not None and not _has_chip(self._target, soc):
            # Given back first: two workers that wait for each other's phone would wait for ever.
            try:
                self._target.restore()
            except ConnectionLostError as error:
                self._retire(error)
            self._hand_back(lost=False)
            self._target, self._prepared = None, False
        return True

    def replace(self, error: DeviceGoneError) -> None:
        """Another device of the same kind in place of one that died, or the error."""
        like = self.chosen.fingerprint()
        self._retire(error)
        self.say(f"{error} Its work goes to another device of its kind.")
        try:
            self._target = self._choose(like)
        except TargetError as none:
            raise TargetError(f"{error} No other of its kind could take over. {none}") from error

    def close(self) -> None:
        """Leave every device as it was found, also those that were given up, if they are back."""
        held, self._target, self._prepared = self._target, None, False
        gone, self._gone = self._gone, []
        try:
            if held is not None:
                held.restore()
        finally:
            self._hand_back(lost=False)
            for target in gone:
                target.patience_seconds = 1.0
                with contextlib.suppress(TargetError):
                    target.restore()

    def _hand_out(self) -> Settings:
        """The settings that choose the farm's phone, if there is a farm and it has one."""
        settings = self.settings
        if self.farm is None or settings.device != "android" or settings.fake_phone:
            return settings
        self._handed = self.farm.acquire(self.soc)
        if self._handed is None:
            return settings
        server = self._handed.adb_server or settings.adb_server
        return replace(settings, serials=(self._handed.serial,), adb_server=server)

    def _hand_back(self, *, lost: bool) -> None:
        handed, self._handed = self._handed, None
        if self.farm is not None and handed is not None:
            self.farm.release(handed, lost=lost)

    def _choose(self, like: Fingerprint | None = None) -> Target:
        settings = self._hand_out()
        try:
            return self._choose_from(settings, like)
        except BaseException as error:
            # A phone of another kind, or a wait that somebody ended, says nothing against it.
            unfit = isinstance(error, NotMeasurableError) or not getattr(error, "retired", True)
            self._hand_back(lost=isinstance(error, TargetError) and not unfit)
            raise

    def _choose_from(self, settings: Settings, like: Fingerprint | None) -> Target:
        self.notes = []
        try:
            target = choose_target(
                settings, run=self._run(), soc=self.soc, like=like, progress=self._note
            )
        except NoDeviceLeftError as error:
            if self.soc is None or like is not None or error.retired:
                raise
            raise NotMeasurableError(
                f"no device has a chip named like {self.soc!r}. {error}"
            ) from None
        if self.soc is not None and not _has_chip(target, self.soc):
            target.restore()
            raise NotMeasurableError(
                f"it asks for a chip named like {self.soc!r}, and {target.name} is another"
            )
        return target

    def _note(self, line: str) -> None:
        self.notes.append(line)
        self.say(line)

    def _retire(self, error: TargetError) -> None:
        target = self._target
        from pytest_sme2.targets.phone.leases import Leased

        if not isinstance(target, Leased) or target.lease is None:
            raise error
        target.lease.retire(str(error))
        self._hand_back(lost=True)
        self._gone.append(target)
        self._target, self._prepared = None, False


def _has_chip(target: Target, soc: str) -> bool:
    facts = dict(target.fingerprint().facts)
    return any(soc.lower() in facts.get(name, "").lower() for name in _CHIP)


def choose_target(
    settings: Settings,
    *,
    run: str | None = None,
    soc: str | None = None,
    like: Fingerprint | None = None,
    wait_seconds: float = 3600.0,
    progress: Say | None = None,
) -> Target:
    """The target the settings ask for; ``run`` names a run whose workers share their phones.

    Of several phones, ``soc`` and ``like`` ask for one of a kind (``targets.phone.pool``); where
    all are in use, one is waited for.

    ``auto`` is this machine if it has SME2, else the emulator if there is one, else this machine
    without SME2, whose capabilities then say why; never this machine if that is emulated itself.
    ``emulated`` fetches a missing emulator if there is a ``progress``.
    """
    device = parse_device(settings.device)
    if device == "android":
        return _phone(settings, run, soc=soc, like=like, timeout=wait_seconds, progress=progress)
    if device == "emulated":
        return _emulator(settings, progress)
    if device == "auto":
        return _automatic(settings)
    local = this_machine()
    if local.name != device:
        raise TargetError(
            f"--device={device} runs on this machine, but this machine runs "
            f"{_SYSTEMS.get(local.name, local.name)}. Choose {local.name}, emulated or auto."
        )
    if (real := emulated_on()) is not None:
        raise TargetError(
            f"--device={device} cannot be used: this machine is emulated on {real}, so its times "
            "say nothing about hardware. Choose emulated, or run on the machine itself."
        )
    return local


def is_emulated(settings: Settings) -> bool:
    """Whether the chosen device is an emulator."""
    if settings.device != "auto":
        return settings.device == "emulated" or settings.fake_phone
    try:
        return isinstance(choose_target(settings), EmulatedTarget)
    except Sme2Error:
        # What is wrong with the device is for the first test that needs it to say.
        return True


def _emulator(settings: Settings, progress: Say | None = None) -> EmulatedTarget:
    chosen = settings.emulated_cpu
    cpu = DEFAULT_CPU if chosen is None else parse_cpu(chosen)
    return EmulatedTarget(_qemu("--device=emulated", progress), cpu=cpu)


def _qemu(what: str, progress: Say | None) -> Qemu:
    """The emulator for ``what``; fetched if it is missing and there is a ``progress``."""
    try:
        return find_qemu()
    except TargetError:
        if progress is None:
            raise
        progress("no emulator with SME2 was found: fetching one, as `sme2 provision` does")
        provided = provision.qemu(progress, check=False)
        if provided.found is None:
            raise TargetError(f"{what} cannot be used. {provided.remedy}") from None
        return find_qemu()


def _phone(settings: Settings, run: str | None, **wishes: Any) -> Target:
    """A phone that is this process's own from here on, until it is restored."""
    options: dict[str, Any] = {
        "progress": wishes.pop("progress"),
        "patience_seconds": min(15.0, settings.patience_seconds),
        "power_mode": settings.power_mode,
        "fixed_performance": settings.fixed_performance,
        "cpus": settings.cpus,
        "max_celsius": settings.max_celsius,
    }
    # What only phones need is imported only for them.
    if settings.fake_phone:
        from pytest_sme2.fake_phone.lab import open_fake_phone

        emulator = _qemu("--sme2-phone=fake", options["progress"])
        return open_fake_phone(emulator.path, **options)
    from pytest_sme2.targets.phone.pool import lease_phone, open_pool, open_server

    server = open_server(settings.adb_server, find=lambda: _adb(options["progress"]))
    pool = open_pool(server, settings.serials, run=run)
    return lease_phone(server, pool, **wishes, **options)


def _adb(progress: Say | None) -> Path | None:
    """The machine's adb, else that of the fake phone: some Linux machines have no other."""
    from pytest_sme2.targets.phone.adb import find_adb

    found = find_adb()
    if found is not None or progress is None or sys.platform != "linux":
        return found
    from pytest_sme2.fake_phone.lab import find_parts

    try:
        return find_parts(progress=progress).adb
    except TargetError as error:
        progress(f"no adb was found, and none could be fetched: {error}")
        return None


def _automatic(settings: Settings) -> Target:
    if emulated_on() is not None:
        return _emulator(settings)
    local = this_machine()
    if local.capabilities().sme2:
        return local
    try:
        return _emulator(settings)
    except TargetError as error:
        return this_machine(note=f"Nor can it be emulated: {error}")
