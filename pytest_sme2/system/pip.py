"""Asks pip, by its own settings, for a wheel."""

from __future__ import annotations

import importlib.util
import re
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

from pytest_sme2.errors import BuildError
from pytest_sme2.system.processes import Finished, run_process, whitelisted_environment

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
            f"The wheel {pin} for {tag} could not be downloaded: {_reason(finished)} {_CHECK}"
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
    if finished.timed_out:
        return f"pip did not finish within {_SECONDS:.0f} s."
    lines = [line for line in finished.stderr.splitlines() if line.startswith("ERROR")]
    reason = lines[-1] if lines else finished.stderr.strip()[-300:]
    return f"{reason.rstrip('.')}." if reason else "pip said nothing."
