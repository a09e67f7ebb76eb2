"""Chooses the phone: by serial, ANDROID_SERIAL, or the only attached one."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence

from pytest_sme2.errors import ConnectionLostError, DeviceTimeoutError, TargetError, UsageError
from pytest_sme2.targets.phone.adb import AdbDevice, AdbServer
from pytest_sme2.targets.phone.answers import parse_lines
from pytest_sme2.targets.settings import is_network_serial, wireless_name

# What to do about a state that is not "device".
_ADVICE = {
    "unauthorized": (
        "Unlock the phone and accept 'Allow USB debugging' (tick 'Always allow'). If it does not "
        "ask, revoke USB debugging authorizations in the developer options and plug it in again."
    ),
    "authorizing": "Wait a moment, and unlock the phone if it asks.",
    "offline": (
        "Unplug the phone and plug it in again, or switch USB debugging off and on; over Wi-Fi, "
        "check that it is on the same network and awake."
    ),
    "connecting": "Wait a moment. If it does not change, check the phone's address and network.",
    "no permissions": (
        "This machine does not let adb use the USB device. On Linux install the package "
        "android-sdk-platform-tools-common (udev rules) and plug the phone in again."
    ),
    "recovery": "Start Android on the phone: adb reboot.",
    "bootloader": "Start Android on the phone: fastboot reboot.",
    "sideload": "Start Android on the phone: adb reboot.",
}

ASKING_SECONDS = 60.0
"""How long somebody has to accept 'Allow USB debugging'."""


def list_attached(server: AdbServer) -> dict[str, str]:
    """Every device of the server, by serial: with model and Android version if it answers."""
    found = {}
    for serial, state in sorted(server.devices().items()):
        said = state
        if state == "device":
            command = "getprop ro.product.model; getprop ro.build.version.release"
            try:
                answer = AdbDevice(server, serial).shell(command, timeout=10)
                model, android = parse_lines(answer.text, 2)
                said = f"{model or 'unknown model'}, Android {android or '?'}"
            except (ConnectionLostError, DeviceTimeoutError):
                said = "offline"
        found[serial] = f"{serial} ({said})"
    return found


def choose_serials(
    server: AdbServer, serials: Sequence[str] = (), *, environment: Mapping[str, str] = os.environ
) -> tuple[str, ...]:
    """The chosen devices; whether they work is seen when they are leased."""
    wanted = tuple(serials) or tuple(filter(None, [environment.get("ANDROID_SERIAL")]))
    if wanted:
        return wanted
    attached = list_attached(server)
    if not attached:
        raise TargetError(
            f"No device is attached to the adb server at {server}. Plug a phone in with USB "
            "debugging on, or name one on the network with --sme2-serial HOST:PORT."
        )
    # One phone may be there by cable and by Wi-Fi; the cable is steadier.
    attached = {
        serial: said for serial, said in attached.items() if wireless_name(serial) not in attached
    }
    if len(attached) > 1:
        raise UsageError(
            "Several devices are attached: "
            + "; ".join(attached.values())
            + ". Choose with --sme2-serial (may be repeated) or ANDROID_SERIAL."
        )
    return tuple(attached)


def make_ready(
    server: AdbServer,
    serial: str,
    *,
    seconds: float = 15.0,
    progress: Callable[[str], None] | None = None,
) -> None:
    """Connect if the serial is an address, and check that the device works.

    Where somebody can be told (``progress``), a phone that asks for permission is waited for.
    """
    deadline = time.monotonic() + seconds
    asked_until: float | None = None
    said = ""
    while (state := server.devices().get(serial)) != "device":
        if is_network_serial(serial) and state in (None, "offline"):
            if state == "offline":
                server.disconnect(serial)
            said = server.connect(serial)
            state = server.devices().get(serial)
        if state == "device":
            return
        if state == "unauthorized" and progress is not None:
            if asked_until is None:
                asked_until = time.monotonic() + ASKING_SECONDS
                progress(
                    f"{serial}: unlock the phone and accept 'Allow USB debugging'; waiting "
                    f"{ASKING_SECONDS:g} s for that"
                )
            if time.monotonic() < asked_until:
                time.sleep(0.5)
                continue
        passing = state in ("authorizing", "connecting", "offline") or is_network_serial(serial)
        if state == "unauthorized" or not passing or time.monotonic() > deadline:
            raise _unusable(server, serial, state, said)
        time.sleep(0.2)


def _unusable(server: AdbServer, serial: str, state: str | None, said: str) -> TargetError:
    if state is None:
        if is_network_serial(serial):
            return ConnectionLostError(
                f"Could not connect to {serial}: {said.strip() or 'no answer'}. Check the address "
                "and that wireless debugging is on."
            )
        names = "; ".join(list_attached(server).values()) or "none"
        return ConnectionLostError(
            f"No device has the serial {serial!r}. Attached: {names}. Check the cable and "
            "--sme2-serial."
        )
    key = "no permissions" if state.startswith("no permissions") else state
    advice = _ADVICE.get(key, "Restart the phone and plug it in again.")
    # One that was there and is not reached any more is lost: another may take over.
    kind = ConnectionLostError if state in ("offline", "connecting") else TargetError
    return kind(f"The device {serial} is {state}. {advice}")
