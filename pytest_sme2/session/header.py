"""What is in effect, for the top of a run: the device, what it can do, the version."""

from __future__ import annotations

import importlib.metadata

from pytest_sme2.errors import Sme2Error
from pytest_sme2.session.bench import Bench
from pytest_sme2.session.settings import Settings
from pytest_sme2.system import macos
from pytest_sme2.targets.mac import MacTarget


def header_lines(bench: Bench) -> list[str]:
    settings = bench.settings
    if settings.device == "android":
        return [f"sme2: device android ({_phone_words(settings)})"]
    try:
        target = bench.chosen
        able = target.capabilities()
    except Sme2Error as error:
        return [f"sme2: --device={settings.device} cannot be used: {error}"]
    abilities = [
        "SME2" if able.sme2 else "no SME2",
        "timing" if able.timing else "structure only, no timing",
    ]
    try:
        version = f"ExecuTorch {importlib.metadata.version('executorch')}"
    except importlib.metadata.PackageNotFoundError:
        version = "ExecuTorch not installed"
    chosen = "auto: " if settings.device == "auto" else ""
    lines = [
        *(f"sme2: {note}" for note in bench.device.notes),
        f"sme2: device {chosen}{target.name} ({', '.join(abilities)}), {version}",
    ]
    if isinstance(target, MacTarget):
        state = ", ".join(f"{name} {value}" for name, value in target.state().items())
        lines.append(f"sme2: {target.cpu}, {state}")
        lines += [f"sme2: warning: {warning}" for warning in macos.read_power().warnings]
    return lines


def _phone_words(settings: Settings) -> str:
    """Which phones, without reaching for one: a worker leases it when it measures."""
    if settings.fake_phone:
        return "a fake phone in a sandbox on this machine, emulated: no timing"
    serials = ", ".join(settings.serials) or "the attached one"
    return f"{serials}; power mode {settings.power_mode}"
