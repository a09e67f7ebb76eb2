"""``sme2 clean``: removes our folder from a phone and puts back what a broken-off run changed."""

from __future__ import annotations

import argparse
import json

from pytest_sme2.system.choices import one_of
from pytest_sme2.targets.phone.adb import AdbDevice, AdbServer
from pytest_sme2.targets.phone.choice import choose_serials
from pytest_sme2.targets.phone.leases import DevicePool
from pytest_sme2.targets.phone.pool import open_server
from pytest_sme2.targets.phone.power import PhonePower
from pytest_sme2.targets.phone.storage import PhoneStorage
from pytest_sme2.targets.settings import parse_serials

EXAMPLE = "sme2 clean --device android --serial R5CT1234"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--device", default="android", metavar="android")
    parser.add_argument("--serial", action="append", default=[], help="the phone; may be repeated")
    parser.add_argument(
        "--adb-server",
        metavar="HOST:PORT",
        help="the adb server (default: the one of this machine)",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(arguments: argparse.Namespace) -> int:
    one_of(arguments.device, ("android",), "a device that can be cleaned")
    server = open_server(arguments.adb_server)
    done = [
        _clean(server, serial) for serial in choose_serials(server, parse_serials(arguments.serial))
    ]
    if arguments.json:
        print(json.dumps(done))
        return 0
    for entry in done:
        settings = ", its settings are put back" if entry["restored"] else ""
        print(f"{entry['serial']}: cleaned{settings}")
    return 0


def _clean(server: AdbServer, serial: str) -> dict[str, object]:
    # Not under somebody who is measuring on it.
    lease = DevicePool(str(server), [serial], run="clean").lease(timeout=1)
    try:
        device = AdbDevice(server, serial)
        restored = PhonePower(device).restore()
        PhoneStorage(device).clean()
    finally:
        lease.release()
    return {"serial": serial, "restored": restored}
