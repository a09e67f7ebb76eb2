"""Leases one phone for this process, from those that the user chose."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from pytest_sme2.errors import NoDeviceLeftError, TargetError
from pytest_sme2.results import Fingerprint
from pytest_sme2.targets.phone.adb import AdbDevice, AdbServer, find_adb
from pytest_sme2.targets.phone.choice import choose_serials, make_ready
from pytest_sme2.targets.phone.leases import Claim, DevicePool, Lease
from pytest_sme2.targets.phone.target import AndroidTarget
from pytest_sme2.targets.settings import adb_server_from, parse_adb_server


def open_server(
    address: str | None = None,
    *,
    environment: Mapping[str, str] = os.environ,
    find: Callable[[], Path | None] = find_adb,
) -> AdbServer:
    """The named adb server, else the default one, which is started if needed.

    ``find`` finds the program that starts it.
    """
    if address is not None:
        server = AdbServer(*parse_adb_server(address))
    else:
        host, port = adb_server_from(environment)
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


# The parts of a fingerprint that describe the phone; the rest is its settings.
_KIND = ("model", "soc", "build")


def _kind(fingerprint: Fingerprint) -> tuple[str | None, ...]:
    facts = dict(fingerprint.facts)
    return tuple(facts.get(name) for name in _KIND)


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
    claims: dict[str, Claim] = {}

    def accept(lease: Lease) -> bool:
        serial = lease.serial
        candidate = AndroidTarget(AdbDevice(server, serial), **options)
        try:
            make_ready(server, serial, seconds=candidate.patience_seconds, progress=progress)
            claims[serial] = Claim(candidate.device, pool.lock_file(serial))
            lease.lock.callback(claims[serial].release)
            if soc is not None and soc.lower() not in candidate.soc.lower():
                return False
            return like is None or _kind(candidate.fingerprint()) == _kind(like)
        except TargetError as error:
            pool.retire(serial, str(error))
            refusals.append(error)
            return False

    try:
        lease = pool.lease(timeout=timeout, accept=accept, progress=progress)
    except NoDeviceLeftError:
        # With a single phone, its own error is enough.
        if len(pool.serials) == 1 and refusals:
            raise refusals[0] from None
        raise
    return AndroidTarget(
        AdbDevice(server, lease.serial),
        lease=lease,
        claim=claims[lease.serial],
        progress=progress,
        **options,
    )
