"""The virtual machine, started once, and the runner as it goes to a phone."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Any

import pytest

from pytest_sme2.results.run import Artifact
from pytest_sme2.runners.sme2 import Sme2Runner, wheel_runner
from pytest_sme2.system.cache import cache_folder
from pytest_sme2.targets.phone.adb import AdbServer
from pytest_sme2.targets.phone.target import AndroidTarget
from tests.support.phones import make_artifact
from tests.support.programs import program_files
from tests.vm.machine import Machine, boot


@pytest.fixture(scope="session")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    with boot(tmp_path_factory.mktemp("vm")) as running:
        yield running


@pytest.fixture(autouse=True)
def _patient_adb(monkeypatch: pytest.MonkeyPatch) -> None:
    """The product's limits are for phones; these are of a machine that others work on, too."""
    client = AdbServer.client

    def patient_client(
        server: AdbServer, timeout: float, doing: str, allowed: int | None = None
    ) -> AbstractContextManager[Any]:
        return client(server, 20 * timeout, doing, allowed)

    monkeypatch.setattr(AdbServer, "client", patient_client)


@pytest.fixture
def target(machine: Machine) -> Iterator[AndroidTarget]:
    """The phone, prepared; it is restored when the test ends."""
    made = AndroidTarget(machine.device)
    made.prepare()
    yield made
    made.restore()


@pytest.fixture(scope="session")
def bundle() -> Sme2Runner:
    return wheel_runner("linux-aarch64")


@pytest.fixture(scope="session")
def toy() -> Artifact:
    return make_artifact(program_files(cache_folder())["toy_fp32"])
