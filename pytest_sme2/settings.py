"""What the user chose, checked. Pure: strings in; values, or errors that list the choices, out."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_sme2.errors import StorageError, UsageError

if TYPE_CHECKING:
    from pytest_sme2.against import Reference
    from pytest_sme2.categories import Rule

DEVICES = ("auto", "mac", "linux", "emulated", "android")
POWER_MODES = ("boost", "app", "keep")
PRECISIONS = ("fp32", "fp16", "int8", "int8_dynamic", "int4")

# The largest difference from the eager model's output that a precision may cause, as a share of
# that output's largest magnitude. fp16 is compared with the eager model in fp16, the others with
# the one in fp32.
TOLERANCES = {"fp32": 1e-4, "fp16": 5e-2, "int8": 2e-1, "int8_dynamic": 5e-2, "int4": 2e-1}

_ADDRESS = re.compile(r"(?P<host>\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+):(?P<port>[0-9]{1,5})")
_VARIANT = re.compile(r"(?P<precision>[a-z0-9_]+)(?:@(?P<size>[1-9][0-9]{0,4}))?")


@dataclass(frozen=True)
class Variant:
    """How a model is exported: its precision and, where it matters, its input size."""

    precision: str
    size: int | None = None

    def __str__(self) -> str:
        return self.precision if self.size is None else f"{self.precision}@{self.size}"


@dataclass(frozen=True)
class Settings:
    """One run's choices, from the command line over the ini file over the defaults."""

    device: str = "auto"
    models: tuple[str, ...] = ()
    """The models asked for; empty means all."""
    variants: tuple[Variant, ...] = ()
    """The variants asked for; empty means each model's own."""
    model_folders: tuple[Path, ...] = ()
    threads: tuple[int, ...] = (1,)
    out: Path | None = None
    report: Path | None = None
    """The HTML report to write at the end; None means none."""
    strict: bool = False
    update_baselines: bool = False
    fresh: bool = False
    """Whether to run on the emulator what the same one ran before."""
    weights: Path | None = None
    baseline_dir: Path | None = None
    """Where baselines are kept; None means ``baselines``."""
    budget_seconds: float = 30.0
    """For timing one model and variant."""
    limits: Mapping[str, object] = field(default_factory=dict)
    """Limits given on the command line, by the names of limits.SCALARS."""
    github_benchmark_json: Path | None = None
    bencher_json: Path | None = None
    runner_on: Path | None = None
    runner_off: Path | None = None
    """A pair of runners built elsewhere, in place of the one built from the wheel."""
    against: Reference | None = None
    """What to measure against in the same run."""
    rules: tuple[Rule, ...] = ()
    """The user's own operator categories."""
    qemu: Path | None = None
    """The emulator to use; None means the one on PATH or in the cache."""
    serials: tuple[str, ...] = ()
    """The phones to use; empty means ANDROID_SERIAL, else the only one attached."""
    adb_server: str | None = None
    """HOST:PORT of the adb server; None means this machine's usual one."""
    power_mode: str = "keep"
    fixed_performance: bool = False
    patience_seconds: float = 60.0
    """How long a phone may take to be there again after its connection was lost."""
    cpus: str | tuple[int, ...] = ()
    """The phone's cores to run on: ``big``, ``little`` or their numbers; empty: the system's."""
    device_bundle: Path | None = None
    """The self-contained runner for phones; None means it is made on the fly."""
    fake_phone: bool = False
    """Whether ``android`` means a fake phone in a sandbox on this machine."""

    def as_options(self) -> list[str]:
        """The choices that change a verdict, as they were typed."""
        options = [] if self.threads == (1,) else [f"--threads={','.join(map(str, self.threads))}"]
        for name, value in self.limits.items():
            options.append(f"--{name.replace('_', '-')}={value}")
        if self.baseline_dir is not None:
            options.append(f"--baseline-dir={self.baseline_dir}")
        if self.strict:
            options.append("--sme2-strict")
        return options


def one_of(value: str, choices: Iterable[str], what: str) -> str:
    """``value`` if it is one of ``choices``, else an error that lists them."""
    choices = tuple(choices)
    if value not in choices:
        raise UsageError(f"{value!r} is not {what}. Choose one of: {', '.join(choices)}.")
    return value


def parse_device(value: str) -> str:
    return one_of(value, DEVICES, "a device")


def parse_variant(value: str) -> Variant:
    """``fp16`` or ``fp16@256``."""
    match = _VARIANT.fullmatch(value)
    precision = match["precision"] if match else value
    if match is None or precision not in PRECISIONS:
        raise UsageError(
            f"{value!r} is not a variant. Choose one of: {', '.join(PRECISIONS)}; "
            "an input size may follow, as in fp16@256."
        )
    return Variant(precision, int(match["size"]) if match["size"] else None)


def split_list(value: str) -> tuple[str, ...]:
    """The words of a comma-separated list; empty ones are dropped, order and first use kept."""
    words = (word.strip() for word in value.split(","))
    return tuple(dict.fromkeys(word for word in words if word))


def parse_variants(value: str) -> tuple[Variant, ...]:
    return tuple(parse_variant(word) for word in split_list(value))


def parse_threads(value: str) -> tuple[int, ...]:
    """``1`` or ``1,2,4``."""
    counts = []
    for word in split_list(value):
        if not word.isascii() or not word.isdigit() or not 1 <= int(word) <= 1024:
            raise UsageError(
                f"{word!r} is not a thread count. Give whole numbers from 1 to 1024, as in 1,2,4."
            )
        counts.append(int(word))
    if not counts:
        raise UsageError("No thread count was given. Give whole numbers, as in 1,2,4.")
    return tuple(dict.fromkeys(counts))


def parse_budget(value: str) -> float:
    return _parse_seconds(value, "a time budget")


def parse_patience(value: str) -> float:
    """As a budget is written."""
    return _parse_seconds(value, "a time to wait")


def _parse_seconds(value: str, what: str) -> float:
    """``60``, ``60s`` or ``2m``, in seconds."""
    match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)\s*(s|m|min)?", value.strip())
    seconds = float(match[1]) * (60 if match[2] in ("m", "min") else 1) if match else 0.0
    if not 1 <= seconds <= 86400:
        raise UsageError(f"{value!r} is not {what}. Give seconds or minutes, as in 60s or 2m.")
    return seconds


def parse_report(value: str) -> Path:
    """A file that ends in .html, so that a browser opens it."""
    path = Path(value)
    if path.suffix.lower() not in (".html", ".htm"):
        raise UsageError(f"{value!r} is not an HTML file. Give a name that ends in .html.")
    return path


def parse_power_mode(value: str) -> str:
    return one_of(value, POWER_MODES, "a power mode")


def parse_serials(values: Iterable[str]) -> tuple[str, ...]:
    """Serials as given, one or several times, each maybe a comma-separated list."""
    return tuple(dict.fromkeys(word for value in values for word in split_list(value)))


def parse_adb_server(value: str) -> tuple[str, int]:
    """``HOST:PORT``; an IPv6 host stands in brackets, and ``tcp:`` may come first."""
    match = _ADDRESS.fullmatch(value.strip().removeprefix("tcp:"))
    if match is None or not 1 <= int(match["port"]) <= 65535:
        raise UsageError(
            f"{value!r} is not the address of an adb server. Give HOST:PORT, as in lab-host:5037."
        )
    return match["host"].strip("[]"), int(match["port"])


def adb_server_from(environment: Mapping[str, str]) -> tuple[str, int]:
    """The adb server that adb's own environment variables name, else this machine's usual one."""
    whole = environment.get("ADB_SERVER_SOCKET")
    if whole:
        return parse_adb_server(whole)
    host = environment.get("ANDROID_ADB_SERVER_ADDRESS", "127.0.0.1")
    return parse_adb_server(f"{host}:{environment.get('ANDROID_ADB_SERVER_PORT', '5037')}")


def is_network_serial(serial: str) -> bool:
    """Whether a serial is ``host:port``, so that the adb server can be told to connect to it."""
    match = _ADDRESS.fullmatch(serial)
    return match is not None and 1 <= int(match["port"]) <= 65535


def parse_cpus(value: str) -> str | tuple[int, ...]:
    """``big``, ``little``, a list as in ``4-7`` or ``0,2``, or a mask as in ``0xf0``."""
    word = value.strip().lower()
    if word in ("big", "little"):
        return word
    if re.fullmatch(r"0x[0-9a-f]{1,64}", word) and int(word, 16):
        mask = int(word, 16)
        return tuple(core for core in range(mask.bit_length()) if mask >> core & 1)
    cores: set[int] = set()
    for part in split_list(word):
        match = re.fullmatch(r"(\d{1,4})(?:-(\d{1,4}))?", part)
        if match is None or int(match[2] or match[1]) < int(match[1]):
            raise _bad_cpus(value)
        cores.update(range(int(match[1]), int(match[2] or match[1]) + 1))
    if not cores:
        raise _bad_cpus(value)
    return tuple(sorted(cores))


def _bad_cpus(value: str) -> UsageError:
    return UsageError(
        f"{value!r} does not name cores. Choose one of: big, little, a list as in 4-7 or 0,2, "
        "a mask as in 0xf0."
    )


def cache_folder() -> Path:
    """Where exports, runners and tools are kept: ``SME2_CACHE_DIR``, else the platform's own."""
    chosen = os.environ.get("SME2_CACHE_DIR")
    try:
        folder = Path(chosen).expanduser().resolve() if chosen else _usual_cache_folder()
        # Nobody else's home: every later question about a file in there would fail.
        folder.exists()
    except (RuntimeError, OSError) as error:
        raise StorageError(
            f"{chosen or 'The usual cache folder'!r} cannot be used to keep exports and runners: "
            f"{error}. Name another folder for them in SME2_CACHE_DIR."
        ) from error
    return folder


def _usual_cache_folder() -> Path:
    import platformdirs

    try:
        folder = platformdirs.user_cache_path("pytest-sme2", appauthor=False)
    except RuntimeError:
        folder = Path("~")
    # Without a home it is a name with a tilde, and would be made wherever we are.
    if not folder.is_absolute():
        raise StorageError(
            "There is no home folder to keep exports and runners in. "
            "Name a folder for them in SME2_CACHE_DIR."
        )
    return folder
