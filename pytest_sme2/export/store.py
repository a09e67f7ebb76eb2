"""Exported programs on disk: their names, their metadata, and reading them back."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from pytest_sme2.errors import ExportError, UsageError
from pytest_sme2.export.registry import EXTRA_OF_PACKAGE, ModelEntry
from pytest_sme2.export.variant import Variant
from pytest_sme2.results import Artifact, TensorSpec
from pytest_sme2.system.cache import cache_folder
from pytest_sme2.system.files import file_sha256, safe_name

# 1: the first.
SCHEMA = 1


META_FILE = "export_meta.json"


def load_artifact(folder: Path) -> Artifact:
    """The artifact in a folder, after a check of sizes and hashes."""
    return artifact_from(folder, read_meta(folder))


def find_artifact(
    model: str, variant: Variant, sha256: str, *, cache: Path | None = None
) -> Artifact | None:
    """The artifact whose program has this content, if it is still in the cache."""
    root = (cache or cache_folder()) / "exports"
    for folder in sorted(root.glob(f"{artifact_stem(model, variant)}-*")):
        try:
            found = load_artifact(folder)
        except ExportError:
            # A damaged artifact counts as missing.
            continue
        if found.sha256 == sha256:
            return found
    return None


def artifact_stem(model: str, variant: Variant) -> str:
    """``<model>_xnnpack_<variant>``, as a file name."""
    return f"{safe_name(model)}_xnnpack_{variant}"


def package_versions() -> dict[str, str]:
    """The versions of the packages that change an export; imports none of them."""
    found = {}
    for package in EXTRA_OF_PACKAGE:
        with contextlib.suppress(PackageNotFoundError):
            found[package] = version(package)
    return found


def is_current(dependencies: Mapping[str, Mapping[str, str]]) -> bool:
    """Whether the model's imports from outside its folder are unchanged."""
    for name, digest in dependencies["files"].items():
        file = Path(name)
        if not file.is_file() or file_sha256(file) != digest:
            return False
    for package, installed in dependencies["packages"].items():
        try:
            if version(package) != installed:
                return False
        except PackageNotFoundError:
            return False
    return True


def read_meta(folder: Path) -> dict[str, Any]:
    """The folder's metadata, after every file was checked."""
    try:
        meta: dict[str, Any] = json.loads((folder / META_FILE).read_text("utf-8"))
        if meta["schema"] != SCHEMA:
            raise ExportError(
                f"{folder / META_FILE} has schema {meta['schema']!r}, this version reads {SCHEMA}. "
                "Export the model again."
            )
        for name, expected in meta["files"].items():
            file = folder / Path(name).name
            whole = (
                file.stat().st_size == expected["bytes"] and file_sha256(file) == expected["sha256"]
            )
            if not whole:
                raise ExportError(f"The artifact {folder} is damaged: {name} has changed.")
        _check_meta(meta)
    except ExportError:
        raise
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ExportError(
            f"The artifact {folder} is damaged: {type(error).__name__}: {error}."
        ) from error
    return meta


def _check_meta(meta: Mapping[str, Any]) -> None:
    """Raise if something is missing or has the wrong type."""
    if meta["pte"] not in meta["files"]:
        raise ValueError("it has no program")
    for name in meta["files"]:
        # A path to another folder would read a file that was not checked.
        if Path(name).name != name or "\0" in name:
            raise ValueError(f"{name!r} is not a plain file name")
    texts = [meta[key] for key in ("key", "model", "variant", "weights", "pte")]
    for table in (meta["versions"], *(meta["dependencies"][of] for of in ("files", "packages"))):
        texts += [text for entry in table.items() for text in entry]
    for spec in (*meta["inputs"], *meta["outputs"]):
        texts.append(spec["dtype"])
        if not all(isinstance(size, int) and 0 <= size < 2**63 for size in spec["shape"]):
            raise ValueError(f"{spec['shape']!r} is not a shape")
    for text in texts:
        if not isinstance(text, str):
            raise ValueError(f"{text!r} is not text")


def artifact_from(folder: Path, meta: Mapping[str, Any]) -> Artifact:
    def specs(values: list[dict[str, Any]]) -> tuple[TensorSpec, ...]:
        return tuple(TensorSpec(value["dtype"], tuple(value["shape"])) for value in values)

    inputs, outputs = specs(meta["inputs"]), specs(meta["outputs"])
    return Artifact(
        model=meta["model"],
        variant=meta["variant"],
        folder=folder,
        pte=folder / meta["pte"],
        sha256=meta["files"][meta["pte"]]["sha256"],
        inputs=inputs,
        outputs=outputs,
        input_files=tuple(folder / f"input_{index}.bin" for index in range(len(inputs))),
        reference_files=tuple(folder / f"reference_{index}.bin" for index in range(len(outputs))),
        etrecord=folder / f"{meta['pte']}.etrecord",
        weights=meta["weights"],
        versions=meta["versions"],
    )


def source_hashes(entry: ModelEntry) -> dict[str, str]:
    files = entry.source_files()
    base = Path(os.path.commonpath([file.parent for file in files]))
    return {file.relative_to(base).as_posix(): file_sha256(file) for file in files}


def weights_hash(weights: Path) -> str:
    try:
        return file_sha256(weights)
    except OSError as error:
        raise UsageError(
            f"The weights {str(weights)!r} cannot be read: {error.strerror}. "
            "Give a file saved with torch.save(network.state_dict(), FILE)."
        ) from error
