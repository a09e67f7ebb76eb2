"""What every test may use."""

from __future__ import annotations

from typing import Any

import pytest

# A run inside this process forgets what it has imported, and numpy cannot be imported twice.
import pytest_sme2.plugin.conclusion
import pytest_sme2.session.session  # noqa: F401
from pytest_sme2.cli.main import main
from tests.support import Command
from tests.support.nested import without_other_plugins

pytest_plugins = ["pytester"]


@pytest.fixture(autouse=True)
def no_other_plugins(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs inside of tests have our plugin and those that it needs; tests/beside has others."""
    if "pytester" in request.fixturenames:
        request.getfixturevalue("pytester")  # it forgets this variable when it is made
    monkeypatch.setenv("PYTEST_ADDOPTS", without_other_plugins())


@pytest.fixture(autouse=True)
def no_adb_server_is_left(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine's own server would outlive the tests, and whoever looks for phones starts it.
    Tests with phones have servers of their own; at another address none is ours to start.
    """
    if "sme2_model" not in request.fixturenames:
        monkeypatch.setenv("ANDROID_ADB_SERVER_ADDRESS", "127.0.0.2")


@pytest.fixture
def sme2(capsys: pytest.CaptureFixture[str]) -> Command:
    def run(*words: object, code: int = 0) -> Any:
        found = main([*map(str, words)])
        printed = capsys.readouterr()
        assert found == code, printed.err
        return printed

    return run
