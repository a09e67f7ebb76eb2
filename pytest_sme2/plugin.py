"""The pytest plugin: registration, header, parametrization. The work is done elsewhere.

Registration loads nothing but the standard library: the session, and with it everything that
costs time, is made when the first test asks for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pytest_sme2 import options
from pytest_sme2.errors import UsageError

if TYPE_CHECKING:
    from pytest_sme2.session import Session

SESSION = pytest.StashKey["Session"]()


def pytest_addoption(parser: pytest.Parser) -> None:
    options.add_options(parser)


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers",
        "sme2(models=None, variants=None): run a test that asks for a model only for these "
        "models and variants (a name or a list of names each).",
    )
    # Bad values are refused before anything is collected.
    options.read_settings(config)


def session_of(config: pytest.Config) -> Session:
    """The run's session, made when it is first asked for."""
    if SESSION not in config.stash:
        from pytest_sme2.session import Session

        config.stash[SESSION] = Session(options.read_settings(config))
    return config.stash[SESSION]


def pytest_unconfigure(config: pytest.Config) -> None:
    if SESSION in config.stash:
        config.stash[SESSION].close()


def pytest_report_header(config: pytest.Config) -> list[str]:
    if not options.anything_chosen(config):
        return []
    return session_of(config).header()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "sme2_model" not in metafunc.fixturenames:
        return
    marker = metafunc.definition.get_closest_marker("sme2")
    wanted = dict(marker.kwargs) if marker else {}
    try:
        cases = session_of(metafunc.config).cases(
            models=_names(wanted.get("models")), variants=_names(wanted.get("variants"))
        )
    except UsageError as error:
        raise pytest.UsageError(f"{metafunc.definition.nodeid}: {error}") from None
    if cases:
        parameters = [pytest.param(case, id=case.id) for case in cases]
    else:
        reason = (
            "no model is known to this run: name a folder of models in the ini value "
            "sme2_models, or put one in models/ (see `sme2 models`)"
        )
        parameters = [pytest.param(None, id="no-model", marks=pytest.mark.skip(reason=reason))]
    metafunc.parametrize("sme2_model", parameters, indirect=True, scope="session")


def _names(value: object) -> tuple[str, ...] | None:
    """A marker's argument: one name or several."""
    if value is None:
        return None
    if isinstance(value, str):
        return (value,)
    if isinstance(value, (list, tuple)) and all(isinstance(name, str) for name in value):
        return tuple(value)
    raise UsageError(f"{value!r} in @pytest.mark.sme2 is neither a name nor a list of names.")
