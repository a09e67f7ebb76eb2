"""What the user chose, checked. Pure: strings in; values, or errors that list the choices, out."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pytest_sme2.errors import UsageError
from pytest_sme2.export.variant import Variant
from pytest_sme2.results.run import PAIR, Arm
from pytest_sme2.system.wording import one_of, split_list
from pytest_sme2.targets.settings import (
    checked_adb_server,
    parse_cpus,
)


@dataclass(frozen=True)
class Reference:
    """What to measure against, as the user named it."""

    kind: str
    """``executorch``, ``bundle``, ``programs``, or ``baseline`` for what a baseline measured."""
    name: str
    """For reports: ``executorch 1.5.0``, or the file's or folder's name."""
    version: str | None = None
    path: Path | None = None


@dataclass(frozen=True)
class Settings:
    """One run's choices, from the command line over the ini file over the defaults."""

    device: str = "auto"
    models: tuple[str, ...] = ()
    """The models asked for; empty means all."""
    variants: tuple[Variant, ...] = ()
    """The variants asked for; empty means each model's own."""
    model_folders: tuple[Path, ...] = ()
    programs: tuple[str, ...] = ()
    """Patterns of ``.pte`` files that are cases as they are."""
    threads: tuple[int, ...] = (1,)
    out: Path | None = None
    report: Path | None = None
    """The HTML report to write at the end; None means none."""
    strict: bool = False
    update_baselines: bool = False
    dry_run: bool = False
    """Whether an update of baselines writes nothing, and only says what it would change."""
    force_update: bool = False
    """Whether to store also what was measured on a busy machine."""
    require_sme2: bool = False
    """Whether a device without SME2 is an error."""
    fresh: bool = False
    """Whether to run on the emulator what the same one ran before."""
    weights: Path | None = None
    baseline_dir: Path | None = None
    """Where baselines are kept; None means ``baselines``."""
    base: Path | None = None
    """The folder that it stands in, if it is not absolute; None means that pytest was not asked."""
    budget_seconds: float = 30.0
    """For timing one model and variant; the first look is completed even where it takes longer."""
    limit_seconds: float | None = None
    """When even the first look is given up; None means ten budgets."""
    sustain_seconds: float | None = None
    """How long to run each case back to back as well; None means not at all."""
    limits: Mapping[str, object] = field(default_factory=dict)
    """Those of the command line, as a limits.toml would have them."""
    comment: Path | None = None
    """The file of a pull request's comment to write at the end, as JSON; None means none."""
    history: Path | None = None
    """The folder of the history to add this run to; None means none."""
    runners: tuple[Path, Path] | None = None
    """Two built elsewhere, with SME2 on and off, in place of the one built from the wheel."""
    against: Reference | None = None
    """What to measure against in the same run."""
    emulated_cpu: str | None = None
    """As ``system.qemu.parse_cpu`` takes it; None means the default."""
    arms: tuple[Arm, ...] = PAIR
    """The arms to run where the device can switch."""
    no_cost: bool = False
    """Whether to do without counting executed instructions on the emulator, which is slow."""
    serials: tuple[str, ...] = ()
    """The phones to use; empty means ANDROID_SERIAL, else the only one attached."""
    adb_server: str | None = None
    """HOST:PORT of the adb server; None means this machine's usual one."""
    lab: str | None = None
    """HOST[:PORT] of the labgrid coordinator that hands out phones; None means there is none."""
    lab_filter: Mapping[str, str] = field(default_factory=dict)
    """Tags that a place of the lab must have."""
    patience_seconds: float = 60.0
    """How long a phone may take to be there again after its connection was lost."""
    cpus: str | tuple[int, ...] = ()
    """The phone's cores to run on: ``big``, ``little`` or their numbers; empty: the system's."""
    device_bundle: Path | None = None
    """The self-contained runner for phones; None means it is made on the fly."""
    fake_phone: bool = False
    """Whether ``android`` means a fake phone in a sandbox on this machine."""

    @property
    def run_directory(self) -> Path:
        return (self.out or Path("sme2-out")).resolve()

    @property
    def baseline_folder(self) -> Path:
        if self.base is None and self.baseline_dir is None:
            return _project_baselines().resolve()
        return ((self.base or Path()) / (self.baseline_dir or "baselines")).resolve()


def _project_baselines() -> Path:
    """Where a pytest that is started here would look: beside its ini file, or where that says. No
    plugin and no conftest.py is asked.
    """
    from _pytest.config.findpaths import locate_config

    folder, _, found, *_ = locate_config(Path.cwd(), [])
    said: Any = found.get("sme2_baseline_dir", "baselines")
    return Path(folder or "", getattr(said, "value", said))


def parse_threads(value: str) -> tuple[int, ...]:
    """``1`` or ``1,2,4``."""
    counts = []
    for word in map(str.strip, value.split(",")):
        if not word.isascii() or not word.isdigit() or not 1 <= int(word) <= 1024:
            raise UsageError(
                f"{word!r} is not a thread count. Give whole numbers from 1 to 1024, as in 1,2,4."
            )
        if int(word) in counts:
            raise UsageError(f"The thread count {word} is given twice in {value!r}.")
        counts.append(int(word))
    return tuple(counts)


def parse_arms(value: str) -> tuple[Arm, ...]:
    """``on,off``, or with the third: ``off,sme1,on``."""
    names = split_list(value)
    if not {"on", "off"} <= {*names} <= {*map(str, Arm)}:
        raise UsageError(
            f"{value!r} are not arms to compare. Give on,off (the default) or off,sme1,on: the "
            "arm sme1 hides SME2 and keeps SME."
        )
    return tuple(arm for arm in Arm if arm in names)


def parse_runners(value: str) -> tuple[Path, Path]:
    """The paths ``ON,OFF``."""
    names = split_list(value)
    if len(names) != 2:
        raise UsageError(
            f"{value!r} are not two runners. Give the one with SME2 on and the one with SME2 off: "
            "ON,OFF"
        )
    return Path(names[0]), Path(names[1])


def parse_budgets(texts: Iterable[str]) -> dict[str, float]:
    """``60s``, ``60s,10m`` with a time limit, ``,10m`` with that alone, or ``sustain=5m``."""
    found = {}
    for text in texts:
        if text.startswith("sustain="):
            under_load = text.partition("=")[2]
            found["sustain_seconds"] = parse_seconds(under_load, "a time under load")
            continue
        budget, _, limit = text.partition(",")
        if budget.strip() or not limit.strip():
            found["budget_seconds"] = parse_seconds(budget, "a time budget")
        if limit.strip():
            found["limit_seconds"] = parse_seconds(limit, "a time limit")
    return found


def parse_seconds(value: str, what: str) -> float:
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


_REPORTS = {".html": "report", ".htm": "report", ".json": "comment"}


def parse_reports(texts: Iterable[str]) -> dict[str, Path]:
    """By setting the file, whose name tells which it is."""
    found = {}
    for text in texts:
        kind = _REPORTS.get(Path(text).suffix.lower())
        if kind is None or text.startswith(("github=", "bencher=")):
            raise UsageError(
                f"{text!r} is not a report. Give FILE.html or FILE.json (a comment on a pull "
                "request; post_comment.py makes Markdown of it). For dashboards, `sme2 report "
                "RUN_DIR --format pytorch` prints every figure."
            )
        found[kind] = Path(text)
    return found


def parse_update(value: str) -> dict[str, bool]:
    """Nothing, ``dry`` or ``all``."""
    if value:
        one_of(value, ("dry", "all"), "a way to update")
    return {"update_baselines": True, "dry_run": value == "dry", "force_update": value == "all"}


def _switch(value: str) -> bool:
    return one_of(value.lower() or "true", ("true", "false"), "true or false") == "true"


PHONE: Mapping[str, tuple[str, Callable[[str], Any]]] = {
    "cpus": ("cpus", parse_cpus),
    "patience": ("patience_seconds", lambda value: parse_seconds(value, "a time to wait")),
    "adb-server": ("adb_server", checked_adb_server),
    "bundle": ("device_bundle", Path),
    "fake": ("fake_phone", _switch),
}


def parse_phone(texts: Iterable[str]) -> dict[str, Any]:
    """``cpus=big``, ``fake`` and so on, one in each text."""
    found = {}
    for text in texts:
        name, _, value = text.partition("=")
        field, parse = PHONE[one_of(name.strip(), PHONE, "a setting of a phone")]
        found[field] = parse(value.strip())
    return found
