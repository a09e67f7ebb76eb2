"""``sme2 export``: one model, one variant, into the cache and, where asked for, a folder."""

from __future__ import annotations

import argparse
import contextlib
import shutil
from pathlib import Path

from pytest_sme2.cli.commands.models import registry_of
from pytest_sme2.cli.options import FOLDERS, MODEL, VARIANT, Arguments
from pytest_sme2.errors import ExportError, UsageError
from pytest_sme2.export.artifacts import export_model
from pytest_sme2.export.store import META_FILE, load_artifact
from pytest_sme2.export.variant import parse_variant
from pytest_sme2.export.weights import fetch_weights
from pytest_sme2.results.run import Artifact
from pytest_sme2.system.files import new_folder, replacing
from pytest_sme2.system.terminal import say

EXAMPLE = "sme2 export toy_cnn --variant fp16 --out out/toy_cnn"
ARGUMENTS: Arguments = {
    **MODEL,
    **VARIANT,
    "--out DIR": "copy the artifact here (default: cache only)",
    "--weights FILE": "a state dict (default: random weights)",
    "--fetch-weights": "download the trained weights that the model's folder names, and check them",
    "--seed N": ("the seed for random weights and inputs (default: 0)", 0),
    "--json": "print export_meta.json instead of the path",
    **FOLDERS,
}


def run(arguments: argparse.Namespace) -> int:
    variant = parse_variant(arguments.variant)
    entry = registry_of(arguments).get(arguments.model)
    if arguments.out is not None:
        _check_free(arguments.out, entry.name, str(variant))
    weights = arguments.weights
    if arguments.fetch_weights:
        if weights is not None:
            raise UsageError("Give --weights or --fetch-weights, not both.")
        weights = fetch_weights(entry, say)
        say(f"kept {weights}; tests use it with --sme2-weights")
    artifact = export_model(entry, variant, weights=weights, seed=arguments.seed, progress=say)
    if arguments.out is not None:
        artifact = _copy(artifact, arguments.out)
    if arguments.json:
        print((artifact.folder / META_FILE).read_text("utf-8"), end="")
    else:
        print(artifact.pte)
    return 0


def _check_free(folder: Path, model: str, variant: str) -> None:
    """An artifact is a folder: files of two would be taken for one."""
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"{str(folder)!r} is a file. Name a folder with --out.")
    if not (folder / META_FILE).exists():
        return
    try:
        there = load_artifact(folder)
    except ExportError:
        return
    if (there.model, there.variant) != (model, variant):
        raise UsageError(
            f"{str(folder)!r} holds {there.model!r} ({there.variant}) already. "
            "Name another folder with --out."
        )


def _copy(artifact: Artifact, folder: Path) -> Artifact:
    """A folder that appears whole; in one that has files, the metadata with all hashes is last."""
    files = sorted(artifact.folder.iterdir(), key=lambda file: file.name == META_FILE)
    try:
        there = folder.exists() and any(folder.iterdir())
        with contextlib.nullcontext(folder) if there else new_folder(folder) as made:
            for file in files:
                with replacing(made / file.name) as copy, file.open("rb") as content:
                    shutil.copyfileobj(content, copy)
    except OSError as error:
        raise ExportError(f"The artifact cannot be written to {folder}: {error}.") from error
    return load_artifact(folder)
