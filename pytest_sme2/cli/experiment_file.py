"""Experiment files: JSON in, checked values out; every message names the field. Runs nothing.

A file names one program, where results go, the experiments (a runner, SME2 on or off, threads,
runs) and which of them to compare. The files of Arm's profiling kit are read as they are.
"""

from __future__ import annotations

import difflib
import importlib.resources
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pytest_sme2.errors import UsageError
from pytest_sme2.results import Arm
from pytest_sme2.system.files import is_program
from pytest_sme2.system.reading import read_json
from pytest_sme2.system.wording import count
from pytest_sme2.targets.settings import DEVICES, parse_cpus

TEMPLATES = ("mac", "android", "linux", "emulated")
MODES = ("timing", "xnntrace")

_TOP_FIELDS = (
    "model", "output_root", "device", "experiments", "compare", "analysis", "description",
)  # fmt: skip
_EXPERIMENT_FIELDS = (
    "name", "runner_path", "quiet_runner", "mode", "sme2", "runs", "num_runs", "warmup",
    "threads", "num_threads", "cpu_affinity", "extra_args", "timeout_seconds", "description",
)  # fmt: skip
# More would take longer than anybody waits, or is more than the system's own clocks take.
_MOST_RUNS = 1_000_000
_MOST_SECONDS = 1_000_000
_LONGEST_PATH = 4000
# An experiment's name and its number of threads: one entry of a file may ask for several numbers.
Key = tuple[str, int]
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")
# Options of the kit's script, which it also takes from extra_args: True where a value follows.
_SCRIPT_OPTIONS = {
    "--verbose-runner": True,
    "--xtrace-template": True,
    "--xtrace-target-sec": True,
    "--xtrace-min-exec": True,
    "--xtrace-max-exec": True,
    "--xtrace-execs": True,
    "--output": False,
    "--no-output": False,
}


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

    @property
    def key(self) -> Key:
        return self.name, self.threads


@dataclass(frozen=True)
class ExperimentPlan:
    """A whole experiment file."""

    model: Path
    output_root: Path
    experiments: tuple[Experiment, ...]
    compare: tuple[tuple[Key, Key], ...] = field(default=())
    """Experiments, before and after."""
    device: str = "auto"
    notes: tuple[str, ...] = ()
    """What the file says that has no effect here."""
    file: Path | None = None


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
        return replace(parse_plan(document), file=path)
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
    if not is_program(model.name):
        raise UsageError(f"model: {str(model)!r} is not a program. Give the path of a .pte file.")
    entries = top.get("experiments")
    if not isinstance(entries, list) or not entries:
        raise UsageError("experiments: must be a list with at least one experiment.")
    notes: list[str] = []
    experiments = tuple(
        experiment
        for number, entry in enumerate(entries)
        for experiment in _experiments(entry, f"experiments[{number}]", notes)
    )
    _refuse_same_names(entries)
    device = _text(top, "device", "") or "auto"
    if device not in DEVICES:
        raise UsageError(
            f"device: {device!r} is not a device. Choose one of: {', '.join(DEVICES)}."
        )
    named = top.get("compare")
    if "analysis" in top:
        named = _compare_pairs(top["analysis"], notes) if named is None else named
    return ExperimentPlan(
        model=model,
        output_root=_beside(model)
        if top.get("output_root") is None
        else _path(top, "output_root", "", required=True),
        experiments=experiments,
        compare=_compare(named, experiments),
        device=device,
        notes=tuple(notes),
    )


def _refuse_same_names(entries: Sequence[Mapping[str, Any]]) -> None:
    names = [entry["name"] for entry in entries]
    for number, name in enumerate(names):
        if name in names[:number]:
            raise UsageError(f"experiments[{number}].name: {name!r} is taken. Names must differ.")


def _experiments(entry: object, where: str, notes: list[str]) -> Iterator[Experiment]:
    """One experiment for each number of threads."""
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
    words, verbose_runner = _runner_words(
        _words(found.get("extra_args"), f"{where}.extra_args"), where, notes
    )
    runner = "runner_path" if found.get("runner_path") else "quiet_runner"
    path = _path(found, runner, f"{where}.") if found.get(runner) else None
    if verbose_runner is not None and mode == "xnntrace":
        path = verbose_runner
    for threads in _thread_counts(found, where):
        yield Experiment(
            name=name,
            arm=_arm(found, name, where),
            mode=mode,
            runner_path=path,
            runs=_number(found, ("runs", "num_runs"), where, default=10, least=1),
            warmup=_number(found, ("warmup",), where, default=3, least=0),
            threads=threads,
            cpus=_cpus(found.get("cpu_affinity"), f"{where}.cpu_affinity"),
            extra_arguments=words,
            timeout_seconds=_number(
                found, ("timeout_seconds",), where, default=1800, least=1, most=_MOST_SECONDS
            ),
        )


def _thread_counts(found: Mapping[str, Any], where: str) -> list[int]:
    """A number, or a list of numbers."""
    names = ("threads", "num_threads")
    lists = [name for name in names if isinstance(found.get(name), list)]
    if not lists:
        return [_number(found, names, where, default=1, least=1, most=1024)]
    (name, *_) = lists
    if not found[name]:
        raise UsageError(f"{where}.{name}: is an empty list. Give at least one number of threads.")
    counts = [
        _number({name: count}, (name,), where, default=1, least=1, most=1024)
        for count in found[name]
    ]
    return list(dict.fromkeys(counts))


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


def _compare(value: object, experiments: Sequence[Experiment]) -> tuple[tuple[Key, Key], ...]:
    """The pairs that were named; else those whose names differ in sme2_off and sme2_on alone."""
    keys = [experiment.key for experiment in experiments]
    names = list(dict.fromkeys(name for name, _ in keys))
    if value is None:
        partners = [[name.replace("sme2_on", "sme2_off"), name] for name in names]
        value = [pair for pair in partners if pair[0] in names and pair[0] != pair[1]]
    if not isinstance(value, list):
        raise UsageError('compare: must be a list of pairs, as in [["x_sme2_off", "x_sme2_on"]].')
    pairs: list[tuple[Key, Key]] = []
    for number, entry in enumerate(value):
        where = f"compare[{number}]"
        if isinstance(entry, dict):
            entry = [entry.get("before", entry.get("off")), entry.get("after", entry.get("on"))]
        if not isinstance(entry, list) or len(entry) != 2:
            raise UsageError(f"{where}: must be two names of experiments, before and after.")
        sides = [_side(name, keys, names, where) for name in entry]
        counts = [{count for _, count in side} for side in sides]
        if not counts[0] & counts[1]:
            raise UsageError(
                f"{where}: {sides[0][0][0]!r} and {sides[1][0][0]!r} differ in threads "
                f"({', '.join(map(str, sorted(counts[0] | counts[1])))}), so their times cannot "
                "be compared."
            )
        pairs += [
            (before, after) for before in sides[0] for after in sides[1] if before[1] == after[1]
        ]
    return tuple(pairs)


def _side(name: object, keys: Sequence[Key], names: Sequence[str], where: str) -> list[Key]:
    """The experiments of a name, with one number of threads where that was named as well."""
    threads = None
    if isinstance(name, tuple):
        name, threads = name
    found = [key for key in keys if key[0] == name and threads in (None, key[1])]
    if not found:
        wanted = f"{name!r}" if threads is None else f"{name!r} with {count(threads, 'thread')}"
        raise UsageError(
            f"{where}: {wanted} is not an experiment. Choose from: {', '.join(names)}."
        )
    return found


# --- what the kit has other names for -------------------------------------------------------------


def _beside(model: Path) -> Path:
    """Where the kit puts the results of a file that names no place."""
    folder = model.parent
    return (folder.parent if folder.name == "artifacts" else folder) / "results"


def _compare_pairs(analysis: object, notes: list[str]) -> list[Any] | None:
    """The pairs of the field ``analysis``, as ``compare`` has them; None where it names none."""
    if not isinstance(analysis, dict):
        raise UsageError("analysis: must be an object in braces.")
    notes += [
        f"analysis.{name} is ignored: the analysis here has no such choice"
        for name in analysis
        if name != "compare_pairs"
    ]
    pairs = analysis.get("compare_pairs") or []
    if not isinstance(pairs, list):
        raise UsageError("analysis.compare_pairs: must be a list of pairs.")
    found = []
    for number, pair in enumerate(pairs):
        where = f"analysis.compare_pairs[{number}]"
        if not isinstance(pair, dict):
            raise UsageError(f"{where}: must be an object with baseline and candidate.")
        found.append(
            [_kit_side(pair.get(side), f"{where}.{side}") for side in ("baseline", "candidate")]
        )
        if pair.get("label"):
            notes.append(f"{where}.label is ignored: pairs are named after their experiments")
    return found or None


def _kit_side(value: object, where: str) -> tuple[str, int]:
    name = value.get("experiment") if isinstance(value, dict) else None
    threads = value.get("threads", 1) if isinstance(value, dict) else None
    if not isinstance(name, str) or not isinstance(threads, int) or isinstance(threads, bool):
        raise UsageError(f'{where}: must be as in {{"experiment": "mac_sme2_on", "threads": 1}}.')
    return name, threads


def _runner_words(
    words: Sequence[str], where: str, notes: list[str]
) -> tuple[tuple[str, ...], Path | None]:
    """What of ``extra_args`` is for the runner, and the runner that logs kernels, if named."""
    kept: list[str] = []
    verbose: Path | None = None
    rest = list(words)
    while rest:
        word = rest.pop(0)
        name, equals, value = word.partition("=")
        if name not in _SCRIPT_OPTIONS:
            kept.append(word)
            continue
        if _SCRIPT_OPTIONS[name] and not equals:
            value = rest.pop(0) if rest else ""
        if name == "--verbose-runner" and value:
            verbose = Path(value)
            notes.append(f"{where}.extra_args: {value} is the runner of xnntrace experiments")
        else:
            notes.append(
                f"{where}.extra_args: {name} is ignored: it is an option of the kit's script"
            )
    return tuple(kept), verbose


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
    """A list of cores, or text: ``0,1``, ``4-7``, or a mask such as ``0x80``."""
    if value is None or value == "":
        return ()
    if isinstance(value, int) and not isinstance(value, bool):
        value = [value]
    if isinstance(value, str):
        try:
            cores = parse_cpus(value)
        except UsageError:
            cores = value
        if isinstance(cores, str):
            raise UsageError(f"{where}: {value!r} names no cores, as in 0,1 or 4-7 or 0x80.")
        return cores
    good = isinstance(value, list) and all(
        isinstance(cpu, int) and not isinstance(cpu, bool) and cpu >= 0 for cpu in value
    )
    if not good:
        raise UsageError(f'{where}: must be cores, as in [0, 1] or "4-7".')
    return tuple(value) if isinstance(value, list) else ()


def _words(value: object, where: str) -> tuple[str, ...]:
    if value is None:
        return ()
    if not isinstance(value, list) or not all(isinstance(word, str) for word in value):
        raise UsageError(f'{where}: must be a list of texts, as in ["--flag=1"].')
    return tuple(value)
