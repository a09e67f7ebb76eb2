"""Fixtures of the tests on fake phones: real adb servers and adbd devices in a sandbox."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pytest_sme2.errors import TargetError
from pytest_sme2.fake_phone.lab import FakeLab, FakePhone, fake_target
from pytest_sme2.results.run import Arm, Artifact, Run, RunRequest
from pytest_sme2.runners.sme2 import Sme2Runner, wheel_runner
from pytest_sme2.system.cache import cache_folder
from pytest_sme2.system.qemu import find_qemu
from pytest_sme2.targets.phone.adb import AdbDevice, AdbServer
from pytest_sme2.targets.phone.target import AndroidTarget
from tests.support.phones import MakeRunner, MakeTarget, StartRun, make_artifact, start_lab
from tests.support.programs import program_files
from tests.support.sleep_runner import make_sleep_runner


@pytest.fixture(scope="module")
def lab() -> Iterator[FakeLab]:
    """A lab of one's own; phones are added by the tests. Programs run on it as they are."""
    with start_lab() as made:
        yield made


@pytest.fixture(scope="module")
def sme2_lab() -> Iterator[FakeLab]:
    """A lab whose phones have an emulated CPU with SME2."""
    try:
        emulator = find_qemu().path
    except TargetError as error:
        pytest.skip(str(error))
    with start_lab(emulator=emulator) as made:
        yield made


@pytest.fixture
def phone(lab: FakeLab) -> FakePhone:
    """A phone nobody has touched."""
    return lab.add()


@pytest.fixture
def server(lab: FakeLab) -> AdbServer:
    return lab.server


@pytest.fixture
def device(server: AdbServer, phone: FakePhone) -> AdbDevice:
    """The untouched phone, connected."""
    server.connect(phone.serial)
    return AdbDevice(server, phone.serial)


@pytest.fixture
def make_target() -> Iterator[MakeTarget]:
    """Targets that are put back when the test ends, if it has not done so itself."""
    made: list[AndroidTarget] = []

    def make(phone: FakePhone, *, prepare: bool = True, **options: Any) -> AndroidTarget:
        target = fake_target(phone, **options)
        made.append(target)
        if prepare:
            target.prepare()
        return target

    yield make
    for target in made:
        target._restore_quietly()


@pytest.fixture
def target(phone: FakePhone, make_target: MakeTarget) -> AndroidTarget:
    """The untouched phone, prepared."""
    return make_target(phone)


@pytest.fixture(scope="session")
def bundle() -> Sme2Runner:
    """The self-contained runner, as it goes to a phone."""
    return wheel_runner("linux-aarch64")


@pytest.fixture
def make_runner(tmp_path: Path) -> MakeRunner:
    """Runners that only sleep, or do what a shell is told."""

    def make(do: float | str) -> Sme2Runner:
        return make_sleep_runner(tmp_path / f"runner-{zlib.crc32(str(do).encode())}", do)

    return make


@pytest.fixture
def artifact(tmp_path: Path) -> Artifact:
    """Something that can be pushed and that the sleeping runner does not read."""
    path = tmp_path / "anything.pte"
    path.write_bytes(b"not a program")
    return make_artifact(path)


@pytest.fixture
def start(make_runner: MakeRunner, artifact: Artifact, tmp_path: Path) -> StartRun:
    """Runs something on a phone: a given runner, or one that sleeps or does what it is told."""

    def run(
        target: AndroidTarget, what: Sme2Runner | float | str = 0, arm: Arm = Arm.ON, **choices: Any
    ) -> Run:
        runner = what if isinstance(what, Sme2Runner) else make_runner(what)
        return target.run(runner, RunRequest(artifact, arm, **choices), tmp_path / "out")

    return run


@pytest.fixture(scope="session")
def toy() -> Artifact:
    return make_artifact(program_files(cache_folder())["toy_fp32"])
