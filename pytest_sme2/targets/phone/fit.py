"""Whether a runner's files fit a phone. Checked here: the phone would say it less clearly."""

from __future__ import annotations

from pytest_sme2.errors import TargetError
from pytest_sme2.results import Arm
from pytest_sme2.runners.abi import unmet_needs
from pytest_sme2.runners.base import Runner
from pytest_sme2.system.elf import AARCH64, is_elf, machine_name, read_needs


def check_fits(serial: str, runner: Runner, arm: Arm) -> None:
    """Raise TargetError if a file is for another CPU, or needs what no phone has."""
    files = {path.name: path for path in runner.files(arm)}
    for path in filter(is_elf, files.values()):
        machine = read_needs(path).machine
        if machine != AARCH64:
            raise TargetError(
                f"{path.name} of the runner is for {machine_name(machine)}, "
                f"but the phone {serial} is arm64-v8a. Build it for arm64."
            )
    for name, absent in unmet_needs(files).items():
        raise TargetError(
            f"{name} of the runner needs {', '.join(absent)}, which neither phones nor the "
            "bundle have. Make it again with: sme2 bundle --phone OUT"
        )
