"""The arguments of commands: their own, and the options that they share with pytest."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pytest_sme2.export.variant import PRECISIONS
from pytest_sme2.session.options import DEVICE, OPTIONS, RUNNERS, read
from pytest_sme2.targets.settings import DEVICES

Arguments = Mapping[str, str | tuple[str, Any]]
"""``--out DIR`` and what it is for, or that and its default. What is called as in PATHS is a path,
N is a number, ``{a,b}`` are choices, and what has no value is a switch. ``!`` must be given, ``?``
may be left out, ``+`` is one or more, ``...`` may be repeated."""

PATHS = ("FILE", "DIR", "OUT", "RUN_DIR", "ETDUMP")
FOLDERS: Arguments = {
    "--models-folder DIR...": "a folder of models' folders; may be repeated (default: models)"
}
MODEL: Arguments = {"model MODEL": "the model; `sme2 models` lists them"}
MODEL_OR_PROGRAM = "the model; `sme2 models` lists them. Or a .pte file, which is run as it is"
RULES: Arguments = {
    "--rule RULE...": "a category of your operators: 'PATTERN = CATEGORY kind'; may be repeated"
}
VARIANT: Arguments = {
    "--variant VARIANT": (
        f"{', '.join(PRECISIONS)}; with an input size as in fp16@256 (default: fp32)",
        "fp32",
    )
}


def add_arguments(parser: argparse.ArgumentParser, table: Arguments) -> None:
    """Add the arguments of a table."""
    for spec, about in table.items():
        name, _, value = spec.partition(" ")
        text, default = about if isinstance(about, tuple) else (about, None)
        how: dict[str, Any] = {"help": text, "default": default}
        if value.startswith("{"):
            how["choices"] = value.strip("{}.").split(",")
        elif value:
            how["metavar"] = value.rstrip("!?+.")
            how["type"] = Path if how["metavar"].partition("|")[0] in PATHS else str
        else:
            how |= {"action": "store_true", "default": bool(default)}
        if how.get("metavar") == "N":
            how["type"] = int
        if value.endswith("..."):
            how |= {"action": "append", "default": []}
        elif value.endswith(("?", "+")):
            how["nargs"] = value[-1]
        elif value.endswith("!"):
            how["required"] = True
        parser.add_argument(name, **how)


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
