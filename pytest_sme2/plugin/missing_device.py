"""A missing device is one failure: of the first test that needs it. The others are skipped.

So is a program that does not run: of the first test of its case.
"""

from __future__ import annotations

import pytest

from pytest_sme2.errors import RunError, Sme2Error
from pytest_sme2.plugin.state import SESSION

FIRST: pytest.StashKey[dict[str | None, str]] = pytest.StashKey()
"""By the chip that was asked for: the test that failed because there is no such device."""
BROKEN: pytest.StashKey[dict[tuple[str, str], str]] = pytest.StashKey()
"""By the case and what its runner said: the test that failed with that."""


def remember(item: pytest.Item, error: Sme2Error) -> None:
    """Keep the test's name, if what it failed with is that there is no device."""
    session = item.config.stash.get(SESSION, None)
    if session is not None and session.bench.device.missing is error:
        item.config.stash.setdefault(FIRST, {}).setdefault(session.bench.device.soc, item.nodeid)


def skip_others(item: pytest.Item) -> None:
    """Skip a test that would only say the same again, perhaps after another long wait."""
    session = item.config.stash.get(SESSION, None)
    if session is None or not _needs_device(item):
        return
    first = item.config.stash.get(FIRST, {}).get(session.bench.device.soc)
    # The first one itself may be run again, and must not become a skipped test.
    if first is not None and first != item.nodeid:
        raise pytest.skip.Exception(f"there is no device: {first} says why")


def skip_same(item: pytest.Item, error: Sme2Error) -> None:
    """Skip a test that would only repeat why its program does not run."""
    case = getattr(getattr(item, "callspec", None), "params", {}).get("sme2_model")
    if case is None or not isinstance(error, RunError):
        return
    broken = item.config.stash.setdefault(BROKEN, {})
    # Another run of the same has another log.
    first = broken.setdefault((case.id, str(error).partition(" Its log is ")[0]), item.nodeid)
    if first != item.nodeid:
        raise pytest.skip.Exception(f"it does not run: {first} says why")


def _needs_device(item: pytest.Item) -> bool:
    names = getattr(item, "fixturenames", ())
    return any(name.startswith("sme2_") for name in names)
