"""Registers the options: the project's face under a long and a short name, the others once.

Other plugins and conftest files have options such as ``--device``, too. So the short names are
added last, when the options of all others are known, and only where no plugin has them. The long
names, such as ``--sme2-device``, always work.
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Generator

import pytest

from pytest_sme2.errors import UsageError
from pytest_sme2.plugin import options
from pytest_sme2.session.options import FIRST, OPTIONS, Option

TAKEN: pytest.StashKey[list[str]] = pytest.StashKey()
"""Of the run: the short names that belong to others."""


def long_name(flag: str) -> str:
    """The name of an option that no other plugin has: ``--device`` is ``--sme2-device``."""
    return flag if flag.startswith("--sme2-") else f"--sme2-{flag.removeprefix('--')}"


def _group(parser: pytest.Parser, option: Option) -> pytest.OptionGroup:
    """The heading of an option: what people need comes first, although some is added last."""
    first = parser.getgroup("sme2", "performance of ExecuTorch models on Arm with SME2")
    return first if option.name in FIRST else parser.getgroup("sme2-more", "more about SME2")


def _names_of_others(parser: pytest.Parser) -> set[str]:
    # pytest has no public way to ask. Versions before 9 notice a clash only when they parse.
    groups = [*parser._groups, parser._anonymous]
    return {name for group in groups for option in group.options for name in option.names()}


def add_options(parser: pytest.Parser) -> None:
    """Add the names that are ours alone, and the ini values. The short names come later."""
    for option in OPTIONS:
        name = long_name(option.flag)
        hidden = {} if name == option.flag else {"help": argparse.SUPPRESS}
        _group(parser, option).addoption(name, **{**option.attributes(), **hidden})
        if option.ini:
            kind = "linelist" if option.repeats else "string" if option.parse else "bool"
            text = f"default of {option.flag}"
            parser.addini(option.destination, text, kind, default=None)  # type: ignore[arg-type]
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
    short = {option.flag: option for option in OPTIONS if option.flag != long_name(option.flag)}
    # To pytest, which does not know these options yet, their values look like files of tests.
    valued = {flag for flag, option in short.items() if not option.bare}
    values = {value for flag, value in itertools.pairwise(args) if flag in valued}
    known = early_config.known_args_namespace
    known.file_or_dir = [word for word in known.file_or_dir if word not in values]
    result = yield
    taken = _names_of_others(parser) - {long_name(option.flag) for option in OPTIONS}
    early_config.stash[TAKEN] = [flag for flag in short if flag in taken]
    if early_config.getini(options.LONG_NAMES_INI):
        early_config.stash[TAKEN] = []
        taken |= {*short}
    for flag, option in short.items():
        if flag not in taken:
            _group(parser, option).addoption(flag, **option.attributes())
    # What may be typed without a value takes nothing from the word after it.
    bare = {option.flag for option in OPTIONS if option.bare}
    bare |= {long_name(flag) for flag in bare}
    end = args.index("--") if "--" in args else len(args)
    args[:end] = [f"{word}=" if word in bare - taken else word for word in args[:end]]
    return result


def name_lines(config: pytest.Config) -> list[str]:
    """A line for each option of others that may have been meant for us."""
    chosen = options.anything_chosen(config)
    return [
        f"sme2: {flag} belongs to another plugin or to a conftest.py here. The option of "
        f"pytest-sme2 is {long_name(flag)}."
        for flag in config.stash.get(TAKEN, [])
        if chosen or _looks_like_ours(config, flag)
    ]


def _looks_like_ours(config: pytest.Config, flag: str) -> bool:
    option = next(option for option in OPTIONS if option.flag == flag)
    words = [str(word) for word in config.invocation_params.args]
    typed = [word.partition("=")[2] for word in words if word.startswith(f"{flag}=")]
    typed += [value for name, value in itertools.pairwise(words) if name == flag]
    if not typed:
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
    flags = {option.flag for option in OPTIONS if option.parse and not option.bare}
    flags |= {long_name(flag) for flag in flags}
    for flag, value in itertools.pairwise(map(str, config.invocation_params.args)):
        if flag in flags and (here / value).exists():
            raise pytest.UsageError(
                f"{flag} {value}: pytest read {value} as a folder of tests, and took its "
                f"configuration from there, not from {here}. Write {flag}={value}"
            )
