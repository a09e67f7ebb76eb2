"""Exported programs on disk: their names, their metadata, and reading them back."""

from __future__ import annotations

import contextlib
import hashlib
import os
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from pytest_sme2.errors import ExportError, StorageError, UsageError
from pytest_sme2.export.registry import EXTRA_OF_PACKAGE, ModelEntry
from pytest_sme2.export.variant import Variant
from pytest_sme2.results.run import Artifact, GenerationPlan, TensorSpec
from pytest_sme2.system.cache import find_cache, trusted
from pytest_sme2.system.files import FileFacts, decode, file_sha256, is_sealed, read_json, safe_name

# 1: the first.
SCHEMA = 1
META_FILE = "export_meta.json"
_EXPORT_AGAIN = "Export the model again."


@dataclass(frozen=True)
class Dependencies:
    """What the model read, and the packages that it imported."""

    files: dict[str, str]
    """``content_of`` by path from the model's folder: a clone may lie anywhere."""
    packages: dict[str, str]
    """Version by name."""


@dataclass(frozen=True)
class Meta:
    """What is read of ``export_meta.json``; more is in it for people."""

    schema: int
    key: str
    model: str
    variant: str
    pte: str
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    weights: str
    versions: dict[str, str]
    dependencies: Dependencies
    files: dict[str, FileFacts]
    tokens: int | None = None
    generation: GenerationPlan | None = None
    forms: tuple[str, ...] = ()
    """What rewrites that look at what operators do wrote, and how."""
    unused: tuple[str, ...] = ()
    """What the model computes in vain, where it was looked for."""


def load_artifact(folder: Path) -> Artifact:
    """The artifact in a folder, after a check of sizes and hashes."""
    return artifact_from(folder, read_meta(folder))


def find_artifact(
    model: str, variant: Variant, sha256: str, *, cache: Path | None = None
) -> Artifact | None:
    """The artifact whose program has this content, if it is still in the cache."""
    root = (cache or find_cache()) / "exports"
    for folder in sorted(root.glob(f"{artifact_stem(model, variant)}-*")):
        try:
            found = load_artifact(trusted(folder, root.parent))
        except (ExportError, StorageError):
            # A damaged artifact, or one that others can write to, counts as missing.
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


def is_current(dependencies: Dependencies, entry: ModelEntry) -> bool:
    """Whether all that the model read and imported is unchanged."""
    try:
        return all(
            content_of(model_folder(entry) / name) == known
            for name, known in dependencies.files.items()
        ) and all(version(name) == known for name, known in dependencies.packages.items())
    except PackageNotFoundError:
        return False


def content_of(path: Path) -> str:
    """What an export finds at a path: the hash of a file, or of the names in a folder."""
    try:
        if path.is_dir():
            names = sorted(inner.name for inner in path.iterdir() if inner.name != "__pycache__")
            text = "\0".join(names).encode(errors="surrogateescape")
            return f"folder {hashlib.sha256(text).hexdigest()}"
        # To read a pipe could take for ever.
        return file_sha256(path) if path.is_file() else "missing"
    except (OSError, ValueError) as error:
        return f"unreadable: {type(error).__name__}"


def read_meta(folder: Path, *, sealed: bool = False) -> Meta:
    """The folder's metadata, after every file was checked. ``sealed``: it is as it was written."""
    path = folder / META_FILE
    document = read_json(path, remedy=_EXPORT_AGAIN, error=ExportError)
    schema = document.get("schema") if isinstance(document, dict) else None
    if schema is not None and schema != SCHEMA:
        raise ExportError(
            f"{path} has schema {schema!r}, this version reads {SCHEMA}. {_EXPORT_AGAIN}"
        )
    if sealed and not is_sealed(document):
        raise ExportError(f"The artifact {folder} is damaged: its metadata has changed.")
    meta: Meta = decode(document, Meta, path, remedy=_EXPORT_AGAIN, error=ExportError)
    for name, expected in meta.files.items():
        # A path to another folder would read a file that was not checked.
        if Path(name).name != name or "\0" in name:
            raise ExportError(
                f"The artifact {folder} is damaged: {name!r} is not a plain file name."
            )
        file = folder / name
        try:
            whole = file.stat().st_size == expected.bytes and file_sha256(file) == expected.sha256
        except (OSError, ValueError) as error:
            raise ExportError(f"The artifact {folder} is damaged: {error}.") from error
        if not whole:
            raise ExportError(f"The artifact {folder} is damaged: {name} has changed.")
    if meta.pte not in meta.files:
        raise ExportError(f"The artifact {folder} is damaged: it has no program.")
    plan = meta.generation
    if plan is not None:
        needed = [f"prompt_{index}.bin" for index in range(len(plan.prompt))]
        needed += [f"next_{i}.bin" for i, output in enumerate(plan.fed_back) if output is None]
        numbers = (plan.prompt_tokens, plan.new_tokens)
        if not (min(numbers) > 0 and set(needed) <= set(meta.files)):
            raise ExportError(f"The artifact {folder} is damaged: its generation is not whole.")
    for spec in (*meta.inputs, *meta.outputs, *(plan.prompt if plan else ())):
        if not all(0 <= size < 2**63 for size in spec.shape):
            raise ExportError(f"The artifact {folder} is damaged: {spec.shape} is not a shape.")
    return meta


def artifact_from(folder: Path, meta: Meta) -> Artifact:
    def files(what: str, specs: tuple[TensorSpec, ...]) -> tuple[Path, ...]:
        return tuple(folder / f"{what}_{index}.bin" for index in range(len(specs)))

    return Artifact(
        model=meta.model,
        variant=meta.variant,
        folder=folder,
        pte=folder / meta.pte,
        sha256=meta.files[meta.pte].sha256,
        inputs=meta.inputs,
        outputs=meta.outputs,
        input_files=files("input", meta.inputs),
        reference_files=files("reference", meta.outputs),
        etrecord=folder / f"{meta.pte}.etrecord",
        weights=meta.weights,
        versions=meta.versions,
        tokens=meta.tokens,
        generation=meta.generation,
        forms=meta.forms,
        unused=meta.unused,
    )


def model_folder(entry: ModelEntry) -> Path:
    return Path() if entry.folder is None else entry.folder.resolve()


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
