"""What the runs inside these tests are made with."""

from __future__ import annotations

from importlib.metadata import entry_points

import pytest

_WANTED = ("benchmark", "sme2", "xdist", "xdist.looponfail")


@pytest.fixture(autouse=True)
def no_other_plugins(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave out what else is installed: it may order the tests anew. tests/beside has such ones."""
    if "pytester" in request.fixturenames:
        request.getfixturevalue("pytester")  # it forgets this variable when it is made
    installed = {entry.name for entry in entry_points(group="pytest11")}
    others = sorted(installed.difference(_WANTED))
    # In CI a contract binds; tests that are about that say so themselves. And these runs are
    # nobody's workers, even where this test is one's.
    of_xdist = ("WORKER", "WORKER_COUNT", "TESTRUNUID")
    for name in ("CI", *(f"PYTEST_XDIST_{each}" for each in of_xdist)):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PYTEST_ADDOPTS", " ".join(f"-p no:{name}" for name in others))
