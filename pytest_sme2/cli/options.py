"""The options that commands share with pytest; theirs have no prefix."""

from __future__ import annotations

import argparse
from typing import Any

from pytest_sme2.session.options import DEVICE, OPTIONS, RUNNERS, read
from pytest_sme2.targets.settings import DEVICES


def add_options(
    parser: argparse.ArgumentParser, *names: str, device: str = "auto", more: str = ""
) -> None:
    """Add the options called ``names``.

    Args:
        parser: of a command.
        names: as ``Option.name`` has them.
        device: says in words which one it is without ``--device``.
        more: what the last of them can do in this command alone.
    """
    group = parser.add_argument_group("the device")
    for option in OPTIONS:
        if option.name in names:
            how = option.attributes()
            if option.name == "device":
                how["help"] = f"{', '.join(DEVICES)} (default: {device})"
            elif option.name == names[-1]:
                how["help"] += more
            of = group if option.name in (*DEVICE, *RUNNERS) else parser
            of.add_argument(f"--{option.name}", **how)


def chosen(arguments: argparse.Namespace, **defaults: Any) -> dict[str, Any]:
    """The fields of Settings that those options fill, over ``defaults``."""
    given = ((option, getattr(arguments, option.destination, None)) for option in OPTIONS)
    return defaults | read((option, value, f"--{option.name}") for option, value in given)
