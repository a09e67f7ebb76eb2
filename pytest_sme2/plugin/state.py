"""What the plugin keeps in pytest's stashes: the session, and what each test found."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import pytest

from pytest_sme2.errors import LASTING, Sme2Error
from pytest_sme2.plugin import options

if TYPE_CHECKING:
    from pytest_sme2.results import Check
    from pytest_sme2.session.cases import Case
    from pytest_sme2.session.gate import Gate
    from pytest_sme2.session.session import Session

SESSION: pytest.StashKey[Session] = pytest.StashKey()
CHECKS: pytest.StashKey[tuple[str, str, list[Check]]] = pytest.StashKey()
"""Of an item: the case's id, its folder in the run directory, and the checks that were made."""
GATE: pytest.StashKey[Gate] = pytest.StashKey()
"""Of an item: its gate, if it asked for one."""
JUDGED: pytest.StashKey[bool] = pytest.StashKey()
"""Of the run, once it is held to its baselines: whether it is red."""
PROBLEMS: pytest.StashKey[list[str]] = pytest.StashKey()
"""Of the run: devices that could not be put back."""
FIRST: pytest.StashKey[dict[tuple[str | None, str], str]] = pytest.StashKey()
"""By the case, or the chip that was asked for, and what was wrong: the test that failed with it."""
UNJUDGED: pytest.StashKey[bool] = pytest.StashKey()
"""Of an item: whether it failed since nobody can tell if its case is good, not as it is bad."""
WIDTH: pytest.StashKey[int] = pytest.StashKey()
"""Of the run: how wide the terminal is. Unknown while a test runs: its output is captured."""


def parameters(item: pytest.Item) -> Mapping[str, Any]:
    found: Mapping[str, Any] = getattr(getattr(item, "callspec", None), "params", {})
    return found


def case_of(item: pytest.Item) -> Case | None:
    """What the test is run for; None if that is not a model."""
    case: Case | None = parameters(item).get("sme2_model")
    return case


def session_of(config: pytest.Config) -> Session:
    """The run's session, made when it is first asked for."""
    if SESSION not in config.stash:
        from pytest_sme2.plugin.progress import progress_of
        from pytest_sme2.session.session import Session

        worker: dict[str, Any] = getattr(config, "workerinput", {})
        settings = options.read_settings(config)
        say = progress_of(config)
        run = worker.get("testrunuid")
        config.stash[SESSION] = Session(settings, say=say, identity=run, worker=bool(worker))
    return config.stash[SESSION]


# --- what fails for many tests alike is one failure: of the first, and the others are skipped -----

_NO_DEVICE = "there is no device:"
_NO_FOLDER = "there is no run directory:"


def skip_without_device(item: pytest.Item) -> None:
    """Skip a test that would only say the same again, perhaps after another long wait."""
    session = item.config.stash.get(SESSION, None)
    names = getattr(item, "fixturenames", ())
    if session is None or not any(name.startswith("sme2_") for name in names):
        return
    first = item.config.stash.get(FIRST, {}).get(("", _NO_DEVICE))
    _skip(item, first, _NO_DEVICE)


def skip_same(item: pytest.Item, error: Sme2Error) -> None:
    """Skip a test that would only repeat what another one says, and else remember it.

    That is a missing device or run directory, and what cannot be exported, built or run of a case.
    """
    session, case = item.config.stash.get(SESSION, None), case_of(item)
    if session is not None and session.bench.missing is error:
        key, why = ("", _NO_DEVICE), _NO_DEVICE
    elif session is not None and session.refused is error:
        key, why = ("", _NO_FOLDER), _NO_FOLDER
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
