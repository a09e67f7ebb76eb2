"""The runner for phones as a package for pip, for machines that cannot build it.

The package, ``pytest-sme2-phone``, holds one bundle (``bundle.py``) and nothing that runs here. Its
version is that of the ExecuTorch in it.
"""

from __future__ import annotations

import base64
import hashlib
import importlib.metadata
import importlib.util
import zipfile
from pathlib import Path

from pytest_sme2.errors import BuildError
from pytest_sme2.runners.base import Runner
from pytest_sme2.runners.sdk import sdk_version
from pytest_sme2.runners.sme2 import wheel_runner
from pytest_sme2.session.bundle import open_bundle, writing
from pytest_sme2.system.files import replacing
from pytest_sme2.system.platforms import LINUX_AARCH64
from pytest_sme2.system.terminal import Say

PACKAGE = "pytest-sme2-phone"
_MODULE = "pytest_sme2_phone"
_BUNDLE = "bundle.tar.gz"
_TAG = "py3-none-any"
# No time of this machine goes into it, so that equal content is equal bytes.
_DATE = (1980, 1, 1, 0, 0, 0)


def write_package(folder: Path, bundle: Path, executorch: str) -> Path:
    """Put a bundle into a wheel in ``folder``."""
    about = f"{_MODULE}-{executorch}.dist-info"
    files = {
        f"{_MODULE}/__init__.py": b'"""The runner of pytest-sme2 for phones: data, no code."""\n',
        f"{_MODULE}/{_BUNDLE}": bundle.read_bytes(),
        f"{about}/METADATA": (
            f"Metadata-Version: 2.1\nName: {PACKAGE}\nVersion: {executorch}\n"
            f"Summary: The runner of pytest-sme2 for phones, with ExecuTorch {executorch}\n"
            "Requires-Python: >=3.10\n"
        ).encode(),
        f"{about}/WHEEL": (
            f"Wheel-Version: 1.0\nGenerator: pytest-sme2\nRoot-Is-Purelib: true\nTag: {_TAG}\n"
        ).encode(),
    }
    lines = [f"{name},{_digest(content)},{len(content)}\n" for name, content in files.items()]
    files[f"{about}/RECORD"] = "".join([*lines, f"{about}/RECORD,,\n"]).encode()
    out = folder / f"{_MODULE}-{executorch}-{_TAG}.whl"
    with writing(out), replacing(out) as raw, zipfile.ZipFile(raw, "w") as archive:
        for name, content in files.items():
            member = zipfile.ZipInfo(name, _DATE)
            member.external_attr = 0o644 << 16
            archive.writestr(member, content)
    return out


def _digest(content: bytes) -> str:
    """As a wheel's record has it."""
    digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest())
    return f"sha256={digest.decode('ascii').rstrip('=')}"


def phone_runner(
    platform: str, *, executorch: str | None = None, progress: Say | None = None
) -> Runner:
    """The installed package's runner if it fits the ExecuTorch here, else one that is built."""
    if platform != LINUX_AARCH64:
        return wheel_runner(platform, executorch=executorch, progress=progress)
    wanted = sdk_version(executorch)
    there = _installed()
    if there is not None and there[0] == wanted:
        runner = open_bundle(there[1]).runner
        if runner.executorch == wanted:
            return runner
    try:
        return wheel_runner(platform, executorch=executorch, progress=progress)
    except BuildError as error:
        other = f" ({there[0]} is installed)" if there is not None else ""
        raise BuildError(
            f"{str(error).rstrip('.')}. Or install the runner for phones, which needs no "
            f"compiler: pip install {PACKAGE}=={wanted}{other}"
        ) from error


def _installed() -> tuple[str, Path] | None:
    """The package's version and its bundle; None if it is not installed."""
    try:
        version = importlib.metadata.version(PACKAGE)
    except importlib.metadata.PackageNotFoundError:
        return None
    found = importlib.util.find_spec(_MODULE)
    if found is None or found.origin is None:
        return None
    return version, Path(found.origin).parent / _BUNDLE
