"""The plugin's options: how they are registered, and what the user chose.

The table of them is in ``session.options``. Other plugins and conftest files have options such as
``--device``, too. So the short names are added last, when the options of all others are known, and
only where no plugin has them. The long names, such as ``--sme2-device``, always work.
"""

from __future__ import annotations

import argparse
import itertools
import os
import re
from collections.abc import Generator, Iterable
from typing import TYPE_CHECKING, Any

import pytest

from pytest_sme2.errors import UsageError
from pytest_sme2.session.options import FIRST, OPTIONS, Option, read

if TYPE_CHECKING:
    from pytest_sme2.session.settings import Settings

TAKEN: pytest.StashKey[list[str]] = pytest.StashKey()
"""Of the run: the short names that belong to others."""
PARSER: pytest.StashKey[pytest.Parser] = pytest.StashKey()
MODEL_FOLDERS_INI = "sme2_models"


def long_name(flag: str) -> str:
    """The name of an option that no other plugin has: ``--device`` is ``--sme2-device``."""
    return flag if flag.startswith("--sme2-") else f"--sme2-{flag.removeprefix('--')}"


_STRICT = next(option for option in OPTIONS if option.name == "strict")
_SHORT = {option.flag: option for option in OPTIONS if option.flag != long_name(option.flag)}


def _group(parser: pytest.Parser, option: Option) -> pytest.OptionGroup:
    """The heading of an option: what people need comes first, although some is added last."""
    first = parser.getgroup("sme2", "performance of ExecuTorch models on Arm with SME2")
    return first if option.name in FIRST else parser.getgroup("sme2-more", "more about SME2")


def _names_of_others(parser: pytest.Parser) -> set[str]:
    # pytest has no public way to ask. Versions before 9 notice a clash only when they parse.
    groups = [*parser._groups, parser._anonymous]
    names = {name for group in groups for option in group.options for name in option.names()}
    return names - {long_name(option.flag) for option in OPTIONS}


def add_options(parser: pytest.Parser) -> None:
    """Add the names that are ours alone, and the ini values. The short names come later."""
    for option in OPTIONS:
        hidden = {"help": argparse.SUPPRESS} if option.flag in _SHORT else {}
        _group(parser, option).addoption(
            long_name(option.flag), **{**option.attributes(), **hidden}
        )
        if option.ini:
            kind = "linelist" if option.repeats else "string" if option.parse else "bool"
            text = f"default of {option.flag}"
            parser.addini(option.destination, text, kind, default=None)  # type: ignore[arg-type]
    folders = "folders with model folders, one per line; default: models"
    parser.addini(MODEL_FOLDERS_INI, folders, "linelist")


def add_short_names(
    early_config: pytest.Config, parser: pytest.Parser, args: list[str]
) -> Generator[None, object, object]:
    """Around the loading of conftest files, which may add options of their own."""
    # To pytest, which does not know these options yet, their values look like files of tests.
    valued = {flag for flag, option in _SHORT.items() if not option.bare}
    values = {value for flag, value in itertools.pairwise(args) if flag in valued}
    known = early_config.known_args_namespace
    known.file_or_dir = [word for word in known.file_or_dir if word not in values]
    result = yield
    taken = _names_of_others(parser)
    early_config.stash[TAKEN] = [flag for flag in _SHORT if flag in taken]
    for flag, option in _SHORT.items():
        if flag not in taken:
            _group(parser, option).addoption(flag, **option.attributes())
    early_config.stash[PARSER] = parser
    _close_bare(args, taken)
    return result


def _close_bare(args: list[str], taken: Iterable[str]) -> None:
    """What may have no value takes none from the word after it."""
    bare = {flag for flag, option in _SHORT.items() if option.bare}
    bare |= {long_name(flag) for flag in bare}
    end = args.index("--") if "--" in args else len(args)
    args[:end] = [f"{word}=" if word in bare - {*taken} else word for word in args[:end]]


def typed(config: pytest.Config) -> argparse.Namespace:
    """What the command line itself says: no ini file, environment or plugin may choose tests."""
    words = [str(word) for word in config.invocation_params.args]
    taken = config.stash[TAKEN]
    _close_bare(words, taken)
    return config.stash[PARSER].parse_known_args(words)


# These show something instead of running tests.
_SHOWS = re.compile(
    r"--(help|version|co|collect-?only|markers|fixtures(-per-test)?|funcargs|cache-show)(=.*)?"
    r"|-h|-V+"
)


def asks_to_show(config: pytest.Config) -> bool:
    """Whether the command line itself asks for no run of tests."""
    return any(_SHOWS.fullmatch(str(word)) for word in config.invocation_params.args)


def in_ci() -> bool:
    return os.environ.get("CI", "").lower() not in ("", "0", "false")


def refuse_silent_update(config: pytest.Config) -> None:
    """Raise a usage error if something else than the command line asks for an update in CI."""
    updates = config.getoption("sme2_update_baselines") is not None
    worker = hasattr(config, "workerinput")
    if not updates or worker or not (in_ci() or _given(config, _STRICT)[0]):
        return
    if typed(config).sme2_update_baselines is None:
        raise pytest.UsageError(
            "--update-baselines comes from an ini file or PYTEST_ADDOPTS, so that nothing would "
            "ever be compared. In CI and with --sme2-strict only the command line may ask for it."
        )


def name_lines(config: pytest.Config) -> list[str]:
    """A line for each option of others that may be meant for us."""
    return [
        f"sme2: {flag} belongs to another plugin or to a conftest.py here. The option of "
        f"pytest-sme2 is {long_name(flag)}."
        for flag in config.stash[TAKEN]
    ]


def refuse_misread_folder(config: pytest.Config) -> None:
    """Raise a usage error if pytest mistook one of our values for a folder of tests.

    pytest looks for its ini file before it knows the options of plugins, and treats an existing
    path as tests: `pytest --sme2-out /elsewhere` would read the settings of that folder.
    """
    here = config.invocation_params.dir
    named = config.getoption("rootdir") or config.getoption("inifilename")
    found = config.inipath is not None and config.inipath.parent in (here, *here.parents)
    if named or found or config.rootpath == here or hasattr(config, "workerinput"):
        return
    flags = {option.flag for option in OPTIONS if option.parse and not option.bare}
    flags |= {long_name(flag) for flag in flags}
    for flag, value in itertools.pairwise(map(str, config.invocation_params.args)):
        if flag in flags and (here / value).exists():
            raise pytest.UsageError(
                f"{flag} {value}: pytest read {value} as a folder of tests, and took its "
                f"configuration from there, not from {here}. Write {flag}={value}"
            )


def _given(config: pytest.Config, option: Option) -> tuple[Any, str]:
    """The command line's value, else the ini file's, else None; and where it is from."""
    # None while conftest files are loaded: nothing is parsed yet.
    value = config.getoption(option.destination, None)
    if value is not None or not option.ini:
        return value, option.flag
    return config.getini(option.destination), f"ini value {option.destination}"


def anything_chosen(config: pytest.Config) -> bool:
    """Whether the user chose anything of this plugin; if not, it does nothing."""
    if config.getini(MODEL_FOLDERS_INI):
        return True
    return any(_given(config, option)[0] is not None for option in OPTIONS)


def read_settings(config: pytest.Config) -> Settings:
    """The run's settings, or a usage error that names the option and the valid values."""
    try:
        fields = read((option, *_given(config, option)) for option in OPTIONS)
    except UsageError as error:
        raise pytest.UsageError(str(error)) from None
    from pytest_sme2.session.settings import Settings
    from pytest_sme2.system.files import is_program

    # Beside the ini file, wherever pytest was started; what is typed is from there.
    base = config.inipath.parent if config.inipath else config.rootpath
    if config.getoption("sme2_baseline_dir") is not None:
        fields["baseline_dir"] = fields["baseline_dir"].absolute()
    default = ["models"] if (base / "models").is_dir() else []
    named = [base / name for name in config.getini(MODEL_FOLDERS_INI) or default]
    return Settings(
        base=base,
        model_folders=tuple(path for path in named if not is_program(path.name)),
        programs=tuple(str(path) for path in named if is_program(path.name)),
        **fields,
    )
