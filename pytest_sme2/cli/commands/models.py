"""``sme2 models``: what discovery finds."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from pytest_sme2.cli.options import FOLDERS, Arguments
from pytest_sme2.errors import UsageError
from pytest_sme2.export.discovery import discover
from pytest_sme2.export.registry import EXECUTORCH_PREFIX, ModelEntry, Registry, executorch_models
from pytest_sme2.report.text import aligned

EXAMPLE = "sme2 models --models-folder models --json"
DEFAULT_FOLDER = Path("models")
ARGUMENTS: Arguments = {
    **FOLDERS,
    "--executorch": "also list ExecuTorch's example models",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--contract",
        nargs="?",
        type=Path,
        const=Path("baselines"),
        metavar="DIR",
        help="instead, print what must be compared: the contract in DIR (default: baselines)",
    )


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
        return _print_contract(arguments.contract, as_json=arguments.json)
    registry = registry_of(arguments)
    entries = list(registry.entries)
    if arguments.executorch:
        entries += [registry.get(EXECUTORCH_PREFIX + name) for name in sorted(executorch_models())]
    if arguments.json:
        print(json.dumps(_as_json(entries, registry), indent=2))
    else:
        _print_table(entries)
        _print_problems(registry)
    return 1 if registry.problems else 0


def _as_json(entries: list[ModelEntry], registry: Registry) -> dict[str, object]:
    return {
        "models": [
            {
                "name": entry.name,
                "variants": [str(variant) for variant in entry.variants],
                "emulated": [str(variant) for variant in entry.defaults(emulated=True)],
                "kind": entry.kind,
                "source": entry.source,
            }
            for entry in entries
        ],
        "problems": [
            {
                "name": problem.name,
                "source": problem.source,
                "message": problem.message,
                "traceback": problem.traceback,
            }
            for problem in registry.problems
        ],
    }


def _print_table(entries: list[ModelEntry]) -> None:
    if not entries:
        print("No model was found. Name a folder with --models-folder; see docs/models.md.")
        return
    rows = [("MODEL", "VARIANTS", "ON THE EMULATOR", "SOURCE")]
    rows += [
        (
            entry.name,
            ",".join(map(str, entry.variants)),
            ",".join(map(str, entry.defaults(emulated=True))) or "none",
            entry.source,
        )
        for entry in entries
    ]
    print("\n".join(aligned(rows)))


def _print_contract(root: Path, *, as_json: bool) -> int:
    # Other commands use this module, and do without what that imports.
    from pytest_sme2.verdict import contract

    found = contract.load(root)
    if found is None:
        raise UsageError(f"{root} has no {contract.FILE_NAME}. --update-baselines writes it.")
    names = ("device", "case", "figure", "test")
    rows = list(contract.rows(found))
    if as_json:
        print(json.dumps([dict(zip(names, row, strict=True)) for row in rows], indent=2))
    else:
        print("\n".join(aligned([tuple(map(str.upper, names)), *rows])))
    return 0


def _print_problems(registry: Registry) -> None:
    for problem in registry.problems:
        print(f"\nbroken: {problem}")
        for line in problem.traceback.splitlines():
            print(f"    {line}")
