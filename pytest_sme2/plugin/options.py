"""What the user chose of this plugin's options, on the command line or in the ini file.

The options are those of ``session.options``; ``names.py`` registers them.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_sme2.errors import UsageError
from pytest_sme2.session.options import OPTIONS, Option, read
from pytest_sme2.system.files import is_program

if TYPE_CHECKING:
    from pytest_sme2.session.settings import Settings

RULES_INI = "sme2_categories"

MODEL_FOLDERS_INI = "sme2_models"

LONG_NAMES_INI = "sme2_long_options"


def _given(config: pytest.Config, option: Option) -> tuple[Any, str]:
    """The command line's value, else the ini file's, else None; and where it is from."""
    value = config.getoption(option.destination)
    if value is not None or not option.ini:
        return value, option.flag
    return config.getini(option.destination), f"ini value {option.destination}"


def model_folders(config: pytest.Config) -> tuple[Path, ...]:
    """The folders named in the ini file, else ``models`` beside it if that exists."""
    named = config.getini(MODEL_FOLDERS_INI)
    base = _base(config)
    if named:
        return tuple(base / folder for folder in named if not is_program(folder))
    default = base / "models"
    return (default,) if default.is_dir() else ()


def program_patterns(config: pytest.Config) -> tuple[str, ...]:
    """The programs that the ini file names beside the folders of models."""
    named = config.getini(MODEL_FOLDERS_INI) or ()
    return tuple(str(_base(config) / name) for name in named if is_program(name))


def _base(config: pytest.Config) -> Path:
    return config.inipath.parent if config.inipath else config.rootpath


def read_settings(config: pytest.Config) -> Settings:
    """The run's settings, or a usage error that names the option and the valid values."""
    try:
        fields = read((option, *_given(config, option)) for option in OPTIONS)
    except UsageError as error:
        raise pytest.UsageError(str(error)) from None
    from pytest_sme2.session.settings import Settings

    return Settings(
        model_folders=model_folders(config),
        programs=program_patterns(config),
        rules=_rules(config),
        **fields,
    )


def _rules(config: pytest.Config) -> tuple[Any, ...]:
    lines = config.getini(RULES_INI)
    if not lines:
        return ()
    from pytest_sme2.profile.categories import parse_rules

    try:
        return tuple(parse_rules(lines))
    except UsageError as error:
        raise pytest.UsageError(f"ini value {RULES_INI}: {error}") from None


def anything_chosen(config: pytest.Config) -> bool:
    """Whether the user chose anything of this plugin; if not, it does nothing."""
    if config.getini(MODEL_FOLDERS_INI) or config.getini(RULES_INI):
        return True
    return any(_given(config, option)[0] is not None for option in OPTIONS)
