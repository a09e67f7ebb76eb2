"""The self-contained runner for phones as a folder or a tar file: written, checked, read.

It holds the runner, ExecuTorch's Linux libraries, the C and C++ runtime and their loader, so it
runs on any 64-bit Arm Linux kernel, a phone's included, without an NDK.
"""

from __future__ import annotations

import io
import json
import shutil
import tarfile
import tempfile
import zlib
from pathlib import Path
from typing import Literal

from pytest_sme2.errors import BuildError, UsageError
from pytest_sme2.results import Arm
from pytest_sme2.runners.abi import unmet_needs
from pytest_sme2.runners.sme2 import LOADER, PROGRAM, Sme2Runner
from pytest_sme2.system.cache import cache_folder
from pytest_sme2.system.files import file_sha256
from pytest_sme2.system.locks import locked
from pytest_sme2.system.platforms import LINUX_AARCH64

# The record that a runner's folder has anyway; a bundle's also lists its files.
RECORD = "runner.json"
_SUFFIXES = (".tar", ".tar.gz", ".tgz")
# A bundle is some 20 MB; what claims to be far more is not one.
_MOST_BYTES = 1 << 30


def write_bundle(runner: Sme2Runner, out: Path) -> Path:
    """Write ``out``: a folder, or a tar file if it is named like one. It must not exist yet."""
    files = {path.name: path for path in runner.files(Arm.ON)}
    if runner.platform != LINUX_AARCH64 or not {LOADER, PROGRAM} <= set(files):
        raise BuildError(
            f"The runner in {runner.folder} is not self-contained, so no bundle can be made of it."
        )
    for name, absent in unmet_needs(files).items():
        raise BuildError(
            f"{name} needs {', '.join(absent)}, which is not in {runner.folder}. Delete that "
            "folder and build the runner again."
        )
    if out.exists():
        raise UsageError(f"{out} exists already. Remove it or choose another name.")
    record = {
        "schema": 1,
        "platform": runner.platform,
        "executorch": runner.executorch,
        "files": {name: file_sha256(path) for name, path in sorted(files.items())},
    }
    text = json.dumps(record, indent=2).encode() + b"\n"
    out.parent.mkdir(parents=True, exist_ok=True)
    # Beside its place, so that the last step is one rename.
    with tempfile.TemporaryDirectory(dir=out.parent, prefix=".bundle-") as name:
        staged = Path(name) / "staged"
        if out.name.endswith(_SUFFIXES):
            _write_tar(staged, files, text, compressed=not out.name.endswith(".tar"))
        else:
            staged.mkdir()
            for path in files.values():
                shutil.copy2(path, staged)
            (staged / RECORD).write_bytes(text)
        staged.rename(out)
    return out


def _write_tar(target: Path, files: dict[str, Path], record: bytes, *, compressed: bool) -> None:
    with tarfile.open(target, "w:gz" if compressed else "w") as archive:
        entry = tarfile.TarInfo(RECORD)
        entry.size = len(record)
        archive.addfile(entry, io.BytesIO(record))
        for name, path in sorted(files.items()):
            entry = tarfile.TarInfo(name)
            entry.size = path.stat().st_size
            entry.mode = 0o755
            with path.open("rb") as file:
                archive.addfile(entry, file)


def read_bundle(path: Path, *, cache: Path | None = None) -> Sme2Runner:
    """The runner of a bundle; a tar file is unpacked into the cache once."""
    if path.is_dir():
        return _open(path, path)
    if not path.is_file():
        raise UsageError(
            f"There is no device bundle at {path}. Make one with: sme2 device-bundle OUT"
        )
    folder = (cache or cache_folder()) / "device-bundles" / file_sha256(path)[:16]
    with locked(Path(f"{folder}.lock"), f"unpacking {path}"):
        if not folder.is_dir():
            with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".unpack-") as name:
                staged = Path(name) / "staged"
                staged.mkdir()
                _unpack(path, staged)
                _open(staged, path)
                staged.rename(folder)
    return _open(folder, path)


def _mode(path: Path) -> Literal["r:", "r:gz"]:
    with path.open("rb") as file:
        return "r:gz" if file.read(2) == b"\x1f\x8b" else "r:"


def _unpack(path: Path, folder: Path) -> None:
    """Plain files with plain names only: nothing in a tar file decides where it lands."""
    total = 0
    try:
        with tarfile.open(path, _mode(path)) as archive:
            for entry in archive:
                name = entry.name.removeprefix("./")
                total += entry.size
                plain = entry.isreg() and name == Path(name).name and name not in ("", ".", "..")
                source = archive.extractfile(entry) if plain and total < _MOST_BYTES else None
                if source is None:
                    raise BuildError(
                        f"{path} holds {entry.name!r}, which no device bundle does. Make a new "
                        "one with: sme2 device-bundle OUT"
                    )
                with source, (folder / name).open("wb") as target:
                    shutil.copyfileobj(source, target)
                (folder / name).chmod(0o755)
    except (tarfile.TarError, EOFError, OSError, zlib.error, ValueError) as error:
        raise BuildError(
            f"{path} cannot be read as a device bundle ({error}). Make a new one with: "
            "sme2 device-bundle OUT"
        ) from error


def _open(folder: Path, origin: Path) -> Sme2Runner:
    """The runner, once every file of it was compared with its hash: what has none is refused."""
    try:
        record = json.loads((folder / RECORD).read_text(encoding="utf-8"))
        platform, executorch = str(record["platform"]), str(record["executorch"])
        files = {str(name): str(value) for name, value in record["files"].items()}
        found = {path.name for path in folder.iterdir() if not path.is_dir()} - {RECORD}
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise BuildError(
            f"{origin} is not a device bundle ({type(error).__name__}: {error}). Make one with: "
            "sme2 device-bundle OUT"
        ) from error
    for name in sorted({*files, *found}):
        problem = None
        if name not in files:
            problem = "not in its list of hashes"
        elif name not in found:
            problem = "missing"
        elif (folder / name).is_symlink():
            problem = "a link"
        elif not (folder / name).is_file() or file_sha256(folder / name) != files[name]:
            problem = "damaged"
        if problem is not None:
            raise BuildError(
                f"{name!r} of the device bundle {origin} is {problem}. Make a new one with: "
                "sme2 device-bundle OUT"
            )
    return Sme2Runner(kind="wheel", platform=platform, executorch=executorch, folder=folder)
