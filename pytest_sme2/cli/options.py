"""What commands share: tables of arguments, options that pytest has as well, and their answer."""

from __future__ import annotations

import argparse
import contextlib
import json
import keyword
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_sme2.export.variant import PRECISIONS
from pytest_sme2.session.options import OPTIONS, read
from pytest_sme2.system.terminal import Say, clear_line, terminal_line
from pytest_sme2.targets.settings import DEVICES

if TYPE_CHECKING:
    from pytest_sme2.session.session import Session
    from pytest_sme2.session.settings import Settings

Arguments = Mapping[str, str | tuple[str, Any] | dict[str, Any]]
"""``--out DIR`` and what it is for, or that and its default. What is called as in PATHS is a path,
N is a number, ``{a,b}`` are choices, and what has no value is a switch. ``!`` must be given, ``?``
may be left out, ``+`` is one or more, ``...`` may be repeated. A dictionary is argparse's own."""

PATHS = ("FILE", "DIR", "OUT", "RUN_DIR", "ETDUMP")
FOLDERS: Arguments = {
    "--models-folder DIR...": "a folder of models' folders; may be repeated (default: models)"
}
MODEL: Arguments = {"model MODEL": "the model; `sme2 models` lists them"}
MODEL_OR_PROGRAM = "the model; `sme2 models` lists them. Or a .pte file, which is run as it is"
VARIANT: Arguments = {
    "--variant VARIANT": (
        f"{', '.join(PRECISIONS)}; with an input size as in fp16@256 (default: fp32)",
        "fp32",
    )
}


def shared(*names: str, device: str = "auto", more: str = "") -> Arguments:
    """The options of pytest called ``names``; ``device`` is the default of ``--device`` in words,
    ``more`` what the last of them can do in this command alone.
    """
    found: dict[str, dict[str, Any]] = {}
    for option in OPTIONS:
        if option.name in names:
            how = found[f"--{option.name}"] = option.attributes()
            if option.name == "device":
                how["help"] = f"{', '.join(DEVICES)} (default: {device})"
            elif option.name == names[-1]:
                how["help"] += more
    return found


def add_arguments(parser: argparse.ArgumentParser, table: Arguments) -> None:
    for spec, about in table.items():
        name, _, value = spec.partition(" ")
        if isinstance(about, dict):
            parser.add_argument(name, **about)
            continue
        text, default = about if isinstance(about, tuple) else (about, None)
        how: dict[str, Any] = {"help": text, "default": default}
        if value.startswith("{"):
            how["choices"] = value.strip("{}.!?+").split(",")
        elif value:
            how["metavar"] = value.rstrip("!?+.")
            how["type"] = Path if how["metavar"].partition("|")[0] in PATHS else str
        else:
            how |= {"action": "store_true", "default": bool(default)}
        if how.get("metavar") == "N":
            how["type"] = type(default or 0)
        if value.endswith("..."):
            how |= {"action": "append", "default": []}
        elif value.endswith(("?", "+")):
            how["nargs"] = value[-1]
        elif value.endswith("!"):
            how["required"] = True
        word = name.strip("-").replace("-", "_")
        if keyword.iskeyword(word) or word == "run":
            how["dest"] = f"{word}_"
        parser.add_argument(name, **how)


def chosen(arguments: argparse.Namespace, **defaults: Any) -> dict[str, Any]:
    """The fields of Settings that the shared options fill, over ``defaults``."""
    given = ((option, getattr(arguments, option.destination, None)) for option in OPTIONS)
    return defaults | read((option, value, f"--{option.name}") for option, value in given)


@contextlib.contextmanager
def progress() -> Iterator[Say]:
    """What is said meanwhile is one line of the terminal."""
    try:
        yield terminal_line(sys.stderr)
    finally:
        clear_line(sys.stderr)


@contextlib.contextmanager
def opened(settings: Settings) -> Iterator[Session]:
    from pytest_sme2.session.session import Session

    with progress() as say, contextlib.closing(Session(settings, say)) as session:
        yield session


def show(arguments: argparse.Namespace, document: object, lines: Iterable[str]) -> int:
    """Print the answer: the document where JSON was asked for, else the lines."""
    if arguments.json:
        print(json.dumps(document, indent=2))
    else:
        print("\n".join(lines))
    return 0
