"""Where ExecuTorch's C++ SDK comes from: the installed wheel, or one downloaded into the cache.

All that is known of how the wheel is laid out is here, and one error says that it changed.
"""

from __future__ import annotations

import errno
import functools
import importlib.metadata
import importlib.util
import os
import re
import shutil
import sys
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

from packaging.version import InvalidVersion, Version

from pytest_sme2.errors import BuildError
from pytest_sme2.system.cache import cache_folder, is_believed, made_once, mark_used
from pytest_sme2.system.files import file_sha256
from pytest_sme2.system.platforms import LINUX_AARCH64, LINUX_X86_64, MACOS_ARM64, host_platform
from pytest_sme2.system.processes import Finished, run_process, whitelisted_environment
from pytest_sme2.system.terminal import Say

# Used if ExecuTorch is not installed.
DEFAULT_VERSION = "1.5.1"
# The first version whose wheel has headers, libraries and a CMake package.
FIRST_VERSION = Version("1.5")

WHEEL_TAGS = {
    LINUX_AARCH64: "manylinux_2_28_aarch64",
    LINUX_X86_64: "manylinux_2_28_x86_64",
    MACOS_ARM64: "macosx_14_0_arm64",
}

# The SHA-256 of each wheel of DEFAULT_VERSION, as the lock of CI has them.
KNOWN_WHEELS = Path(__file__).with_name("wheels.txt")

# The parts of the wheel that a C++ program needs; the rest is Python.
SDK_FOLDERS = ("include", "lib", "share")
_PACKAGE_FOLDERS = ("include/executorch", "lib/cmake/executorch")
LIBRARIES = (
    "executorch",
    "executorch_backend_xnnpack",
    "executorch_etdump",
    "executorch_kernels_optimized",
    "executorch_kernels_quantized",
    "executorch_threadpool",
)
"""What the runner is linked with. Only these go to a device."""
_VERSION_FILE = "executorch/version.py"


def installed_version() -> str | None:
    """The version of the installed ExecuTorch without its local part, or None."""
    try:
        return Version(importlib.metadata.version("executorch")).public
    except importlib.metadata.PackageNotFoundError:
        return None


def sdk_version(version: str | None = None) -> str:
    """The given version, else the installed one, else the default."""
    chosen = version or installed_version() or DEFAULT_VERSION
    try:
        parsed = Version(chosen)
    except InvalidVersion:
        raise BuildError(
            f"{chosen!r} is not a version of ExecuTorch. Give one such as {DEFAULT_VERSION}."
        ) from None
    if parsed < FIRST_VERSION:
        raise BuildError(
            f"ExecuTorch {chosen} has no C++ SDK in its wheel. "
            f"Use {FIRST_VERSION} or newer: pip install 'executorch>={FIRST_VERSION}', "
            "or build a runner from an ExecuTorch source tree."
        )
    return parsed.public


def executorch_sdk(
    platform: str,
    version: str | None = None,
    *,
    cache: Path | None = None,
    progress: Say | None = None,
) -> Path:
    """The prefix for CMake: the installed wheel if it fits, else a download."""
    found = find_sdk(platform, version, cache=cache)
    if found is not None:
        if found.is_relative_to(cache or cache_folder()):
            mark_used(found)
        return found
    version = sdk_version(version)
    return made_once(
        _kept(platform, version, cache),
        f"downloading ExecuTorch {version} for {platform}",
        functools.partial(_download, platform, version, progress),
        say=progress,
    )


def sdk_libraries(sdk: Path, platform: str) -> list[Path]:
    """The libraries for the runner; an error if the SDK is not laid out as it was."""
    suffix = "dylib" if platform == MACOS_ARM64 else "so"
    libraries = [sdk / "lib" / f"lib{name}.{suffix}" for name in LIBRARIES]
    wanted = [*(sdk / name for name in _PACKAGE_FOLDERS), *libraries]
    missing = [str(path.relative_to(sdk)) for path in wanted if not path.exists()]
    if missing:
        raise BuildError(
            f"ExecuTorch's C++ SDK in {sdk} is not laid out as in {DEFAULT_VERSION}, which this "
            f"version was tested with. It has no {', '.join(missing)}. Use "
            f"executorch=={DEFAULT_VERSION}, or a newer pytest-sme2; for maintainers, "
            "CONTRIBUTING.md says what to do when ExecuTorch has a new release."
        )
    return libraries


@functools.cache
def executorch_commit(version: str) -> str | None:
    """The commit that the installed ExecuTorch was built from, if that is the ``version``."""
    if installed_version() != version.partition("+")[0]:
        return None
    files = importlib.metadata.files("executorch") or []
    place = next((file for file in files if str(file) == _VERSION_FILE), None)
    if place is None:
        return None
    # Importing it would import the whole package.
    text = Path(str(place.locate())).read_text("utf-8", "replace")
    commit = re.search(r"^git_version.*?['\"]([0-9a-f]{40})['\"]", text, re.MULTILINE)
    return None if commit is None else commit[1]


def find_sdk(platform: str, version: str | None, *, cache: Path | None = None) -> Path | None:
    """The prefix, where nothing has to be downloaded for it."""
    if platform not in WHEEL_TAGS:
        raise BuildError(
            f"ExecuTorch publishes no wheel with a C++ SDK for {platform}. "
            f"It does for: {', '.join(WHEEL_TAGS)}."
        )
    version = sdk_version(version)
    here = platform == host_platform() and installed_version() == version
    folder = _installed_folder() if here else None
    if folder is None:
        folder = _kept(platform, version, cache)
        if not is_believed(folder):
            return None
    sdk_libraries(folder, platform)
    return folder


def _kept(platform: str, version: str, cache: Path | None) -> Path:
    return (cache or cache_folder()) / "sdk" / f"executorch-{version}-{platform}"


def _installed_folder() -> Path | None:
    spec = importlib.util.find_spec("executorch")
    places = map(Path, (spec.submodule_search_locations or ()) if spec else ())
    return next((place for place in places if (place / _PACKAGE_FOLDERS[-1]).is_dir()), None)


def check_wheel(wheel: Path, version: str, progress: Say | None = None) -> None:
    """Hold a downloaded wheel to its hash; one whose hash nobody knows is at least told."""
    digest = file_sha256(wheel)
    if version != DEFAULT_VERSION:
        if progress is not None:
            progress(f"{wheel.name} is not of {DEFAULT_VERSION}, so that pip's index alone vouches")
            progress(f"for it. Its SHA-256: {digest}")
    elif digest not in KNOWN_WHEELS.read_text("ascii").split():
        raise BuildError(
            f"{wheel.name}, as pip downloaded it, is none of the wheels of ExecuTorch {version}: "
            f"its SHA-256 is {digest}. Check pip's index settings; to use a wheel of your own, "
            "install it."
        )


def _download(platform: str, version: str, progress: Say | None, work: Path) -> Path:
    wheel = download_wheel(Pin("executorch", version), work, tag=WHEEL_TAGS[platform])
    check_wheel(wheel, version, progress)
    try:
        return unpack_sdk(wheel, work / "unpacked", platform)
    except zipfile.BadZipFile as error:
        raise BuildError(
            f"The ExecuTorch wheel that pip downloaded is damaged ({error}). Try again."
        ) from error


def unpack_sdk(wheel: Path, folder: Path, platform: str) -> Path:
    """Unpack the SDK's part of a wheel into ``folder``: where it is now.

    Whatever names are in there, zipfile makes plain files of them, inside of the folder.
    """
    wanted = tuple(f"executorch/{name}/" for name in SDK_FOLDERS)
    with zipfile.ZipFile(wheel) as archive:
        names = [name for name in archive.namelist() if name.startswith(wanted)]
        archive.extractall(folder, names)
    sdk_libraries(folder / "executorch", platform)
    return folder / "executorch"


_SECONDS = 900.0
_PROXIES = ("http_proxy", "https_proxy", "all_proxy", "no_proxy")
_ENVIRONMENT = (
    *("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "XDG_CONFIG_HOME", "XDG_CACHE_HOME"),
    *_PROXIES,
    *(name.upper() for name in _PROXIES),
)
_PIN = re.compile(
    r"(?P<package>[A-Za-z0-9][A-Za-z0-9._-]*)\s*==\s*(?P<version>[0-9][0-9A-Za-z.+-]*)"
)
_CHECK = "Check the network and pip's index settings."
_FULL = os.strerror(errno.ENOSPC)


@dataclass(frozen=True)
class Pin:
    package: str
    version: str

    def __str__(self) -> str:
        return f"{self.package}=={self.version}"


def parse_pin(text: str) -> Pin | None:
    """``executorch==1.5.0``; None where it is not written like that."""
    match = _PIN.fullmatch(text.strip())
    return None if match is None else Pin(match["package"].lower(), match["version"])


def download_wheel(pin: Pin, folder: Path, *, tag: str) -> Path:
    """The wheel for a platform, which need not be this one, without what it depends on."""
    finished = _run(
        *("download", "--quiet", "--dest", str(folder), "--platform", tag),
        *("--python-version", f"{sys.version_info.major}.{sys.version_info.minor}"),
        *("--no-deps", "--only-binary=:all:", str(pin)),
    )
    wheels = sorted(folder.glob(f"{pin.package}-*.whl"))
    if finished.returncode != 0 or len(wheels) != 1:
        raise BuildError(
            f"The wheel {pin} for {tag} could not be downloaded to {folder}, by way of "
            f"{tempfile.gettempdir()}: {_reason(finished)}"
        )
    return wheels[0]


def _run(*words: str) -> Finished:
    arguments = [*find_pip(words[-1]), *words, "--disable-pip-version-check"]
    environment = whitelisted_environment(_ENVIRONMENT, prefixes=("PIP_", "UV_"))
    return run_process(arguments, timeout_seconds=_SECONDS, environment=environment)


def find_pip(wanted: str) -> list[str]:
    """How to run pip: as a module of this Python, else by uv, whose environments have none."""
    if importlib.util.find_spec("pip") is not None:
        return [sys.executable, "-m", "pip"]
    uv = shutil.which("uv")
    if uv is None:
        raise BuildError(
            f"{wanted} must be downloaded, but this Python has no pip, and there is no uv. "
            f"Add pip with: {sys.executable} -m ensurepip"
        )
    return [uv, "tool", "run", "--quiet", "--python", sys.executable, "pip"]


def _reason(finished: Finished) -> str:
    """And what to do about it."""
    if finished.timed_out:
        return f"pip did not finish within {_SECONDS:.0f} s. {_CHECK}"
    lines = finished.stderr.strip().splitlines() or ["pip said nothing"]
    # Of a full disk pip tells in the last line of a traceback.
    if full := [line for line in lines if _FULL in line]:
        return f"{full[-1].rstrip('.')}. Make room there."
    errors = [line for line in lines if line.startswith("ERROR")]
    return f"{(errors or lines)[-1].rstrip('.')}. {_CHECK}"
