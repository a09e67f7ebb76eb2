"""A runner and programs in one ``.tar.gz``: to measure against later, or to run on a phone.

Every file is compared with the manifest's hash before anything in it is used, each time. The hashes
show damage, not intent: a bundle holds programs that will be run, so open only those whose source
you trust. A bundle may also hold the runner alone: with the C library and its loader inside, it
runs on phones without an NDK.
"""

from __future__ import annotations

import errno
import gzip
import hashlib
import io
import json
import os
import platform
import tarfile
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pytest_sme2.errors import BundleError, ExportError, Sme2Error, StorageError, UsageError
from pytest_sme2.export.store import artifact_stem, load_artifact
from pytest_sme2.export.variant import parse_variant
from pytest_sme2.results.run import PAIR, Artifact
from pytest_sme2.runners.base import Runner
from pytest_sme2.runners.sme2 import Sme2Runner
from pytest_sme2.system.cache import (
    cache_folder,
    is_believed,
    mark_used,
    put_in_place,
    working_folder,
)
from pytest_sme2.system.files import (
    FileFacts,
    decode,
    encode,
    file_facts,
    file_sha256,
    json_value,
    replacing,
    unwritable,
)
from pytest_sme2.system.locks import locked

# The history of the manifest. A change of its meaning raises the number.
#   1  runner, artifacts, and sha256 and size of every file
#   2  the runner takes turns and generates
SCHEMA = 2

SUFFIXES = (".tar.gz", ".tgz")
MANIFEST = "manifest.json"
_RUNNER = "runner"
_ARTIFACTS = "artifacts"
MOST_GROWTH = 20
"""How many times its own size a bundle may unpack to …"""
ALWAYS_ALLOWED = 64 << 20
"""… on top of this many bytes."""
_UNWRITABLE = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)


_DAMAGE = (
    *(OSError, EOFError, tarfile.TarError, zlib.error, ValueError),
    *(BundleError, ExportError),
)
_MAKE_AGAIN = "Make it again with: sme2 bundle"


@dataclass(frozen=True)
class Bundle:
    """An opened bundle: everything in it was compared with its hash."""

    path: Path
    sha256: str
    """Of the manifest, and so of everything."""
    runner: Runner
    artifacts: Mapping[tuple[str, str], Artifact]
    """By model and variant."""


@dataclass(frozen=True)
class _RunnerFacts:
    kind: str
    platform: str
    executorch: str


@dataclass(frozen=True)
class _Manifest:
    schema: int
    runner: _RunnerFacts
    files: dict[str, FileFacts]


def check_name(out: Path) -> None:
    """Refuse a wrong name before anything is made for it."""
    if not out.name.endswith(SUFFIXES):
        raise UsageError(f"{out}: a bundle is an archive. Give a name that ends in {SUFFIXES[0]}.")


def write_bundle(out: Path, runner: Runner, artifacts: Sequence[Artifact]) -> Path:
    """Put the runner and the artifacts into one file; the same content gives the same bytes."""
    if not isinstance(runner, Sme2Runner):
        raise UsageError(
            "A given pair of runners cannot be bundled: what they need beside them is not known. "
            "Keep their folder, or bundle a runner built from the wheel."
        )
    files = _contents(runner, artifacts)
    made = _RunnerFacts(runner.kind, runner.platform, runner.executorch)
    facts = {name: file_facts(path) for name, path in files.items()}
    manifest = _Manifest(SCHEMA, made, facts)
    text = json.dumps(encode(manifest), indent=2, sort_keys=True).encode() + b"\n"
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        _write_archive(out, text, files)
    except OSError as error:
        raise unwritable(out, error) from error
    return out


def _contents(runner: Runner, artifacts: Sequence[Artifact]) -> dict[str, Path]:
    """Every file of the bundle by its name in there, sorted."""
    files = {f"{_RUNNER}/{path.name}": path for arm in PAIR for path in runner.files(arm)}
    for artifact in artifacts:
        stem = artifact_stem(artifact.model, parse_variant(artifact.variant))
        for path in artifact.folder.iterdir():
            if path.is_file():
                files[f"{_ARTIFACTS}/{stem}/{path.name}"] = path
    return dict(sorted(files.items()))


def _write_archive(out: Path, manifest: bytes, files: Mapping[str, Path]) -> None:
    # Neither names nor times of this machine go into it, so that equal content is equal bytes.
    with (
        replacing(out) as raw,
        gzip.GzipFile("", "wb", compresslevel=6, fileobj=raw, mtime=0) as compressed,
        tarfile.open(fileobj=compressed, mode="w", format=tarfile.PAX_FORMAT) as archive,
    ):
        member = tarfile.TarInfo(MANIFEST)
        member.size = len(manifest)
        archive.addfile(member, io.BytesIO(manifest))
        for name, path in files.items():
            member = tarfile.TarInfo(name)
            member.size = path.stat().st_size
            member.mode = 0o755 if os.access(path, os.X_OK) else 0o644
            with path.open("rb") as file:
                archive.addfile(member, file)


def open_bundle(path: Path, *, cache: Path | None = None) -> Bundle:
    """Unpack a bundle into the cache, compare every file with its hash, and say what is in it.

    A bundle that was unpacked before is compared again, so that nothing runs that was changed.
    """
    root = (cache or cache_folder()) / "bundles"
    if not path.is_file():
        raise UsageError(f"There is no bundle {str(path)!r}. Make one with: sme2 bundle OUT")
    try:
        folder = root / file_sha256(path)[:32]
        with locked(root / f"{folder.name}.lock", f"unpacking {path}"):
            if not is_believed(folder) or _difference(folder):
                _unpack(path, folder)
            mark_used(folder)
        text, facts = _manifest(folder)
        made = facts.runner
        runner = Sme2Runner(made.kind, made.platform, made.executorch, folder / _RUNNER)
        digest = hashlib.sha256(text).hexdigest()
        artifacts = map(load_artifact, sorted((folder / _ARTIFACTS).glob("*")))
        programs = {(each.model, each.variant): each for each in artifacts}
        return Bundle(path, digest, runner, programs)
    except _DAMAGE as error:
        raise _problem(path, root, error) from error


def _unpack(path: Path, folder: Path) -> None:
    if not hasattr(tarfile, "data_filter"):
        raise UsageError(
            f"{path} cannot be unpacked safely by Python {platform.python_version()}. Use Python "
            "3.10.12, 3.11.4 or newer."
        )
    with working_folder(folder) as staged, tarfile.open(path, "r:gz") as archive:
        members = archive.getmembers()
        # Programs and runners do not shrink much: what grows by far more was made to fill a disk.
        total = sum(member.size for member in members)
        most = MOST_GROWTH * path.stat().st_size + ALWAYS_ALLOWED
        if total > most:
            raise ValueError(f"it unpacks to {total >> 20} MiB, and {most >> 20} MiB is the most")
        archive.extractall(staged, members, filter="data")
        if wrong := _difference(staged):
            raise ValueError(wrong)
        put_in_place(staged, folder)


def _problem(path: Path, root: Path, error: Exception) -> Sme2Error:
    if isinstance(error, OSError) and error.errno in _UNWRITABLE:
        return StorageError(
            f"{path}: cannot be unpacked into {root}: {error.strerror}. Make room there, or "
            "name another folder in SME2_CACHE_DIR."
        )
    return BundleError(f"{path}: is not a bundle, or is damaged: {error}. {_MAKE_AGAIN}")


def _manifest(folder: Path) -> tuple[bytes, _Manifest]:
    """The manifest of an unpacked bundle, and what it says."""
    if not (folder / MANIFEST).is_file():
        raise ValueError(f"it has no {MANIFEST}")
    text = (folder / MANIFEST).read_bytes()
    document = json_value(text, f"its {MANIFEST}", remedy="", error=BundleError)
    schema = document.get("schema") if isinstance(document, dict) else None
    if schema != SCHEMA:
        raise ValueError(f"its schema is {schema!r}, this version reads {SCHEMA}")
    manifest: _Manifest = decode(
        document, _Manifest, f"its {MANIFEST}", remedy="", error=BundleError
    )
    return text, manifest


def _difference(folder: Path) -> str:
    """What is not as listed in the folder of an unpacked bundle; else nothing."""
    try:
        files = _manifest(folder)[1].files
    except _DAMAGE as error:
        return str(error)
    found = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if not path.is_dir()}
    for name in sorted(found ^ {MANIFEST, *files}):
        return f"{name!r} is {'missing' if name in files else 'not in its manifest'}"
    for name, facts in files.items():
        if (folder / name).is_symlink() or file_sha256(folder / name) != facts.sha256:
            return f"{name!r} is not what was put in (its hash differs)"
    return ""
