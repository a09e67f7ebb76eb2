"""From what the user chose to one phone that is this process's own."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pytest_sme2.errors import NoDeviceLeftError, TargetError
from pytest_sme2.results import Fingerprint
from pytest_sme2.targets.phone.adb import AdbDevice, AdbServer
from pytest_sme2.targets.phone.choice import choose_serials, make_ready
from pytest_sme2.targets.phone.leases import DevicePool
from pytest_sme2.targets.phone.target import AndroidTarget
from pytest_sme2.targets.settings import adb_server_from, parse_adb_server


def open_server(
    address: str | None = None, *, environment: Mapping[str, str] = os.environ
) -> AdbServer:
    """The adb server that was named, else the usual one, which is started where need be."""
    if address is not None:
        server = AdbServer(*parse_adb_server(address))
    else:
        host, port = adb_server_from(environment)
        local = host in ("127.0.0.1", "localhost", "::1")
        server = AdbServer(host, port, ours_to_start=local)
    server.ensure_running()
    return server


def open_pool(
    server: AdbServer,
    serials: Sequence[str] = (),
    *,
    run: str | None = None,
    environment: Mapping[str, str] = os.environ,
) -> DevicePool:
    """The phones that are meant, to be leased from.

    ``run`` is the same for all workers of one test run (xdist's ``testrunuid``); without it,
    this process is a run of its own.
    """
    # Whether a phone can be used is found out when it is leased: one that cannot is passed over.
    chosen = choose_serials(server, serials, environment=environment, check=False)
    return DevicePool(str(server), chosen, run=run or uuid.uuid4().hex)


# What of a fingerprint is the phone's own; the rest is how it was set up.
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
    prefer: int = 0,
    timeout: float = 3600.0,
    progress: Callable[[str], None] | None = None,
    **options: Any,
) -> AndroidTarget:
    """A free phone of the pool as a target that holds its lease until ``restore``.

    ``soc`` asks for a phone whose SoC's name contains it; ``like`` for one of the same kind as
    one that died. A phone that cannot be used is retired. ``options`` are AndroidTarget's.
    """
    refusals: list[TargetError] = []

    def accept(serial: str) -> bool:
        candidate = AndroidTarget(AdbDevice(server, serial), **options)
        try:
            make_ready(server, serial, seconds=candidate.patience_seconds)
            if soc is not None and soc.lower() not in candidate.soc.lower():
                return False
            return like is None or _kind(candidate.fingerprint()) == _kind(like)
        except TargetError as error:
            pool.retire(serial, str(error))
            refusals.append(error)
            return False

    try:
        lease = pool.lease(timeout=timeout, accept=accept, prefer=prefer, progress=progress)
    except NoDeviceLeftError:
        # What is wrong with the only one there is needs no list around it.
        if len(pool.serials) == 1 and refusals:
            raise refusals[0] from None
        raise
    return AndroidTarget(AdbDevice(server, lease.serial), lease=lease, progress=progress, **options)
