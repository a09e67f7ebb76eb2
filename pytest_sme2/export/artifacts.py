"""Model to Artifact: the content-addressed cache and the child process that fills it.

Only that child imports torch (see lowering.py). A cache hit starts no process.
"""

from __future__ import annotations

import hashlib
import json
import platform
from collections.abc import Callable
from pathlib import Path

from pytest_sme2.errors import ExportError, MissingExtraError, ModelError, UsageError
from pytest_sme2.export.child import Export
from pytest_sme2.export.registry import EXTRA_OF_PACKAGE, ModelEntry
from pytest_sme2.export.store import (
    SCHEMA,
    artifact_from,
    artifact_stem,
    is_current,
    package_versions,
    read_meta,
    source_hashes,
    weights_hash,
)
from pytest_sme2.export.variant import Variant
from pytest_sme2.results import Artifact
from pytest_sme2.system.cache import cache_folder, mark_used
from pytest_sme2.system.files import file_sha256
from pytest_sme2.system.locks import locked
from pytest_sme2.system.shared_store import fetch, offer

TIMEOUT_SECONDS = 3600.0


# Our own files that decide the content of an artifact.
_CODE = (
    *("artifacts.py", "child.py", "forking.py", "imports.py", "loading.py", "lowering.py"),
    *("quantize.py", "quicker.py", "random_weights.py", "sequences.py", "server.py", "store.py"),
    *("torchvision_shim.py", "weights.py"),
)
_REWRITING = ("rewriting.py",)


def export_model(
    entry: ModelEntry,
    variant: Variant,
    *,
    cache: Path | None = None,
    weights: Path | None = None,
    seed: int = 0,
    graph: bool = False,
    progress: Callable[[str], None] | None = None,
    timeout_seconds: float = TIMEOUT_SECONDS,
) -> Artifact:
    """The artifact of a model's variant: from the cache, else made once for all processes."""
    say = progress or _say_nothing
    if not 0 <= seed < 2**32:
        raise UsageError(f"{seed} is not a seed. Give a whole number from 0 to {2**32 - 1}.")
    if weights is not None:
        weights = weights.absolute()
    key = cache_key(entry, variant, weights=weights, seed=seed, graph=graph)
    root = (cache or cache_folder()) / "exports"
    stem = artifact_stem(entry.name, variant)
    name = f"{stem}-{key}"
    found = _find(root, name, entry, say)
    if found is not None:
        offer("exports", name, found.folder, made=False)
        return found
    if entry.file is not None and not is_utf8(entry.file.resolve()):
        raise ModelError(
            f"{entry.name!r} cannot be exported from {entry.file.parent}: the folder's name is not "
            "UTF-8, and torch cannot capture code there. Move or rename the folder."
        )
    _require_packages()
    try:
        lock = root / "locks" / f"{name}.lock"
        with locked(lock, f"exporting {entry.name} {variant}", say=say):
            # The process that held the lock may have made it.
            found = _find(root, name, entry, say)
            if found is None and fetch("exports", name, root.parent):
                found = _find(root, name, entry, say)
            if found is not None:
                return found
            export = Export(entry, variant, weights, seed, graph, root, key, say)
            made = export.make(timeout_seconds)
            offer("exports", name, made.folder, made=True)
            return made
    except OSError as error:
        raise ExportError(
            f"The artifact of {entry.name!r} ({variant}) cannot be written below {root}: {error}. "
            "Free space there, or set SME2_CACHE_DIR to another folder."
        ) from error


def is_utf8(path: Path) -> bool:
    """Whether a path is text; file systems accept any bytes as a name."""
    return not any("\udc80" <= letter <= "\udcff" for letter in str(path))


def cache_key(
    entry: ModelEntry, variant: Variant, *, weights: Path | None, seed: int, graph: bool
) -> str:
    """A short hash of everything that decides the artifact and is known without torch."""
    here = Path(__file__).parent
    parts = {
        "schema": SCHEMA,
        "code": [
            file_sha256(here / name) for name in (*_CODE, *_REWRITING * bool(variant.rewrites))
        ],
        "model": [entry.name, entry.kind, entry.module, entry.class_name],
        "source": source_hashes(entry),
        "variant": str(variant),
        "seed": seed,
        "weights": None if weights is None else weights_hash(weights),
        "graph": graph,
        "versions": package_versions(),
        "python": platform.python_version_tuple()[:2],
        "machine": platform.machine(),
    }
    text = json.dumps(parts, sort_keys=True, ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()[:24]


# --- looking up -----------------------------------------------------------------------------------


def _find(root: Path, name: str, entry: ModelEntry, say: Callable[[str], None]) -> Artifact | None:
    """A complete and current entry of the cache. One key may have several: see ``is_current``."""
    for folder in sorted(root.glob(f"{name}-*")):
        try:
            meta = read_meta(folder)
        except ExportError as error:
            say(f"exporting again: {error}")
            continue
        if name.endswith(f"-{meta.key}") and is_current(meta.dependencies, entry):
            mark_used(folder)
            return artifact_from(folder, meta)
    return None


# --- making ---------------------------------------------------------------------------------------


def _require_packages() -> None:
    installed = package_versions()
    for package, extra in EXTRA_OF_PACKAGE.items():
        if extra == "export" and package not in installed:
            raise MissingExtraError(package, extra, "Exporting a model")


def _say_nothing(line: str) -> None:
    pass
