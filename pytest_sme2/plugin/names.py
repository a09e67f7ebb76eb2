"""Registers the options of ``options.py``, each under a long and a short name.

Other plugins and conftest files have options such as ``--device``, too. So the short names are
added last, when the options of all others are known, and only where nobody has them. The long
names, such as ``--sme2-device``, always work.
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Generator, Iterator
from typing import Any

import pytest

from pytest_sme2.errors import UsageError
from pytest_sme2.plugin import options

TAKEN: pytest.StashKey[list[str]] = pytest.StashKey()
"""Of the run: the short names that belong to others."""


def long_name(flag: str) -> str:
    """The name of an option that no other plugin has: ``--device`` is ``--sme2-device``."""
    return flag if flag.startswith("--sme2-") else f"--sme2-{flag.removeprefix('--')}"


def arguments() -> Iterator[tuple[str, dict[str, Any]]]:
    """Every option's flag, and how it is added to a parser."""
    for option in options.OPTIONS:
        attributes: dict[str, Any] = {"dest": option.destination, "default": None}
        if option.parse is None:
            yield option.flag, {**attributes, "action": "store_true", "help": option.help}
        else:
            action = "append" if option.repeats else "store"
            attributes |= {"action": action, "metavar": option.metavar, "help": option.help}
            yield option.flag, attributes
    for name, (flag, metavar, text) in options.LIMITS.items():
        yield flag, {"dest": f"sme2_{name}", "default": None, "metavar": metavar, "help": text}


def _group(parser: pytest.Parser) -> pytest.OptionGroup:
    """The one heading that all options are under."""
    return parser.getgroup("sme2", "performance of ExecuTorch models on Arm with SME2")


def _names_of_others(parser: pytest.Parser) -> set[str]:
    # pytest has no public way to ask. Versions before 9 notice a clash only when they parse.
    groups = [*parser._groups, parser._anonymous]
    return {name for group in groups for option in group.options for name in option.names()}


def add_options(parser: pytest.Parser) -> None:
    """Add the names that are ours alone, and the ini values. The short names come later."""
    for flag, attributes in arguments():
        name = long_name(flag)
        hidden = {} if name == flag else {"help": argparse.SUPPRESS}
        _group(parser).addoption(name, **{**attributes, **hidden})
    for option in options.OPTIONS:
        if option.ini:
            text = f"default of {option.flag}"
            if option.parse is None:
                parser.addini(option.destination, text, "bool", default=None)
            else:
                parser.addini(option.destination, text, "string", default=None)
    parser.addini(
        options.LONG_NAMES_INI,
        "whether to leave the short names of options, such as --device, to others: ours are then "
        "--sme2-device and so on",
        "bool",
        default=False,
    )
    parser.addini(
        options.RULES_INI,
        "categories of your own operators, one rule per line: PATTERN = CATEGORY KIND",
        "linelist",
        default=None,
    )
    parser.addini(
        options.MODEL_FOLDERS_INI,
        "folders with model folders, one per line; default: models",
        "linelist",
        default=None,
    )


def add_short_names(
    early_config: pytest.Config, parser: pytest.Parser, args: list[str]
) -> Generator[None, object, object]:
    """Around the loading of conftest files, which may add options of their own."""
    short = {flag: how for flag, how in arguments() if flag != long_name(flag)}
    # To pytest, which does not know these options yet, their values look like files of tests.
    values = {value for flag, value in itertools.pairwise(args) if flag in short}
    known = early_config.known_args_namespace
    known.file_or_dir = [word for word in known.file_or_dir if word not in values]
    result = yield
    if early_config.getini(options.LONG_NAMES_INI):
        return result
    taken = _names_of_others(parser)
    early_config.stash[TAKEN] = [flag for flag in short if flag in taken]
    for flag, attributes in short.items():
        if flag not in taken:
            _group(parser).addoption(flag, **attributes)
    return result


def taken_lines(config: pytest.Config) -> list[str]:
    """A line for each option of somebody else that may have been meant for this plugin."""
    chosen = options.anything_chosen(config)
    return [
        f"sme2: {flag} belongs to another plugin or to a conftest.py here. The option of "
        f"pytest-sme2 is {long_name(flag)}."
        for flag in config.stash.get(TAKEN, [])
        if chosen or _looks_like_ours(config, flag)
    ]


def _looks_like_ours(config: pytest.Config, flag: str) -> bool:
    option = next((option for option in options.OPTIONS if option.flag == flag), None)
    words = [str(word) for word in config.invocation_params.args]
    typed = [word.partition("=")[2] for word in words if word.startswith(f"{flag}=")]
    typed += [value for name, value in itertools.pairwise(words) if name == flag]
    if option is None or not typed:
        return False
    try:
        option.read(typed[-1])
    except UsageError:
        return False
    return True


def refuse_misread_folder(config: pytest.Config) -> None:
    """Raise a usage error if pytest mistook one of our values for a folder of tests.

    pytest looks for its ini file before it knows the options of plugins, and treats an existing
    path as tests: `pytest --sme2-out /elsewhere` would read the settings of that folder.
    """
    here = config.invocation_params.dir
    chosen = config.getoption("rootdir") or config.getoption("inifilename")
    found = config.inipath is not None and config.inipath.parent in (here, *here.parents)
    if chosen or found or config.rootpath == here or hasattr(config, "workerinput"):
        return
    flags = {option.flag for option in options.OPTIONS if option.parse is not None}
    flags |= {long_name(flag) for flag in flags}
    for flag, value in itertools.pairwise(map(str, config.invocation_params.args)):
        if flag in flags and (here / value).exists():
            raise pytest.UsageError(
                f"{flag} {value}: pytest read {value} as a folder of tests, and took its "
                f"configuration from there, not from {here}. Write {flag}={value}"
            )
