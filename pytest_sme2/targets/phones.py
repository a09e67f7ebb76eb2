"""From what the user chose to one phone that is this process's own."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pytest_sme2.errors import ConnectionLostError
from pytest_sme2.results import Fingerprint
from pytest_sme2.settings import adb_server_from, parse_adb_server
from pytest_sme2.targets.adb import AdbDevice, AdbServer
from pytest_sme2.targets.android import AndroidTarget
from pytest_sme2.targets.leases import DevicePool
from pytest_sme2.targets.phone_choice import choose_serials


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
    chosen = choose_serials(server, serials, environment=environment)
    return DevicePool(str(server), chosen, run=run or f"process {os.getpid()}")


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
    timeout: float = 600.0,
    progress: Callable[[str], None] | None = None,
    **options: Any,
) -> AndroidTarget:
    """A free phone of the pool as a target that holds its lease until ``restore``.

    ``soc`` asks for a phone whose SoC's name contains it; ``like`` for one of the same kind as
    one that died. A phone that does not answer is retired. ``options`` are AndroidTarget's.
    """

    def accept(serial: str) -> bool:
        candidate = AndroidTarget(AdbDevice(server, serial), **options)
        try:
            if soc is not None and soc.lower() not in candidate.soc.lower():
                return False
            return like is None or _kind(candidate.fingerprint()) == _kind(like)
        except ConnectionLostError as error:
            pool.retire(serial, str(error))
            return False

    lease = pool.lease(timeout=timeout, accept=accept, prefer=prefer, progress=progress)
    return AndroidTarget(AdbDevice(server, lease.serial), lease=lease, progress=progress, **options)
