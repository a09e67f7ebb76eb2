"""Experiment files: JSON in, checked values out; every message names the field. Runs nothing.

A file names one program, where results go, the experiments (a runner, SME2 on or off, threads,
runs) and which of them to compare.
"""

from __future__ import annotations

import difflib
import importlib.resources
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pytest_sme2.errors import UsageError
from pytest_sme2.results import Arm
from pytest_sme2.system.reading import read_json
from pytest_sme2.targets.settings import DEVICES

TEMPLATES = ("mac", "android", "linux", "emulated")
MODES = ("timing", "xnntrace")

_TOP_FIELDS = ("model", "output_root", "device", "experiments", "compare", "description")
_EXPERIMENT_FIELDS = (
    "name", "runner_path", "mode", "sme2", "runs", "num_runs", "warmup", "threads", "num_threads",
    "cpu_affinity", "extra_args", "timeout_seconds", "description",
)  # fmt: skip
# More would take longer than anybody waits, or is more than the system's own clocks take.
_MOST_RUNS = 1_000_000
_MOST_SECONDS = 1_000_000
_LONGEST_PATH = 4000
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")


@dataclass(frozen=True)
class Experiment:
    """One process to run."""

    name: str
    arm: Arm
    mode: str = "timing"
    runner_path: Path | None = None
    """None means the runner that is built from ExecuTorch's wheel."""
    runs: int = 10
    warmup: int = 3
    threads: int = 1
    cpus: tuple[int, ...] = ()
    extra_arguments: tuple[str, ...] = ()
    timeout_seconds: float = 1800.0


@dataclass(frozen=True)
class ExperimentPlan:
    """A whole experiment file."""

    model: Path
    output_root: Path
    experiments: tuple[Experiment, ...]
    compare: tuple[tuple[str, str], ...] = field(default=())
    """Names of experiments, before and after."""
    device: str = "auto"

    def named(self, name: str) -> Experiment:
        return next(found for found in self.experiments if found.name == name)


def template(name: str) -> str:
    """The text of an experiment file to start from."""
    if name not in TEMPLATES:
        raise UsageError(f"{name!r} is not a template. Choose one of: {', '.join(TEMPLATES)}.")
    folder = importlib.resources.files("pytest_sme2.cli") / "templates"
    return (folder / f"{name}.json").read_text(encoding="utf-8")


def read_plan(path: Path) -> ExperimentPlan:
    """The experiment file, or an error that names the file, the field and what it may be."""
    document = read_json(path, remedy="Correct it, or start from a template.", error=UsageError)
    try:
        _refuse_odd_text(document)
        return parse_plan(document)
    except UsageError as error:
        raise UsageError(f"{path}: {error}") from None


def _refuse_odd_text(value: object) -> None:
    """No word of a command, and no path, can hold a NUL or half of a character."""
    if isinstance(value, str):
        if "\0" in value or any("\ud800" <= letter <= "\udfff" for letter in value):
            raise UsageError(f"{value[:60]!r} holds a character that no path or argument can hold.")
    elif isinstance(value, (list, dict)):
        for inner in [*value, *value.values()] if isinstance(value, dict) else value:
            _refuse_odd_text(inner)


def parse_plan(document: object) -> ExperimentPlan:
    """A plan from JSON's own types."""
    top = _object(document, "the file")
    _only(top, _TOP_FIELDS, "")
    model = _path(top, "model", "", required=True)
    if model.suffix != ".pte":
        raise UsageError(f"model: {str(model)!r} is not a program. Give the path of a .pte file.")
    entries = top.get("experiments")
    if not isinstance(entries, list) or not entries:
        raise UsageError("experiments: must be a list with at least one experiment.")
    experiments = tuple(
        _experiment(entry, f"experiments[{number}]") for number, entry in enumerate(entries)
    )
    names = [experiment.name for experiment in experiments]
    for number, name in enumerate(names):
        if name in names[:number]:
            raise UsageError(f"experiments[{number}].name: {name!r} is taken. Names must differ.")
    device = _text(top, "device", "") or "auto"
    if device not in DEVICES:
        raise UsageError(
            f"device: {device!r} is not a device. Choose one of: {', '.join(DEVICES)}."
        )
    return ExperimentPlan(
        model=model,
        output_root=_path(top, "output_root", "", required=True),
        experiments=experiments,
        compare=_compare(top.get("compare"), names),
        device=device,
    )


def _experiment(entry: object, where: str) -> Experiment:
    found = _object(entry, where)
    _only(found, _EXPERIMENT_FIELDS, f"{where}.")
    name = _text(found, "name", f"{where}.", required=True)
    if not _NAME.fullmatch(name):
        raise UsageError(
            f"{where}.name: {name!r} cannot be a folder's name. Use letters, digits, '_', '-', '.'."
        )
    mode = _text(found, "mode", f"{where}.") or "timing"
    if mode not in MODES:
        raise UsageError(f"{where}.mode: {mode!r} is not a mode. Choose: {' or '.join(MODES)}.")
    return Experiment(
        name=name,
        arm=_arm(found, name, where),
        mode=mode,
        runner_path=_path(found, "runner_path", f"{where}.") if found.get("runner_path") else None,
        runs=_number(found, ("runs", "num_runs"), where, default=10, least=1),
        warmup=_number(found, ("warmup",), where, default=3, least=0),
        threads=_number(found, ("threads", "num_threads"), where, default=1, least=1, most=1024),
        cpus=_cpus(found.get("cpu_affinity"), f"{where}.cpu_affinity"),
        extra_arguments=_words(found.get("extra_args"), f"{where}.extra_args"),
        timeout_seconds=_number(
            found, ("timeout_seconds",), where, default=1800, least=1, most=_MOST_SECONDS
        ),
    )


def _arm(found: Mapping[str, Any], name: str, where: str) -> Arm:
    """As the field ``sme2`` says, else as the name does."""
    value = found.get("sme2")
    if isinstance(value, bool):
        return Arm.ON if value else Arm.OFF
    if value is not None:
        if value not in ("on", "off"):
            raise UsageError(f"{where}.sme2: {value!r} is neither 'on' nor 'off'.")
        return Arm(value)
    match = re.search(r"sme2[_-]?(on|off)", name)
    if match is None:
        raise UsageError(
            f"{where}.sme2: is missing, and the name {name!r} says neither sme2_on nor sme2_off. "
            'Say "sme2": "on" or "off".'
        )
    return Arm(match[1])


def _compare(value: object, names: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """The pairs that were named; else those whose names differ in sme2_off and sme2_on alone."""
    if value is None:
        partners = ((name.replace("sme2_on", "sme2_off"), name) for name in names)
        return tuple(pair for pair in partners if pair[0] in names and pair[0] != pair[1])
    if not isinstance(value, list):
        raise UsageError('compare: must be a list of pairs, as in [["x_sme2_off", "x_sme2_on"]].')
    pairs = []
    for number, entry in enumerate(value):
        where = f"compare[{number}]"
        if isinstance(entry, dict):
            entry = [entry.get("before", entry.get("off")), entry.get("after", entry.get("on"))]
        if not isinstance(entry, list) or len(entry) != 2:
            raise UsageError(f"{where}: must be two names of experiments, before and after.")
        for name in entry:
            if name not in names:
                raise UsageError(
                    f"{where}: {name!r} is not an experiment. Choose from: {', '.join(names)}."
                )
        pairs.append((str(entry[0]), str(entry[1])))
    return tuple(pairs)


# --- fields ---------------------------------------------------------------------------------------


def _object(value: object, where: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise UsageError(f"{where}: must be an object in braces.")
    return value


def _only(found: Mapping[str, Any], allowed: Sequence[str], prefix: str) -> None:
    for name in found:
        if name not in allowed:
            near = difflib.get_close_matches(name, allowed, n=1)
            hint = f" Did you mean {near[0]!r}?" if near else f" Known: {', '.join(allowed)}."
            raise UsageError(f"{prefix}{name}: is not a field.{hint}")


def _text(found: Mapping[str, Any], name: str, prefix: str, *, required: bool = False) -> str:
    value = found.get(name)
    if value is None and not required:
        return ""
    if not isinstance(value, str) or (required and not value):
        raise UsageError(
            f"{prefix}{name}: must be text" + (", and is missing." if required else ".")
        )
    return value


def _path(found: Mapping[str, Any], name: str, prefix: str, *, required: bool = False) -> Path:
    """A text that a file can be called."""
    value = _text(found, name, prefix, required=required)
    try:
        fit = "\0" not in value and len(os.fsencode(value)) <= _LONGEST_PATH
    except UnicodeEncodeError:
        fit = False
    if not fit:
        raise UsageError(f"{prefix}{name}: {value!r} cannot be a path.")
    return Path(value)


def _number(
    found: Mapping[str, Any],
    names: Sequence[str],
    where: str,
    *,
    default: int,
    least: int,
    most: int = _MOST_RUNS,
) -> int:
    """The one of ``names`` that is given; two that disagree are an error."""
    given = [name for name in names if found.get(name) is not None]
    for name in given:
        value = found[name]
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
            raise UsageError(
                f"{where}.{name}: {value!r} is not a whole number from {least} to {most}."
            )
    if len({found[name] for name in given}) > 1:
        raise UsageError(f"{where}.{given[1]}: says another number than {given[0]}. Give one.")
    return int(found[given[0]]) if given else default


def _cpus(value: object, where: str) -> tuple[int, ...]:
    """A list of cores, or text such as ``0,1`` or ``4-7``."""
    if value is None or value == "":
        return ()
    if isinstance(value, int) and not isinstance(value, bool):
        value = [value]
    if isinstance(value, str):
        value = _ranges(value, where)
    good = isinstance(value, list) and all(
        isinstance(cpu, int) and not isinstance(cpu, bool) and cpu >= 0 for cpu in value
    )
    if not good:
        raise UsageError(f'{where}: must be cores, as in [0, 1] or "4-7".')
    return tuple(value) if isinstance(value, list) else ()


def _ranges(text: str, where: str) -> list[int]:
    cpus: list[int] = []
    for part in text.split(","):
        match = re.fullmatch(r"\s*(\d{1,4})(?:-(\d{1,4}))?\s*", part)
        if match is None:
            raise UsageError(f"{where}: {text!r} names no cores, as in 0,1 or 4-7.")
        cpus += range(int(match[1]), int(match[2] or match[1]) + 1)
    return cpus


def _words(value: object, where: str) -> tuple[str, ...]:
    if value is None:
        return ()
    if not isinstance(value, list) or not all(isinstance(word, str) for word in value):
        raise UsageError(f'{where}: must be a list of texts, as in ["--flag=1"].')
    return tuple(value)
