"""Leases one phone for this process, from those that the user chose."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from pytest_sme2.errors import NoDeviceLeftError, TargetError
from pytest_sme2.results import Fingerprint
from pytest_sme2.targets.phone.adb import AdbDevice, AdbServer, choose_serials, find_adb, make_ready
from pytest_sme2.targets.phone.leases import Claim, DevicePool, Lease
from pytest_sme2.targets.phone.target import AndroidTarget
from pytest_sme2.targets.settings import adb_server_from, parse_adb_server


def open_server(
    address: str | None = None, *, find: Callable[[], Path | None] = find_adb
) -> AdbServer:
    """The named adb server, else the default one, which is started if needed.

    ``find`` finds the program that starts it.
    """
    if address is not None:
        server = AdbServer(*parse_adb_server(address))
    else:
        host, port = adb_server_from(os.environ)
        local = host in ("127.0.0.1", "localhost", "::1")
        server = AdbServer(host, port, ours_to_start=local)
    server.ensure_running(find=find)
    return server


def open_pool(
    server: AdbServer, serials: Sequence[str] = (), *, run: str | None = None
) -> DevicePool:
    """The chosen phones, to lease from.

    ``run`` is the same for all workers of one test run (xdist's ``testrunuid``). Without it, this
    process is a separate run.
    """
    return DevicePool(str(server), choose_serials(server, serials), run=run or uuid.uuid4().hex)


def _kind(fingerprint: Fingerprint) -> list[tuple[str, str]]:
    """The parts that describe the phone; the rest is its settings."""
    return [fact for fact in fingerprint.facts if fact[0] in ("model", "soc", "build")]


def lease_phone(
    server: AdbServer,
    pool: DevicePool,
    *,
    soc: str | None = None,
    like: Fingerprint | None = None,
    timeout: float = 3600.0,
    progress: Callable[[str], None] | None = None,
    **options: Any,
) -> AndroidTarget:
    """A free phone of the pool as a target that keeps its lease until ``restore``.

    ``soc`` asks for a phone with this text in the name of its SoC; ``like`` for one of the same
    kind as a lost phone. A phone that does not work is retired. ``options`` go to AndroidTarget.
    """
    refusals: list[TargetError] = []
    targets: dict[str, AndroidTarget] = {}

    def accept(lease: Lease) -> bool:
        device = AdbDevice(server, lease.serial)
        target = AndroidTarget(device, lease=lease, progress=progress, **options)
        targets[lease.serial] = target
        try:
            make_ready(server, lease.serial, seconds=target.patience_seconds, progress=progress)
            target.claim = Claim(device, pool.lock_file(lease.serial))
            lease.lock.callback(target.claim.release)
            if soc is not None and soc.lower() not in target.soc.lower():
                return False
            return like is None or _kind(target.fingerprint()) == _kind(like)
        except TargetError as error:
            lease.retire(str(error))
            refusals.append(error)
            return False

    try:
        return targets[pool.lease(timeout=timeout, accept=accept, progress=progress).serial]
    except NoDeviceLeftError:
        # With a single phone, its own error is enough.
        if len(pool.serials) == 1 and refusals:
            raise refusals[0] from None
        raise
