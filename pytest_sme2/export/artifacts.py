"""Model to Artifact: the content-addressed cache, and the process with torch that fills it."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib.util
import json
import os
import platform
import shutil
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pytest_sme2.errors import (
    ExportError,
    MissingExtraError,
    ModelError,
    Sme2Error,
    StorageError,
    UsageError,
)
from pytest_sme2.export.lowering import LoweringRequest
from pytest_sme2.export.registry import ModelEntry
from pytest_sme2.export.server import SERVERS, ProcessEnvironment, Server
from pytest_sme2.export.store import (
    META_FILE,
    SCHEMA,
    artifact_from,
    artifact_stem,
    is_current,
    load_artifact,
    model_folder,
    package_versions,
    read_meta,
    source_hashes,
    weights_hash,
)
from pytest_sme2.export.variant import Variant
from pytest_sme2.results.run import Artifact
from pytest_sme2.system.cache import (
    cache_folder,
    contents_sha256,
    is_made_here,
    mark_used,
    put_in_place,
    trusted,
    working_folder,
)
from pytest_sme2.system.files import encode, file_sha256, make_folders, sealed
from pytest_sme2.system.locks import locked

TIMEOUT_SECONDS = 3600.0
_HEARTBEAT_SECONDS = 10.0
_MOST_NAMED = 3

# Of our own files beside this one, those that decide the content of rewritten artifacts alone.
_REWRITING = ("forms.py", "rewriting.py", "variant.py")
# Of torch, which is some ten times larger, the version has to do.
_LOWERING = ("executorch", "torchao")


def export_model(
    entry: ModelEntry,
    variant: Variant,
    *,
    cache: Path | None = None,
    weights: Path | None = None,
    seed: int = 0,
    progress: Callable[[str], None] | None = None,
    timeout_seconds: float = TIMEOUT_SECONDS,
    fresh: bool = False,
) -> Artifact:
    """The artifact of a model's variant: from the cache, else made once for all processes.

    ``fresh``: made by this process in any case.
    """
    say = progress or (lambda line: None)
    if not 0 <= seed < 2**32:
        raise UsageError(f"{seed} is not a seed. Give a whole number from 0 to {2**32 - 1}.")
    weights = weights and weights.absolute()
    key = cache_key(entry, variant, weights=weights, seed=seed)
    root = (cache or cache_folder()) / "exports"
    name = f"{artifact_stem(entry.name, variant)}-{key}"
    find = functools.partial(_find, root, name, entry, say, fresh=fresh)
    found = find()
    if found is not None:
        return found
    if entry.file is not None and not is_utf8(entry.file.resolve()):
        raise ModelError(
            f"{entry.name!r} cannot be exported from {entry.file.parent}: the folder's name is not "
            "UTF-8, and torch cannot capture code there. Move or rename the folder."
        )
    try:
        lock = root / "locks" / f"{name}.lock"
        with locked(lock, f"exporting {entry.name} {variant}", say=say):
            # The process that held the lock may have made it.
            found = find()
            if found is not None:
                return found
            with working_folder(root / key) as folder:
                chosen = (entry, variant, weights, seed)
                return _Export(*chosen, root, key, folder, say, timeout_seconds).make()
    except OSError as error:
        raise ExportError(
            f"The artifact of {entry.name!r} ({variant}) cannot be written below {root}: {error}. "
            "Free space there, or set SME2_CACHE_DIR to another folder."
        ) from error


def is_utf8(path: Path) -> bool:
    """Whether a path is text; file systems accept any bytes as a name."""
    return not any("\udc80" <= letter <= "\udcff" for letter in str(path))


def cache_key(entry: ModelEntry, variant: Variant, *, weights: Path | None, seed: int) -> str:
    """A short hash of everything that decides the artifact and is known without torch."""
    beside = sorted(Path(__file__).parent.glob("*.py"))
    code = (file for file in beside if variant.rewrites or file.name not in _REWRITING)
    parts = {
        "schema": SCHEMA,
        "code": [*map(file_sha256, code)],
        "model": [entry.name, entry.class_name],
        "source": source_hashes(entry),
        "variant": str(variant),
        "seed": seed,
        "weights": None if weights is None else weights_hash(weights),
        "versions": package_versions(),
        "lowering": _lowering_sha256(),
        "python": platform.python_version_tuple()[:2],
        "machine": platform.machine(),
    }
    text = json.dumps(parts, sort_keys=True, ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()[:24]


@functools.cache
def _lowering_sha256() -> str:
    """What lowers, but for torch: the same version may have been built or edited again."""
    specs = map(importlib.util.find_spec, _LOWERING)
    found = [Path(place) for one in specs if one for place in one.submodule_search_locations or ()]
    return contents_sha256(*found)


def _find(
    root: Path, name: str, entry: ModelEntry, say: Callable[[str], None], *, fresh: bool
) -> Artifact | None:
    """A complete and current entry of the cache. One key may have several: see ``is_current``."""
    for folder in sorted(root.glob(f"{name}-*")):
        if fresh and not is_made_here(folder):
            continue
        try:
            meta = read_meta(trusted(folder, root.parent), sealed=True)
        except (ExportError, StorageError) as error:
            say(f"exporting again: {error}")
            continue
        if name.endswith(f"-{meta.key}") and is_current(meta.dependencies, entry):
            mark_used(folder)
            return artifact_from(folder, meta)
    return None


@dataclass(frozen=True)
class _Export:
    """One export into the cache; its caller holds the lock, and removes the folder."""

    entry: ModelEntry
    variant: Variant
    weights: Path | None
    seed: int
    root: Path
    key: str
    folder: Path
    """Filled, and renamed when it is complete."""
    report: Callable[[str], None]
    limit: float
    """How many seconds it may take."""
    started: float = field(default_factory=time.monotonic)
    circumstances: ProcessEnvironment = field(default_factory=ProcessEnvironment.of_this_process)

    @property
    def stem(self) -> str:
        return artifact_stem(self.entry.name, self.variant)

    @property
    def log(self) -> Path:
        return self.folder / "export.log"

    def say(self, stage: str) -> None:
        self.report(f"{self.entry.name} {self.variant}: {stage}")

    def waited(self) -> float:
        return time.monotonic() - self.started

    def next_wait(self) -> float:
        """Until there is something to say: that it goes on, or that the time is over."""
        return max(min(_HEARTBEAT_SECONDS, self.limit - self.waited()), 0.001)

    def make(self) -> Artifact:
        meta = sealed(self._meta(self._run_child()))
        (self.folder / META_FILE).write_text(json.dumps(meta, indent=2) + "\n", "utf-8")
        dependencies = json.dumps(meta["dependencies"], sort_keys=True).encode()
        digest = hashlib.sha256(dependencies).hexdigest()[:8]
        final = self.root / f"{self.stem}-{self.key}-{digest}"
        put_in_place(self.folder, final)
        return load_artifact(final)

    def _meta(self, answer: Mapping[str, Any]) -> dict[str, Any]:
        around = model_folder(self.entry)
        read = {
            os.path.relpath(name, around) if self.entry.folder else name: content
            for name, content in answer["files"].items()
            # It is part of the key.
            if name != str(self.weights)
        }
        if self.weights is None:
            used = [(Path(name).name, answer["files"][name]) for name in answer["weights"]]
            weights = _weights(used) or f"random (seed {self.seed})"
        else:
            weights = _weights([(self.weights.name, weights_hash(self.weights))])
        return {
            "schema": SCHEMA,
            "model": self.entry.name,
            "variant": str(self.variant),
            "backend": "xnnpack",
            "pte": f"{self.stem}.pte",
            **answer["described"],
            "weights": weights + ", given as bfloat16" * answer["bfloat16"],
            "seed": self.seed,
            "versions": package_versions(),
            "key": self.key,
            "source": source_hashes(self.entry),
            "dependencies": {"files": read, "packages": answer["packages"]},
            "files": {
                file.name: {"bytes": file.stat().st_size, "sha256": file_sha256(file)}
                for file in sorted(self.folder.iterdir())
            },
        }

    def _run_child(self) -> dict[str, Any]:
        """Start the child, report its progress, and return its answer or raise its error."""
        chosen = (self.entry, self.variant, self.seed, self.weights, self.folder)
        # Where the model runs: whatever it leaves there is no part of the artifact.
        request_file = self.folder / "work" / "request.json"
        request_file.parent.mkdir()
        request_file.write_text(json.dumps(encode(LoweringRequest(*chosen))), "utf-8")
        with self.log.open("wb") as log, SERVERS.borrowed(self.circumstances, log) as server:
            server.ask(request_file, self.log)
            answer = self._listen(server)
        if "error" in answer:
            raise self._error(answer)
        self.say(f"done in {self.waited():.1f} s")
        shutil.rmtree(request_file.parent)
        done: dict[str, Any] = answer["done"]
        return done

    def _still(self, stage: str) -> None:
        """Say that it goes on, or raise that it took too long."""
        if self.waited() >= self.limit:
            raise self._failed(f"{stage} took more than {self.limit:.0f} s.")
        self.say(f"{stage} ({self.waited():.0f} s)")

    def _listen(self, server: Server) -> dict[str, Any]:
        """The answer, when the process has ended."""
        stage = "starting"
        answer: dict[str, Any] = {}
        while True:
            try:
                message = server.hear(self.next_wait())
            except TimeoutError:
                self._still(stage)
                continue
            if "progress" in message:
                stage = message["progress"]
                self.say(stage)
            elif "done" in message or "error" in message:
                answer = message
            elif "ended" in message:
                why = f"{stage} ended the process: {_end_of(message['ended'])}."
                return answer or {"error": "ExportError", "message": why}

    def _error(self, message: Mapping[str, str]) -> Sme2Error:
        kind = message["error"]
        if kind == "MissingExtraError":
            purpose = f"Exporting model {self.entry.name!r}"
            return MissingExtraError(message["package"], message["extra"], purpose)
        if kind == "UsageError":
            return UsageError(message["message"])
        if kind == "ModelError":
            return ModelError(f"{message['message']}\nThe full log: {self._kept_log()}")
        return self._failed(message["message"])

    def _failed(self, why: str) -> ExportError:
        return ExportError(
            f"Model {self.entry.name!r} cannot be exported as {self.variant}: {why}\n"
            f"The full log: {self._kept_log()}"
        )

    def _kept_log(self) -> Path:
        """A copy of the log, whose folder is removed."""
        kept = self.root / "failed" / f"{self.stem}-{self.key}.log"
        make_folders(kept.parent)
        shutil.copyfile(self.log, kept)
        return kept


def _weights(files: Sequence[tuple[str, str]]) -> str:
    """The names and hashes of the files that weights were read from; empty if there are none."""
    named = [f"{name} (sha256 {digest[:12]})" for name, digest in files]
    if len(named) <= _MOST_NAMED:
        return ", ".join(named)
    whole = hashlib.sha256("\0".join(named).encode(errors="surrogateescape")).hexdigest()
    return f"{len(named)} files, the first is {files[0][0]} (sha256 of all {whole[:12]})"


def _end_of(code: int | None) -> str:
    if code is None:
        return "it closed its output but is still running"
    if code >= 0:
        return f"exit code {code}"
    with contextlib.suppress(ValueError):
        name = signal.Signals(-code).name
        hint = ", often because memory ran out" if name == "SIGKILL" else ""
        return f"signal {name}{hint}"
    return f"signal {-code}"
