"""Devices shared by worker processes: one lease per device, and lost devices are retired.

A lease is a lock on a file, so it ends with its process however that ends. There is one for each
phone and adb server on this machine, whichever user asks and whatever the cache is. Machines that
reach one phone are kept apart by a file on the phone, which is seen by all.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import socket
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeVar, runtime_checkable

from pytest_sme2.errors import (
    BusyError,
    ConnectionLostError,
    DeviceGoneError,
    NoDeviceLeftError,
    TargetError,
)
from pytest_sme2.system.cache import cache_folder
from pytest_sme2.system.files import make_folders
from pytest_sme2.system.locks import (
    holder_of,
    machine_lock,
    machine_since_boot,
    shared_lock,
    user_name,
)
from pytest_sme2.system.reading import json_value
from pytest_sme2.targets.phone.adb import AdbDevice, AdbServer, quote
from pytest_sme2.targets.phone.answers import OtherClaim, parse_claim

# How long a run's retired devices are remembered at most: no run takes that long.
_RETIRED_SECONDS = 7 * 24 * 3600
_PAUSE_SECONDS = 0.1
# To ask a phone costs it some work, which disturbs what is measured there.
_PAUSE_ELSEWHERE_SECONDS = 5.0


@dataclass(frozen=True)
class Lease:
    """The right to use one device, until it is released, dropped, or the process ends."""

    serial: str
    lock: contextlib.ExitStack
    pool: DevicePool

    def release(self) -> None:
        self.lock.close()

    def retire(self, reason: str) -> None:
        """The device died. It stays leased: its holder must still try to restore it."""
        self.pool.retire(self.serial, reason)


class DevicePool:
    """The devices of one run, as every worker of it sees them.

    ``run`` names the run, so that a device retired by one worker is left alone by the others of
    that run only.
    """

    def __init__(self, server: str, serials: Sequence[str], *, run: str) -> None:
        self.server = server
        self.serials = tuple(serials)
        self.folder = cache_folder() / "leases"
        make_folders(self.folder)
        self.run = hashlib.sha256(run.encode()).hexdigest()[:16]

    def lease(
        self,
        *,
        timeout: float = 3600.0,
        accept: Callable[[Lease], bool] = lambda lease: True,
        progress: Callable[[str], None] | None = None,
    ) -> Lease:
        """The first free device that ``accept`` takes.

        ``accept`` raises BusyError for a device that another machine uses.
        """
        deadline = time.monotonic() + timeout
        refused: set[str] = set()
        elsewhere: dict[str, str] = {}
        told = False
        while True:
            unusable = refused.union(self.retired())
            usable = [serial for serial in self.serials if serial not in unusable]
            if not usable:
                raise self._none_left(refused)
            for serial in usable:
                lease = self._try(serial)
                if lease is None:
                    elsewhere.pop(serial, None)
                    continue
                try:
                    if accept(lease):
                        return lease
                    refused.add(serial)
                except BusyError as error:
                    elsewhere[serial] = str(error)
                except BaseException:
                    lease.release()
                    raise
                lease.release()
            if refused.issuperset(usable):
                continue
            if time.monotonic() > deadline:
                raise TargetError(
                    f"All devices are in use by other processes for {timeout:g} s: "
                    f"{self._holders(usable, elsewhere)}. Attach more, or run fewer workers."
                )
            if progress is not None and not told:
                held = self._holders(usable, elsewhere)
                progress(f"waiting for one of {len(usable)} devices to become free: {held}")
                told = True
            time.sleep(_PAUSE_ELSEWHERE_SECONDS if elsewhere else _PAUSE_SECONDS)

    def retire(self, serial: str, reason: str) -> None:
        """No worker of this run takes the device again."""
        for path in self.folder.glob("retired-*"):
            # What earlier runs left. Another worker may be doing the same.
            with contextlib.suppress(FileNotFoundError):
                if time.time() - path.stat().st_mtime > _RETIRED_SECONDS:
                    path.unlink()
        self._retired_file(serial).write_text(reason, encoding="utf-8")

    def retired(self) -> dict[str, str]:
        """Serial to reason."""
        files = {serial: self._retired_file(serial) for serial in self.serials}
        return {
            serial: file.read_text(encoding="utf-8")
            for serial, file in files.items()
            if file.exists()
        }

    def _key(self, serial: str) -> str:
        return hashlib.sha256(f"{self.server}\n{serial}".encode()).hexdigest()[:24]

    def _retired_file(self, serial: str) -> Path:
        return self.folder / f"retired-{self.run}-{self._key(serial)}"

    def _try(self, serial: str) -> Lease | None:
        lock = contextlib.ExitStack()
        try:
            lock.enter_context(shared_lock(self.lock_file(serial), f"using {serial}"))
        except BusyError:
            return None
        return Lease(serial, lock, self)

    def _holders(self, serials: Sequence[str], elsewhere: Mapping[str, str]) -> str:
        return ", ".join(
            elsewhere.get(serial, "").rstrip(".") or f"{serial}{holder_of(self.lock_file(serial))}"
            for serial in serials
        )

    def lock_file(self, serial: str) -> Path:
        return machine_lock(f"phone-{self._key(serial)}")

    def _none_left(self, refused: set[str]) -> NoDeviceLeftError:
        retired = self.retired()
        reasons = [f"{serial}: {reason}" for serial, reason in retired.items()]
        unlike = sorted(refused - set(retired))
        reasons += [f"{serial}: not of the kind that was asked for" for serial in unlike]
        told = "; ".join(reason.rstrip(".") for reason in reasons or ["None was given"])
        return NoDeviceLeftError(f"No device is left. {told}.", retired=bool(retired))


# Beside the folder that gets cleaned, so that cleaning does not remove it.
CLAIM = "/data/local/tmp/pytest-sme2-lease.json"
# A machine that is switched off cannot remove its claim. It renews it before every run.
IDLE_SECONDS = 900


class Claim:
    """This process's claim on one phone, made when this is created.

    ``lock`` is the lock file that this process holds for the phone. A claim that was made under the
    same lock is that of a process that has ended.

    Raises:
        BusyError: another machine uses the phone.
    """

    def __init__(self, device: AdbDevice, lock: Path) -> None:
        self.device = device
        self._place = machine_since_boot(lock)
        self.text = json.dumps(
            {
                "host": socket.gethostname(),
                "user": user_name(),
                "pid": os.getpid(),
                "lock": self._place,
                "token": uuid.uuid4().hex,
            }
        )
        self._make()

    def _make(self) -> None:
        for _ in range(3):
            other = self._try()
            if other is None:
                return
            lock, holder = read_claim(other.text)
            if lock != self._place and other.idle_seconds < IDLE_SECONDS:
                raise BusyError(
                    f"{self.device.serial} is used by {holder}; the last sign of that is "
                    f"{other.idle_seconds} s old. Wait for it. If it is gone: "
                    f"adb -s {self.device.serial} shell rm {CLAIM}"
                )
            self._remove(other.sha256)
        raise BusyError(
            f"{self.device.serial} is wanted by several machines at the same time. Run again."
        )

    def _try(self) -> OtherClaim | None:
        """None if the phone is ours now."""
        # With noclobber the shell makes the file only if there is none.
        done = self.device.shell(
            f"if (set -C; printf %s {quote([self.text])} > {CLAIM}) 2>/dev/null; then echo made; "
            f"else {_showing()}; fi"
        )
        if done.text == "made\n":
            return None
        other = parse_claim(done.text)
        if other is None:
            problem = (done.error_text or done.text).partition("\n")[0]
            raise TargetError(
                f"{self.device.serial} cannot keep the file {CLAIM}: {problem}. "
                "Free space on the phone, and make sure that its shell may write there."
            )
        return other

    def _remove(self, sha256: str) -> None:
        """Remove the claim with this content, and no other that was made meanwhile."""
        aside = quote([f"{CLAIM}.{uuid.uuid4().hex}"])
        self.device.shell(
            f"mv {CLAIM} {aside} && {{ found=$(sha256sum < {aside}); "
            f'[ "${{found%% *}}" = {quote([sha256])} ] || mv {aside} {CLAIM}; }}; rm -f {aside}'
        )

    def renew(self) -> None:
        """Say that the phone is still used; raises BusyError if another machine has taken it."""
        ours = f'[ "$(cat {CLAIM})" = {quote([self.text])} ] && touch {CLAIM}'
        if self.device.shell(ours).code != 0:
            # Somebody may have removed it. Then it is made again.
            self._make()

    def release(self) -> None:
        """Remove it. A phone that cannot be reached keeps it until this machine comes again."""
        with contextlib.suppress(TargetError):
            self._remove(hashlib.sha256(self.text.encode()).hexdigest())


def _showing() -> str:
    """The words that print a claim; nothing in them comes from outside."""
    return f'echo "$(date +%s) $(stat -c %Y {CLAIM}) $(sha256sum < {CLAIM})"; head -c 1000 {CLAIM}'


def is_leased(server: AdbServer, serial: str) -> bool:
    """Whether a process of this machine uses the phone."""
    lease = DevicePool(str(server), [serial], run="")._try(serial)
    if lease is not None:
        lease.release()
    return lease is None


def is_abandoned(device: AdbDevice) -> bool:
    """Whether the machine that claims the phone has given no sign for long."""
    claim = parse_claim(device.shell(_showing()).text)
    return claim is not None and claim.idle_seconds >= IDLE_SECONDS


def read_claim(text: str) -> tuple[object, str]:
    """The lock of a claim, and who made it; nothing is known where somebody else wrote the file."""
    with contextlib.suppress(TargetError):
        known = json_value(text, CLAIM, remedy="", error=TargetError)
        if isinstance(known, dict):
            user, host, pid = (str(known.get(name))[:40] for name in ("user", "host", "pid"))
            return known.get("lock"), f"{user} on {host} (process {pid})"
    return None, "an unknown machine"


Result = TypeVar("Result")
_RETRIES = 3


@runtime_checkable
class Recoverable(Protocol):
    """A target that can be found again after its connection was lost."""

    events: list[str]
    """What a reader of its results should know."""

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
