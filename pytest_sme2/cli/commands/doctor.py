"""``sme2 doctor``: what is installed, which devices are usable, and why not."""

from __future__ import annotations

import argparse
import dataclasses
import importlib.metadata
import json
import platform

from pytest_sme2 import __version__
from pytest_sme2.errors import Sme2Error
from pytest_sme2.session.settings import Settings
from pytest_sme2.system.cache import cache_folder
from pytest_sme2.system.provision import provision
from pytest_sme2.targets.settings import DEVICES, parse_device

EXAMPLE = "sme2 doctor --device emulated"

PACKAGES = ("executorch", "torch", "torchao", "torchvision", "timm", "transformers")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--device",
        default="auto",
        help=f"the device that must work ({', '.join(DEVICES)}); default auto",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")


@dataclasses.dataclass(frozen=True)
class Finding:
    """One line of the report."""

    what: str
    ok: bool
    detail: str


def _package(name: str) -> Finding:
    try:
        return Finding(name, True, importlib.metadata.version(name))
    except importlib.metadata.PackageNotFoundError:
        extra = "export" if name in ("executorch", "torch", "torchao") else "models"
        return Finding(name, False, f"not installed; pip install 'pytest-sme2[{extra}]'")


def _device(device: str) -> Finding:
    from pytest_sme2.session.device import choose_target

    what = f"--device={device}"
    try:
        target = choose_target(Settings(device=device), wait_seconds=1)
        able = target.capabilities()
    except Sme2Error as error:
        return Finding(what, False, str(error))
    parts = [f"is {target.name}"] if device == "auto" else []
    parts.append("SME2" if able.sme2 else "no SME2")
    parts.append("timing" if able.timing else "no timing")
    if able.reason:
        parts.append(able.reason)
    return Finding(what, True, "; ".join(parts))


def run(arguments: argparse.Namespace) -> int:
    chosen = parse_device(arguments.device)
    installed = [Finding("pytest-sme2", True, __version__)]
    installed.append(Finding("Python", True, f"{platform.python_version()}, {platform.platform()}"))
    installed += [_package(name) for name in PACKAGES]
    tools = [
        Finding(
            part.name,
            part.found is not None,
            f"{part.found or f'{part.cost}. {part.remedy}'} {part.warning}".rstrip(),
        )
        for part in provision(lambda _: None, check=True)
    ]
    devices = [_device(device) for device in DEVICES]
    usable = next(finding.ok for finding in devices if finding.what == f"--device={chosen}")
    if arguments.json:
        report = {
            "installed": [dataclasses.asdict(finding) for finding in installed],
            "tools": [dataclasses.asdict(finding) for finding in tools],
            "devices": [dataclasses.asdict(finding) for finding in devices],
            "cache": str(cache_folder()),
            "usable": usable,
        }
        print(json.dumps(report, indent=2))
        return 0 if usable else 1
    for heading, findings in (("installed", installed), ("tools", tools), ("devices", devices)):
        print(heading)
        for finding in findings:
            print(f"  {'ok' if finding.ok else 'no':2}  {finding.what}: {finding.detail}")
    print(f"cache\n      {cache_folder()}")
    return 0 if usable else 1
