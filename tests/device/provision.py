"""What the tests of this folder run on, provisioned through the product's own cache."""

from __future__ import annotations

import functools
import shutil
from pathlib import Path
from typing import Any

import pytest

from pytest_sme2.errors import BuildError, TargetError
from pytest_sme2.export.artifacts import export_model
from pytest_sme2.export.registry import discover
from pytest_sme2.export.variant import parse_variant
from pytest_sme2.results.run import Arm, Artifact, Run, RunRequest
from pytest_sme2.runners.base import Runner
from pytest_sme2.runners.sdk import executorch_sdk
from pytest_sme2.runners.sme2 import wheel_runner
from pytest_sme2.runners.stock import SourceBuild, build, check
from pytest_sme2.system.platforms import LINUX_AARCH64, host_platform
from pytest_sme2.system.qemu import find_qemu
from pytest_sme2.targets.emulated import EmulatedTarget

MODELS = Path(__file__).parents[2] / "models"
STOCK_RUNNER = Path(__file__).parent / "stock_runner"

# As a user with a cross compiler would write it.
CROSS_TOOLCHAIN = """\
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
"""


def emulator(**choices: Any) -> EmulatedTarget:
    """The emulated target; a test without an emulator is skipped with the reason."""
    try:
        return EmulatedTarget(find_qemu(), **choices)
    except TargetError as error:
        pytest.skip(str(error))


class OtherDevice:
    """The emulator, which is none to those who ask."""

    name, platform = "linux", EmulatedTarget.platform

    def run(self, runner: Runner, request: RunRequest, folder: Path) -> Run:
        return emulator().run(runner, request, folder)


@functools.cache
def _runner() -> Runner | str:
    try:
        return wheel_runner(LINUX_AARCH64)
    except BuildError as error:
        return str(error)


def runner() -> Runner:
    found = _runner()
    if isinstance(found, str):
        pytest.skip(found)
    return found


@functools.cache
def artifact(variant: str) -> Artifact:
    return export_model(discover([MODELS]).get("toy_cnn"), parse_variant(variant))


def stock_request(folder: Path, variant: str = "timing") -> SourceBuild:
    """A source build of the stand-in, in a tree that looks like ExecuTorch's to the build."""
    tree = folder / "executorch"
    shutil.copytree(STOCK_RUNNER, tree)
    (tree / "backends/xnnpack").mkdir(parents=True)
    (tree / "backends/xnnpack/CMakeLists.txt").touch()
    toolchain = folder / "aarch64.cmake"
    toolchain.write_text(CROSS_TOOLCHAIN if host_platform() != LINUX_AARCH64 else "")
    return SourceBuild(
        tree,
        "linux",
        variant=variant,
        out=folder / "out",
        options={
            "CMAKE_TOOLCHAIN_FILE": str(toolchain),
            "CMAKE_PREFIX_PATH": str(executorch_sdk(LINUX_AARCH64)),
        },
    )


def build_stock_pair(request: SourceBuild) -> dict[Arm, Path]:
    """Build it and lay the libraries beside it, as they lie beside a runner for a device."""
    assert not check(request)
    built = build(request)
    libraries = [path for path in runner().files(Arm.ON) if ".so" in path.name]
    for side in built:
        for library in libraries:
            shutil.copy2(library, side.binary.parent)
    return {side.arm: side.binary for side in built}
