"""Devices shared by worker processes: one lease per device, and lost devices are retired.

A lease is a lock on a file, so it ends with its process however that ends. There is one for each
phone and adb server on this machine, whichever user asks and whatever the cache is. Machines that
reach one phone are kept apart by a file on the phone (``claim.py``).
"""

from __future__ import annotations

import contextlib
import hashlib
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pytest_sme2.errors import BusyError, NoDeviceLeftError, TargetError
from pytest_sme2.system.cache import cache_folder
from pytest_sme2.system.locks import holder_of, machine_lock, shared_lock

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
        """The device died. It stays leased: whoever has it must still try to put it back."""
        self.pool.retire(self.serial, reason)


class DevicePool:
    """The devices of one run, as every worker of it sees them.

    ``folder`` is where the run remembers its dead devices; locks that are there, too, are seen only
    by those who name the same folder. ``run`` names the run, so that a device retired by one worker
    is left alone by the others of that run only.
    """

    def __init__(
        self, server: str, serials: Sequence[str], *, run: str, folder: Path | None = None
    ) -> None:
        self.server = server
        self.serials = tuple(serials)
        self.folder = folder or cache_folder() / "leases"
        self._lock_folder = folder
        self.folder.mkdir(parents=True, exist_ok=True)
        self.run = hashlib.sha256(run.encode()).hexdigest()[:16]

    def lease(
        self,
        *,
        timeout: float = 3600.0,
        accept: Callable[[Lease], bool] = lambda lease: True,
        prefer: int = 0,
        progress: Callable[[str], None] | None = None,
    ) -> Lease:
        """The first free device that ``accept`` takes; ``prefer`` is where the search starts.

        ``accept`` raises BusyError for a device that another machine uses.
        """
        deadline = time.monotonic() + timeout
        refused: set[str] = set()
        elsewhere: dict[str, str] = {}
        told = False
        while True:
            usable = [serial for serial in self._order(prefer) if not self._retired(serial)]
            usable = [serial for serial in usable if serial not in refused]
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
        self._forget_old_runs()
        self._retired_file(serial).write_text(reason, encoding="utf-8")

    def retired(self) -> dict[str, str]:
        """Serial to reason."""
        return {
            serial: self._retired_file(serial).read_text(encoding="utf-8")
            for serial in self.serials
            if self._retired(serial)
        }

    def close(self) -> None:
        """Forget this run's retired devices; called once, when the whole run is over."""
        for serial in self.serials:
            self._retired_file(serial).unlink(missing_ok=True)

    def _forget_old_runs(self) -> None:
        """What runs that were never closed left behind."""
        for path in self.folder.glob("retired-*"):
            # Another worker may be doing the same.
            with contextlib.suppress(FileNotFoundError):
                if time.time() - path.stat().st_mtime > _RETIRED_SECONDS:
                    path.unlink()

    def _order(self, prefer: int) -> tuple[str, ...]:
        start = prefer % len(self.serials) if self.serials else 0
        return self.serials[start:] + self.serials[:start]

    def _key(self, serial: str) -> str:
        return hashlib.sha256(f"{self.server}\n{serial}".encode()).hexdigest()[:24]

    def _retired_file(self, serial: str) -> Path:
        return self.folder / f"retired-{self.run}-{self._key(serial)}"

    def _retired(self, serial: str) -> bool:
        return self._retired_file(serial).exists()

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
        if self._lock_folder is not None:
            return self._lock_folder / f"{self._key(serial)}.lock"
        return machine_lock(f"phone-{self._key(serial)}")

    def _none_left(self, refused: set[str]) -> NoDeviceLeftError:
        retired = self.retired()
        reasons = [f"{serial}: {reason}" for serial, reason in retired.items()]
        unlike = sorted(refused - set(retired))
        reasons += [f"{serial}: not of the kind that was asked for" for serial in unlike]
        told = "; ".join(reason.rstrip(".") for reason in reasons or ["None was given"])
        return NoDeviceLeftError(f"No device is left. {told}.", retired=bool(retired))
