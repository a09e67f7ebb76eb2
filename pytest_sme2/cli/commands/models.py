"""``sme2 models``: what discovery finds."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pytest_sme2.cli.options import FOLDERS, Arguments, show
from pytest_sme2.errors import UsageError
from pytest_sme2.export.registry import Registry, discover
from pytest_sme2.report.text import aligned

EXAMPLE = "sme2 models --models-folder models --json"
DEFAULT_FOLDER = Path("models")
ARGUMENTS: Arguments = {
    **FOLDERS,
    "--contract": {
        "nargs": "?",
        "const": "",
        "metavar": "DIR",
        "help": "instead, print what the baselines (in DIR) want compared",
    },
}


def model_folders(arguments: argparse.Namespace) -> tuple[Path, ...]:
    """The folders that were named, else the default one where it exists."""
    if arguments.models_folder:
        return tuple(arguments.models_folder)
    return (DEFAULT_FOLDER,) if DEFAULT_FOLDER.is_dir() else ()


def registry_of(arguments: argparse.Namespace) -> Registry:
    return discover(model_folders(arguments))


def run(arguments: argparse.Namespace) -> int:
    """Exit code 1 where a model is broken."""
    if arguments.contract is not None:
        return _show_contract(arguments)
    registry = registry_of(arguments)
    models: list[dict[str, Any]] = [
        {
            "name": entry.name,
            "variants": [str(variant) for variant in entry.variants],
            "emulated": [str(variant) for variant in entry.defaults(emulated=True)],
            "source": entry.source,
        }
        for entry in registry.entries
    ]
    problems = [asdict(problem) for problem in registry.problems]
    show(arguments, {"models": models, "problems": problems}, _lines(models, registry))
    return 1 if registry.problems else 0


def _lines(models: Sequence[dict[str, Any]], registry: Registry) -> Iterator[str]:
    rows = [("MODEL", "VARIANTS", "ON THE EMULATOR", "SOURCE")]
    for entry in models:
        variants, emulated = (",".join(entry[name]) or "none" for name in ("variants", "emulated"))
        rows.append((entry["name"], variants, emulated, entry["source"]))
    if models:
        yield from aligned(rows)
    else:
        yield "No model was found. Name a folder with --models-folder; see docs/models.md."
    for problem in registry.problems:
        yield f"\nbroken: {problem}"
        yield from (f"    {line}" for line in problem.traceback.splitlines())


def _show_contract(arguments: argparse.Namespace) -> int:
    # Other commands use this module, and do without what that imports.
    from pytest_sme2.session.settings import Settings
    from pytest_sme2.verdict import contract

    named = Path(arguments.contract) if arguments.contract else None
    root = Settings(baseline_dir=named).baseline_folder
    stored = contract.of_devices(root)
    if not stored:
        raise UsageError(f"{root} holds no baseline. --update-baselines writes one.")
    names = ("device", "case", "figure", "test")
    rows = list(contract.rows(stored))
    document = [dict(zip(names, row, strict=True)) for row in rows]
    return show(arguments, document, aligned([tuple(map(str.upper, names)), *rows]))
