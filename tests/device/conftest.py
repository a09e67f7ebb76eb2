"""Real runners and real targets, provisioned through the product's own cache."""

from __future__ import annotations

import functools
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_sme2.results.run import Artifact
from pytest_sme2.runners.sme2 import Sme2Runner, wheel_runner
from pytest_sme2.system.cache import cache_folder
from pytest_sme2.system.platforms import LINUX_AARCH64, host_platform
from pytest_sme2.system.provision import find_compiler
from pytest_sme2.system.qemu import Qemu
from pytest_sme2.targets.base import Target
from pytest_sme2.targets.emulated import EmulatedTarget
from pytest_sme2.targets.local import LocalTarget
from tests.device import provision
from tests.support.programs import program_files


@pytest.fixture(scope="session")
def programs() -> dict[str, Path]:
    """Exported programs by name."""
    return program_files(cache_folder())


@pytest.fixture(scope="session")
def qemu() -> Qemu:
    return provision.emulator().qemu


@pytest.fixture(scope="session")
def local_runner() -> Sme2Runner:
    return wheel_runner(host_platform())


@pytest.fixture(scope="session")
def emulated_runner(qemu: Qemu) -> Sme2Runner:
    return wheel_runner(LINUX_AARCH64)


@pytest.fixture(params=["local", "emulated"])
def place(request: pytest.FixtureRequest) -> tuple[Target, Sme2Runner]:
    """A target and its runner, once for this machine and once emulated."""
    if request.param == "local":
        return LocalTarget(), request.getfixturevalue("local_runner")
    target = EmulatedTarget(request.getfixturevalue("qemu"))
    return target, request.getfixturevalue("emulated_runner")


@pytest.fixture(scope="session")
def stand_in(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Sme2Runner]:
    """By platform: a runner that fails on demand, see stand_in.cpp."""

    @functools.lru_cache
    def compiled(platform: str) -> Sme2Runner:
        folder = tmp_path_factory.mktemp(f"stand-in-{platform}")
        source = Path(__file__).parents[1] / "support" / "stand_in.cpp"
        # Static where that is possible: an emulator then needs no libraries for it.
        static = ["-static"] if platform.startswith("linux-") else []
        command = [find_compiler(platform).cxx, "-std=c++17", *static, str(source)]
        subprocess.run([*command, "-o", str(folder / "sme2_runner")], check=True, timeout=600)
        return Sme2Runner("wheel", platform, "1.5.1", folder)

    return compiled


def artifact(pte: Path, inputs: tuple[Path, ...] = ()) -> Artifact:
    return Artifact("toy", "fp32", pte.parent, pte, "", (), (), input_files=inputs)


@pytest.fixture
def make_artifact():
    return artifact
