"""Where commands of the documentation are run; see shell.py."""

from __future__ import annotations

import importlib.util
import shutil
from pathlib import Path

import pytest

from pytest_sme2.errors import Sme2Error
from pytest_sme2.system.qemu import find_qemu
from tests.docs.shell import Shell, make_programs, make_project, make_source


@pytest.fixture(scope="session")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if shutil.which("bash") is None:
        pytest.skip("the pages' commands are for bash")
    if importlib.util.find_spec("executorch") is None:
        pytest.skip("the pages' commands need the export extra")
    try:
        find_qemu()
    except Sme2Error as error:
        pytest.skip(str(error))
    return make_programs(tmp_path_factory.mktemp("programs") / "bin")


@pytest.fixture
def project(tmp_path: Path, programs: Path) -> Shell:
    """A reader's own project."""
    return Shell(make_project(tmp_path / "project"), programs)


@pytest.fixture
def source(tmp_path: Path, programs: Path) -> Shell:
    """The project's own source."""
    return Shell(make_source(tmp_path / "source"), programs)
