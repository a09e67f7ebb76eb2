"""Repeats a measurement after a lost connection, from its start."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol, TypeVar, runtime_checkable

from pytest_sme2.errors import ConnectionLostError, DeviceGoneError
from pytest_sme2.targets.phone.leases import Lease

Result = TypeVar("Result")


@runtime_checkable
class Recoverable(Protocol):
    """A target that can be found again after its connection was lost."""

    def recover(self) -> None: ...


@runtime_checkable
class Reporting(Protocol):
    """A target that keeps what a reader of its results should know."""

    events: list[str]


@runtime_checkable
class Leased(Protocol):
    """A target that may be one of several, held by a lease until it is restored."""

    lease: Lease | None
    patience_seconds: float

    def restore(self) -> None: ...


def redo_when_lost(
    target: Recoverable,
    measure: Callable[[], Result],
    *,
    retries: int = 3,
    patience_seconds: float = 60.0,
    progress: Callable[[str], None] | None = None,
) -> Result:
    """Do ``measure`` (a whole pair), and repeat it from the start if the connection is lost.

    After the last retry, or if the device does not come back, raise one error.
    """
    for attempt in range(retries + 1):
        try:
            return measure()
        except ConnectionLostError as error:
            if attempt == retries:
                raise DeviceGoneError(
                    f"Stopped after {retries + 1} attempts: the connection was lost each time. "
                    f"Last: {error} Check the cable, the hub and the phone's power saving."
                ) from error
            if progress is not None:
                progress(f"{error} Measuring the pair again.")
            lost = time.monotonic()
            _recover(target, patience_seconds, error)
            if isinstance(target, Reporting):
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
