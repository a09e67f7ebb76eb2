"""What the runs inside these tests are made with."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def nobodys_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    """These runs are nobody's workers, even where this test is one's. In CI a contract binds;
    tests that are about that say so themselves.
    """
    of_xdist = ("WORKER", "WORKER_COUNT", "TESTRUNUID")
    for name in ("CI", *(f"PYTEST_XDIST_{each}" for each in of_xdist)):
        monkeypatch.delenv(name, raising=False)
