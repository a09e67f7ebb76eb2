"""The command that runs one test again, from the folder where pytest was started."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from pytest_sme2.plugin.options import TAKEN, long_name
from pytest_sme2.session.options import OPTIONS

# What only says where results go, or that they are accepted.
_OUTPUTS = ("device", "out", "report", "update-baselines")
_PACKAGE = Path(__file__).resolve().parents[1]


def test_words(item: pytest.Item, device: str) -> list[str]:
    """All words after ``pytest``."""
    config = item.config
    taken = config.stash.get(TAKEN, ())
    return [
        *_ini_words(config),
        f"{'--sme2-device' if '--device' in taken else '--device'}={device}",
        *_typed(config),
        *_place(item),
    ]


def _ini_words(config: pytest.Config) -> Iterator[str]:
    chosen = config.getoption("inifilename")
    if chosen:
        yield f"--config-file={chosen}"
    for text in config.getoption("override_ini") or ():
        yield f"--override-ini={text}"


def _typed(config: pytest.Config) -> Iterator[str]:
    """Our options as they were typed; those of the ini file are there again without a word."""
    taken = config.stash.get(TAKEN, ())
    for option in OPTIONS:
        value = config.getoption(option.destination)
        if value is None or option.name in _OUTPUTS:
            continue
        name = long_name(option.flag) if option.flag in taken else option.flag
        for each in value if isinstance(value, list) else [value]:
            yield name if each is True else f"{name}={each}"


def _place(item: pytest.Item) -> Iterator[str]:
    inner = item.nodeid.partition("::")[2]
    path = item.path.resolve()
    if path.is_relative_to(_PACKAGE):
        # The suite that is installed with the package: its files are nowhere near the user's.
        module = ".".join(path.relative_to(_PACKAGE.parent).with_suffix("").parts)
        yield "--pyargs"
        yield f"{module}::{inner}"
    else:
        yield f"{os.path.relpath(path, item.config.invocation_params.dir)}::{inner}"
