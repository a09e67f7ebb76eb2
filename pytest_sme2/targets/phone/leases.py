"""Phones leased by one process at a time, and found again after their connection was lost.

A lease is a lock on a file, so it ends with its process however that ends. There is one for each
phone and adb server on this machine, whichever user asks and whatever the cache is.
"""

from __future__ import annotations

import contextlib
import hashlib
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeVar, runtime_checkable

from pytest_sme2.errors import BusyError, ConnectionLostError, DeviceGoneError, TargetError
from pytest_sme2.system.locks import holder_of, machine_lock, shared_lock
from pytest_sme2.targets.phone.adb import AdbDevice, AdbServer, make_ready, own_serial
from pytest_sme2.targets.phone.target import AndroidTarget

_PAUSE_SECONDS = 0.1
_own: dict[tuple[str, str], str] = {}
"""What phones on the network answered, by adb server and address."""
_ours: set[Path] = set()
"""The lock files of this process's phones, also of one that was lost: it is to be restored."""


def _lock_file(server: AdbServer, serial: str) -> Path:
    # Under all of its names a phone is one: by cable, and by network.
    known = _own.get((str(server), serial))
    name = known or own_serial(server, serial)
    if name != serial:
        _own[str(server), serial] = name  # also when it does not answer any more
    digest = hashlib.sha256(f"{server}\n{name}".encode()).hexdigest()[:24]
    return machine_lock(f"phone-{digest}")


def take_lease(server: AdbServer, serial: str) -> contextlib.ExitStack | None:
    """The right to use a phone until it is closed; None while somebody has it."""
    file, lease = _lock_file(server, serial), contextlib.ExitStack()
    try:
        lease.enter_context(shared_lock(file, f"using {serial}"))
    except BusyError:
        return None
    _ours.add(file)
    lease.callback(_ours.discard, file)
    return lease


def is_leased(server: AdbServer, serial: str) -> bool:
    """Whether a process of this machine uses the phone."""
    lease = take_lease(server, serial)
    if lease is not None:
        lease.close()
    return lease is None


def lease_phone(
    server: AdbServer,
    serials: Sequence[str],
    *,
    timeout: float = 3600.0,
    progress: Callable[[str], None] | None = None,
    **options: Any,
) -> AndroidTarget:
    """The first free phone, as a target that keeps its lease until ``restore``.

    One that does not work is passed over. ``options`` go to AndroidTarget.
    """
    deadline, said = time.monotonic() + timeout, False
    refused: dict[str, TargetError] = {
        serial: TargetError(f"{serial} was lost before.")
        for serial in serials
        if _lock_file(server, serial) in _ours
    }
    while usable := [serial for serial in serials if serial not in refused]:
        for serial in usable:
            lease = take_lease(server, serial)
            if lease is None:
                continue
            device = AdbDevice(server, serial)
            target = AndroidTarget(device, lease=lease, progress=progress, **options)
            try:
                make_ready(server, serial, seconds=target.patience_seconds)
                return target
            except BaseException as error:
                lease.close()
                if not isinstance(error, TargetError):
                    raise
                refused[serial] = error
        busy = [serial for serial in usable if serial not in refused]
        held = ", ".join(f"{serial}{holder_of(_lock_file(server, serial))}" for serial in busy)
        if busy and time.monotonic() > deadline:
            raise TargetError(
                f"All devices are in use by other processes for {timeout:g} s: {held}. Attach "
                "more, or run fewer workers."
            )
        if busy and progress is not None and not said:
            progress(f"waiting for one of {len(busy)} devices to become free: {held}")
            said = True
        time.sleep(_PAUSE_SECONDS if busy else 0)
    errors = list(refused.values())
    told = " ".join(map(str, errors)) or "None was given."
    # With a single phone, its own error is enough.
    raise errors[0] if len(errors) == 1 else TargetError(f"No device is left. {told}")


Result = TypeVar("Result")
_RETRIES = 3


@runtime_checkable
class Recoverable(Protocol):
    """A target that can be found again after its connection was lost."""

    events: list[str]
    """What a reader of its results should know."""

    def recover(self) -> None: ...


def redo_when_lost(
    target: Recoverable,
    measure: Callable[[], Result],
    *,
    patience_seconds: float = 60.0,
    progress: Callable[[str], None] | None = None,
) -> Result:
    """Do ``measure`` (a whole pair), and repeat it from the start if the connection is lost.

    After the last retry, or if the device does not come back, raise one error.
    """
    for attempt in range(_RETRIES + 1):
        try:
            return measure()
        except ConnectionLostError as error:
            if attempt == _RETRIES:
                raise DeviceGoneError(
                    f"Stopped after {_RETRIES + 1} attempts: the connection was lost each time. "
                    f"Last: {error} Check the cable, the hub and the phone's power saving."
                ) from error
            if progress is not None:
                progress(f"{error} Measuring the pair again.")
            lost = time.monotonic()
            _recover(target, patience_seconds, error)
            seconds = time.monotonic() - lost
            target.events.append(f"was away for {seconds:.0f} s, and a pair was repeated")
    raise AssertionError("the loop returns or raises")


def _recover(target: Recoverable, seconds: float, lost: ConnectionLostError) -> None:
    deadline = time.monotonic() + seconds
    while True:
        try:
            return target.recover()
        except ConnectionLostError as error:
            if time.monotonic() > deadline:
                raise DeviceGoneError(
                    f"{lost} It did not come back within {seconds:g} s: {error}"
                ) from error
            time.sleep(0.5)
