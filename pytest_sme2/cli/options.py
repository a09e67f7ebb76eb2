"""The options about a device that several commands share, named as those of pytest."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from pytest_sme2.errors import UsageError
from pytest_sme2.targets.settings import (
    DEVICES,
    POWER_MODES,
    checked_adb_server,
    parse_celsius,
    parse_cpus,
    parse_device,
    parse_power_mode,
    parse_serials,
)


def add_device_options(parser: argparse.ArgumentParser, default: str, *, runners: bool) -> None:
    """``default`` says in words which device it is without ``--device``."""
    group = parser.add_argument_group("the device")
    group.add_argument("--device", help=f"{', '.join(DEVICES)} (default: {default})")
    group.add_argument("--qemu", type=Path, metavar="FILE", help="the emulator")
    if runners:
        group.add_argument(
            "--runner-on", type=Path, metavar="FILE", help="an executor_runner built with SME2 on"
        )
        group.add_argument(
            "--runner-off", type=Path, metavar="FILE", help="an executor_runner built with SME2 off"
        )
    group.add_argument(
        "--serial",
        action="append",
        default=[],
        metavar="SERIAL",
        help="the phone, by serial or host:port; may be repeated",
    )
    group.add_argument("--adb-server", metavar="HOST:PORT", help="another adb server")
    group.add_argument(
        "--power-mode", metavar="MODE", help=f"of the phone: {', '.join(POWER_MODES)}"
    )
    group.add_argument(
        "--fixed-performance", action="store_true", help="ask the phone for that mode"
    )
    group.add_argument(
        "--max-celsius", metavar="DEGREES", help="wait until the phone's CPU and skin are cooler"
    )
    group.add_argument("--cpus", metavar="CORES", help="of the phone: big, little, 4-7")
    group.add_argument(
        "--device-bundle", type=Path, metavar="FILE", help="the runner for phones (`sme2 bundle`)"
    )
    group.add_argument(
        "--sme2-fake-phone",
        action="store_true",
        help="with --device android: a sandbox with a real adbd instead of a phone",
    )


def device_settings(arguments: argparse.Namespace, default: str) -> dict[str, Any]:
    """The fields of Settings that those options fill."""
    chosen: dict[str, Any] = {
        "device": parse_device(arguments.device or default),
        "qemu": arguments.qemu,
        "serials": parse_serials(arguments.serial),
        "fixed_performance": arguments.fixed_performance,
        "device_bundle": arguments.device_bundle,
        "fake_phone": arguments.sme2_fake_phone,
    }
    if arguments.adb_server is not None:
        chosen["adb_server"] = checked_adb_server(arguments.adb_server)
    if arguments.power_mode is not None:
        chosen["power_mode"] = parse_power_mode(arguments.power_mode)
    if arguments.max_celsius is not None:
        chosen["max_celsius"] = parse_celsius(arguments.max_celsius)
    if arguments.cpus is not None:
        chosen["cpus"] = parse_cpus(arguments.cpus)
    if hasattr(arguments, "runner_on"):
        if (arguments.runner_on is None) != (arguments.runner_off is None):
            raise UsageError("Give both --runner-on and --runner-off, or neither.")
        chosen |= {"runner_on": arguments.runner_on, "runner_off": arguments.runner_off}
    return chosen
