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


@pytest.fixture
def sme2(capsys: pytest.CaptureFixture[str]) -> Command:
    def run(*words: object, code: int = 0) -> Any:
        found = main([*map(str, words)])
        printed = capsys.readouterr()
        assert found == code, printed.err
        return printed

    return run
