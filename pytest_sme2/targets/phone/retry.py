"""Redoing what a lost connection broke, from its start, and what a target must offer for it."""

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
    """Do ``measure`` (a whole pair), again from the start where the connection was lost.

    After the retries, or when the device does not come back, there is one error that says so.
    """
    for attempt in range(retries + 1):
        try:
            return measure()
        except ConnectionLostError as error:
            if attempt == retries:
                raise DeviceGoneError(
                    f"Gave up after {retries + 1} attempts, as the connection was lost each time. "
                    f"Last: {error} Check the cable, the hub and the phone's power saving."
                ) from error
            if progress is not None:
                progress(f"{error} Measuring the pair again.")
            _recover(target, patience_seconds, error)
    raise AssertionError("the loop returns or raises")


def _recover(target: Recoverable, seconds: float, lost: ConnectionLostError) -> None:
    deadline = time.monotonic() + seconds
    while True:
        try:
            return target.recover()
        except ConnectionLostError as error:
            if time.monotonic() > deadline:
                raise DeviceGoneError(
                    f"{lost} It did not come back in {seconds:g} s: {error}"
                ) from error
            time.sleep(0.5)
