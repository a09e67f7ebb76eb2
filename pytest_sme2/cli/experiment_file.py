"""Experiment files: JSON in, checked values out; every message names the field. Runs nothing.

A file names one program, where results go, the experiments (a runner, SME2 on or off, threads,
runs) and which of them to compare. The files of Arm's profiling kit are read as they are.
"""

from __future__ import annotations

import difflib
import importlib.resources
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pytest_sme2.errors import UsageError
from pytest_sme2.results import Arm
from pytest_sme2.system.files import is_program
from pytest_sme2.system.reading import read_json
from pytest_sme2.system.wording import count
from pytest_sme2.targets.settings import DEVICES, parse_cpus

MODES = ("timing", "xnntrace")

_TOP_FIELDS = (
    "model", "output_root", "device", "experiments", "compare", "analysis", "description",
)  # fmt: skip
_EXPERIMENT_FIELDS = (
    "name", "runner_path", "quiet_runner", "mode", "sme2", "runs", "num_runs", "warmup",
    "threads", "num_threads", "cpu_affinity", "extra_args", "timeout_seconds", "description",
)  # fmt: skip
# More would take longer than anybody waits, or is more than the system's own clocks take.
_MOST = 1_000_000
_MOST_THREADS = 1024
_LONGEST_PATH = 4000
# An experiment's name and its number of threads: one entry of a file may ask for several numbers.
Key = tuple[str, int]
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")
# Options of the kit's script, which it also takes from extra_args.
_SWITCHES = ("--output", "--no-output")
_WITH_VALUE = (
    *("--verbose-runner", "--xtrace-template", "--xtrace-target-sec"),
    *("--xtrace-min-exec", "--xtrace-max-exec", "--xtrace-execs"),
)


@dataclass(frozen=True)
class Experiment:
    name: str
    arm: Arm
    mode: str
    runner_path: Path | None
    """None: the one that is built from ExecuTorch's wheel."""
    runs: int
    warmup: int
    threads: int
    cpus: tuple[int, ...]
    extra_arguments: tuple[str, ...]
    timeout_seconds: float

    @property
    def key(self) -> Key:
        return self.name, self.threads


@dataclass(frozen=True)
class ExperimentPlan:
    model: Path
    output_root: Path
    experiments: tuple[Experiment, ...]
    compare: tuple[tuple[Key, Key], ...]
    """Experiments, before and after."""
    device: str
    notes: tuple[str, ...]
    """What the file says that has no effect here."""
    file: Path | None = None


def template(name: str) -> str:
    folder = importlib.resources.files("pytest_sme2.cli") / "templates"
    return (folder / f"{name}.json").read_text(encoding="utf-8")


def read_plan(path: Path) -> ExperimentPlan:
    """The experiment file, or an error that names the file, the field and what it may be."""
    document = read_json(path, remedy="Correct it, or start from a template.", error=UsageError)
    try:
        return replace(parse_plan(document), file=path)
    except UsageError as error:
        raise UsageError(f"{path}: {error}") from None


def parse_plan(document: object) -> ExperimentPlan:
    _refuse_odd_text(document)
    top = _Fields(document, "the file", _TOP_FIELDS)
    model = top.path("model", required=True)
    if not is_program(model.name):
        raise UsageError(f"model: {str(model)!r} is not a program. Give the path of a .pte file.")
    # Where the kit puts the results of a file that names no place.
    home = model.parent.parent if model.parent.name == "artifacts" else model.parent
    named = top.found.get("output_root") is not None
    root = top.path("output_root", required=True) if named else home / "results"
    entries = top.found.get("experiments")
    if not isinstance(entries, list) or not entries:
        raise UsageError("experiments: must be a list with at least one experiment.")
    notes: list[str] = []
    experiments = tuple(
        experiment
        for number, entry in enumerate(entries)
        for experiment in _experiments(entry, f"experiments[{number}]", notes)
    )
    names = [entry["name"] for entry in entries]
    for number, name in enumerate(names):
        if name in names[:number]:
            raise UsageError(f"experiments[{number}].name: {name!r} is taken. Names must differ.")
    pairs = top.found.get("compare")
    if "analysis" in top.found:
        of_kit = _compare_pairs(top.found["analysis"], notes)
        pairs = of_kit if pairs is None else pairs
    return ExperimentPlan(
        model=model,
        output_root=root,
        experiments=experiments,
        compare=_compare(pairs, [experiment.key for experiment in experiments]),
        device=top.choice("device", DEVICES, "a device"),
        notes=tuple(notes),
    )


def _refuse_odd_text(value: object) -> None:
    """No word of a command, and no path, can hold a NUL or half of a character."""
    if isinstance(value, str):
        if "\0" in value or any("\ud800" <= letter <= "\udfff" for letter in value):
            raise UsageError(f"{value[:60]!r} holds a character that no path or argument can hold.")
    elif isinstance(value, (list, dict)):
        for inner in [*value, *value.values()] if isinstance(value, dict) else value:
            _refuse_odd_text(inner)


def _experiments(entry: object, where: str, notes: list[str]) -> Iterator[Experiment]:
    """One experiment for each number of threads."""
    fields = _Fields(entry, where, _EXPERIMENT_FIELDS)
    name = fields.text("name", required=True)
    if not _NAME.fullmatch(name):
        raise fields.error(
            "name", f"{name!r} cannot be a folder's name. Use letters, digits, '_', '-', '.'."
        )
    mode = fields.choice("mode", MODES, "a mode")
    words, verbose_runner = _runner_words(fields, where, notes)
    runner = "runner_path" if fields.found.get("runner_path") else "quiet_runner"
    path = fields.path(runner) if fields.found.get(runner) else None
    for threads in dict.fromkeys(fields.numbers(("threads", "num_threads"), default=1)):
        yield Experiment(
            name=name,
            arm=_arm(fields, name),
            mode=mode,
            runner_path=verbose_runner if verbose_runner and mode == "xnntrace" else path,
            runs=fields.number("runs", "num_runs", default=10),
            warmup=fields.number("warmup", default=3, least=0),
            threads=threads,
            cpus=_cpus(fields),
            extra_arguments=words,
            timeout_seconds=fields.number("timeout_seconds", default=1800),
        )


def _arm(fields: _Fields, name: str) -> Arm:
    """As the field ``sme2`` says, else as the name does."""
    value = fields.found.get("sme2")
    if isinstance(value, bool):
        return Arm.ON if value else Arm.OFF
    if value is None:
        match = re.search(r"sme2[_-]?(on|off)", name)
        if match is None:
            problem = f"is missing, and the name {name!r} says neither sme2_on nor sme2_off."
            raise fields.error("sme2", f'{problem} Say "sme2": "on" or "off".')
        value = match[1]
    if value not in ("on", "off"):
        raise fields.error("sme2", f"{value!r} is neither 'on' nor 'off'.")
    return Arm(value)


def _cpus(fields: _Fields) -> tuple[int, ...]:
    """A list of cores, or text: ``0,1``, ``4-7``, or a mask such as ``0x80``."""
    value = fields.found.get("cpu_affinity")
    if value in (None, "", []):
        return ()
    try:
        cores = parse_cpus(",".join(map(str, value)) if isinstance(value, list) else str(value))
    except UsageError:
        cores = ""
    if isinstance(cores, str):
        raise fields.error("cpu_affinity", f"{value!r} names no cores, as in 0,1 or 4-7 or 0x80.")
    return cores


def _compare(value: object, keys: Sequence[Key]) -> tuple[tuple[Key, Key], ...]:
    """The pairs that were named; else those whose names differ in sme2_off and sme2_on alone."""
    names = list(dict.fromkeys(name for name, _ in keys))
    if value is None:
        partners = [[name.replace("sme2_on", "sme2_off"), name] for name in names]
        value = [pair for pair in partners if pair[0] in names and pair[0] != pair[1]]
    if not isinstance(value, list):
        raise UsageError('compare: must be a list of pairs, as in [["x_sme2_off", "x_sme2_on"]].')
    pairs: list[tuple[Key, Key]] = []
    for number, entry in enumerate(value):
        where = f"compare[{number}]"
        if not isinstance(entry, list) or len(entry) != 2:
            raise UsageError(f"{where}: must be two names of experiments, before and after.")
        first, second = (_side(name, keys, names, where) for name in entry)
        both = [(one, other) for one in first for other in second if one[1] == other[1]]
        if not both:
            counts = sorted({threads for _, threads in (*first, *second)})
            raise UsageError(
                f"{where}: {first[0][0]!r} and {second[0][0]!r} differ in threads "
                f"({', '.join(map(str, counts))}), so their times cannot be compared."
            )
        pairs += both
    return tuple(pairs)


def _side(name: object, keys: Sequence[Key], names: Sequence[str], where: str) -> list[Key]:
    """The experiments of a name, with one number of threads where that was named as well."""
    name, threads = name if isinstance(name, tuple) else (name, None)
    found = [key for key in keys if key[0] == name and threads in (None, key[1])]
    if not found:
        wanted = f"{name!r}" if threads is None else f"{name!r} with {count(threads, 'thread')}"
        raise UsageError(
            f"{where}: {wanted} is not an experiment. Choose from: {', '.join(names)}."
        )
    return found


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
    side = value if isinstance(value, dict) else {}
    name, threads = side.get("experiment"), side.get("threads", 1)
    if not isinstance(name, str) or not isinstance(threads, int) or isinstance(threads, bool):
        raise UsageError(f'{where}: must be as in {{"experiment": "mac_sme2_on", "threads": 1}}.')
    return name, threads


def _runner_words(
    fields: _Fields, where: str, notes: list[str]
) -> tuple[tuple[str, ...], Path | None]:
    """What of ``extra_args`` is for the runner, and the runner that logs kernels, if named."""
    rest = fields.found.get("extra_args") or []
    if not isinstance(rest, list) or not all(isinstance(word, str) for word in rest):
        raise fields.error("extra_args", 'must be a list of texts, as in ["--flag=1"].')
    kept: list[str] = []
    verbose: Path | None = None
    words = iter(rest)
    for word in words:
        name, equals, value = word.partition("=")
        if name not in (*_SWITCHES, *_WITH_VALUE):
            kept.append(word)
            continue
        if name in _WITH_VALUE and not equals:
            value = next(words, "")
        told = f"{name} is ignored: it is an option of the kit's script"
        if name == "--verbose-runner" and value:
            verbose = Path(value)
            told = f"{value} is the runner of xnntrace experiments"
        notes.append(f"{where}.extra_args: {told}")
    return tuple(kept), verbose


class _Fields:
    def __init__(self, value: object, where: str, known: Sequence[str]) -> None:
        if not isinstance(value, dict):
            raise UsageError(f"{where}: must be an object in braces.")
        self.found: dict[str, Any] = value
        self.prefix = "" if known is _TOP_FIELDS else f"{where}."
        for name in value:
            if name not in known:
                near = difflib.get_close_matches(name, known, n=1)
                hint = f"Did you mean {near[0]!r}?" if near else f"Known: {', '.join(known)}."
                raise self.error(name, f"is not a field. {hint}")

    def error(self, name: str, problem: str) -> UsageError:
        return UsageError(f"{self.prefix}{name}: {problem}")

    def text(self, name: str, *, required: bool = False) -> str:
        value = self.found.get(name)
        if value is None and not required:
            return ""
        if not isinstance(value, str) or (required and not value):
            raise self.error(name, "must be text, and is missing." if required else "must be text.")
        return value

    def path(self, name: str, *, required: bool = False) -> Path:
        value = self.text(name, required=required)
        if len(os.fsencode(value)) > _LONGEST_PATH:
            raise self.error(name, f"{value!r} cannot be a path.")
        return Path(value)

    def choice(self, name: str, choices: Sequence[str], what: str) -> str:
        """One of ``choices``, the first of them by default."""
        value = self.text(name) or choices[0]
        if value not in choices:
            raise self.error(name, f"{value!r} is not {what}. Choose one of: {', '.join(choices)}.")
        return value

    def number(self, *names: str, default: int, least: int = 1) -> int:
        (found,) = self.numbers(names, default=default, least=least, several=False)
        return found

    def numbers(
        self, names: Sequence[str], *, default: int, least: int = 1, several: bool = True
    ) -> list[int]:
        """What the one of ``names`` that is given says; two that disagree are an error."""
        most = _MOST_THREADS if several else _MOST
        chosen: list[int] = []
        for name in names:
            value = self.found.get(name)
            if value is None:
                continue
            values = value if several and isinstance(value, list) else [value]
            if not values:
                raise self.error(name, "is an empty list. Give at least one number.")
            for one in values:
                if not isinstance(one, int) or isinstance(one, bool) or not least <= one <= most:
                    raise self.error(name, f"{one!r} is not a whole number from {least} to {most}.")
            if values != (chosen or values):
                raise self.error(name, f"says another number than {names[0]}. Give one.")
            chosen = values
        return chosen or [default]
