"""What fails for many tests alike is one failure: of the first of them. The others are skipped.

That is a missing device, and what cannot be exported, built or run of one case.
"""

from __future__ import annotations

import pytest

from pytest_sme2.errors import LASTING, Sme2Error
from pytest_sme2.plugin.state import SESSION, case_of

FIRST: pytest.StashKey[dict[tuple[str | None, str], str]] = pytest.StashKey()
"""By the case, or the chip that was asked for, and what was wrong: the test that failed with it."""
_NO_DEVICE = "there is no device:"


def skip_without_device(item: pytest.Item) -> None:
    """Skip a test that would only say the same again, perhaps after another long wait."""
    session = item.config.stash.get(SESSION, None)
    names = getattr(item, "fixturenames", ())
    if session is None or not any(name.startswith("sme2_") for name in names):
        return
    first = item.config.stash.get(FIRST, {}).get((session.bench.device.soc, _NO_DEVICE))
    _skip(item, first, _NO_DEVICE)


def skip_same(item: pytest.Item, error: Sme2Error) -> None:
    """Skip a test that would only repeat what another one says, and else remember it."""
    session, case = item.config.stash.get(SESSION, None), case_of(item)
    if session is not None and session.bench.device.missing is error:
        key, why = (session.bench.device.soc, _NO_DEVICE), _NO_DEVICE
    elif case is not None and isinstance(error, LASTING):
        # Another run of the same has another log.
        key, why = (case.id, str(error).partition(" Its log is ")[0]), "it does not run:"
    else:
        return
    _skip(item, item.config.stash.setdefault(FIRST, {}).setdefault(key, item.nodeid), why)


def _skip(item: pytest.Item, first: str | None, why: str) -> None:
    # The first one itself may be run again, and must not become a skipped test.
    if first is not None and first != item.nodeid:
        raise pytest.skip.Exception(f"{why} {first} says why")
