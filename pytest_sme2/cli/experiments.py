"""Experiment files: JSON in, checked values out; every message names the field. And
their runs, which leave the run directory behind: dumps, logs, tables, summaries.

A file names one program, where results go, the experiments (a runner, SME2 on or off, threads,
runs) and which of them to compare. The files of Arm's profiling kit are read as they are.
"""

from __future__ import annotations

import contextlib
import difflib
import json
import os
import re
import shutil
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, cast

import msgspec
from msgspec import Meta

from pytest_sme2.errors import Sme2Error, UsageError
from pytest_sme2.profile.beside import SHAPES, beside, keep_shapes
from pytest_sme2.report.markdown import run_report
from pytest_sme2.report.writing import model_stem, pipeline_summary, write_case, write_summary
from pytest_sme2.results.evidence import KernelCensus
from pytest_sme2.results.run import FORWARD, PAIR, Arm, Run, RunRequest
from pytest_sme2.runners.base import Runner
from pytest_sme2.runners.stock import single_runner
from pytest_sme2.session.analysis import SUFFIX, analyze_file
from pytest_sme2.session.case_result import Timing
from pytest_sme2.session.cases import Case, program_case
from pytest_sme2.session.run_directory import (
    MANIFEST,
    METRICS,
    CaseRecord,
    read_record,
    write_record,
)
from pytest_sme2.session.session import Session
from pytest_sme2.session.settings import Settings
from pytest_sme2.system.files import (
    encode,
    inside,
    is_program,
    read_json,
    structured,
    write_json,
    write_text,
)
from pytest_sme2.system.processes import project_commit
from pytest_sme2.system.terminal import Say
from pytest_sme2.system.wording import count, one_of
from pytest_sme2.targets.emulated import Traced
from pytest_sme2.targets.settings import DEVICES, parse_cpus

MODES = ("timing", "xnntrace")

# More would take longer than anybody waits, or is more than the system's own clocks take.
Amount = Annotated[int, Meta(ge=1, le=1_000_000)]
Threads = Annotated[int, Meta(ge=1, le=1024)]
_REMEDY = "Correct it, or start from a template: sme2 run --template emulated"
# An experiment's name and its number of threads: one entry of a file may ask for several numbers.
Key = tuple[str, int]


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
    file: Path | None = None


class _Entry(msgspec.Struct, forbid_unknown_fields=True):
    """One of the experiments of a file."""

    # The name of a folder.
    name: Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,99}\Z")]
    runner_path: str | None = None
    quiet_runner: str | None = None
    mode: str = MODES[0]
    sme2: bool | str | None = None
    runs: Amount | None = None
    num_runs: Amount | None = None
    warmup: Annotated[int, Meta(ge=0, le=1_000_000)] = 3
    threads: Threads | tuple[Threads, ...] | None = None
    num_threads: Threads | tuple[Threads, ...] | None = None
    cpu_affinity: (
        str | Annotated[int, Meta(ge=0)] | tuple[Annotated[int, Meta(ge=0)], ...] | None
    ) = None
    extra_args: tuple[str, ...] | None = None
    timeout_seconds: Amount = 1800
    description: str = ""


class _Side(msgspec.Struct):
    experiment: str
    threads: int = 1


class _Pair(msgspec.Struct):
    baseline: _Side
    candidate: _Side


class _Analysis(msgspec.Struct, frozen=True):
    """Of the kit's other fields none has an effect here."""

    compare_pairs: tuple[_Pair, ...] = ()


class _File(msgspec.Struct, forbid_unknown_fields=True):
    model: str
    experiments: tuple[_Entry, ...]
    output_root: str | None = None
    device: str = DEVICES[0]
    compare: tuple[tuple[str, str], ...] | None = None
    analysis: _Analysis = _Analysis()
    description: str = ""


def read_plan(path: Path) -> ExperimentPlan:
    """The experiment file, or an error that names the file, the field and what it may be."""
    document = read_json(path, remedy=_REMEDY, error=UsageError)
    try:
        return replace(parse_plan(document), file=path)
    except UsageError as error:
        raise UsageError(f"{path}: {error}") from None


def parse_plan(document: object) -> ExperimentPlan:
    file = _checked(document)
    model = Path(file.model)
    if not is_program(model.name):
        raise UsageError(f"model: {file.model!r} is not a program. Give the path of a .pte file.")
    # Where the kit puts the results of a file that names no place.
    home = model.parent.parent if model.parent.name == "artifacts" else model.parent
    experiments = tuple(
        experiment
        for number, entry in enumerate(file.experiments)
        for experiment in _experiments(entry, f"experiments[{number}]")
    )
    keys = [experiment.key for experiment in experiments]
    if not keys or len({*keys}) < len(keys):
        raise UsageError("experiments: must be at least one, of different names.")
    return ExperimentPlan(
        model=model,
        output_root=Path(file.output_root or home / "results"),
        experiments=experiments,
        compare=_compare(file, keys),
        device=one_of(file.device, DEVICES, "a device"),
    )


def _checked(document: object) -> _File:
    text = json.dumps(document, ensure_ascii=False)
    if "\\u0000" in text or re.search("[\ud800-\udfff]", text):
        raise UsageError("it holds a NUL or half of a character, which no path and no word can.")
    try:
        file: _File = structured(document, _File)
    except ValueError as error:
        unknown = re.search("unknown field `(.*)`", str(error))
        fields = (*_File.__struct_fields__, *_Entry.__struct_fields__)
        near = unknown and difflib.get_close_matches(unknown[1], fields, n=1)
        hint = f"Did you mean {near[0]!r}? " if near else ""
        raise UsageError(f"{error}. {hint}{_REMEDY}") from error
    return file


def _experiments(entry: _Entry, where: str) -> Iterator[Experiment]:
    """One experiment for each number of threads."""
    runner = entry.runner_path or entry.quiet_runner
    found = entry.threads or entry.num_threads or 1
    for threads in dict.fromkeys((found,) if isinstance(found, int) else found):
        yield Experiment(
            name=entry.name,
            arm=_arm(entry, where),
            mode=one_of(entry.mode, MODES, f"a mode ({where})"),
            runner_path=Path(runner) if runner else None,
            runs=entry.runs or entry.num_runs or 10,
            warmup=entry.warmup,
            threads=threads,
            cpus=_cpus(entry, where),
            extra_arguments=tuple(entry.extra_args or ()),
            timeout_seconds=entry.timeout_seconds,
        )


def _arm(entry: _Entry, where: str) -> Arm:
    """As the field ``sme2`` says, else as the name does."""
    value = entry.sme2
    if value is None and (match := re.search(r"sme2[_-]?(on|off)", entry.name)):
        value = match[1]
    arms: dict[object, Arm] = {True: Arm.ON, False: Arm.OFF, "on": Arm.ON, "off": Arm.OFF}
    if value not in arms:
        raise UsageError(
            f'{where}.sme2: {value!r} is neither "on" nor "off", and the name {entry.name!r} says '
            "neither sme2_on nor sme2_off."
        )
    return arms[value]


def _cpus(entry: _Entry, where: str) -> tuple[int, ...]:
    """A list of cores, or text: ``0,1``, ``4-7``, or a mask such as ``0x80``."""
    value = entry.cpu_affinity or ()
    if not isinstance(value, str):
        return (value,) if isinstance(value, int) else tuple(sorted({*value}))
    if re.fullmatch("0x[0-9a-fA-F]{1,16}", value):
        return tuple(core for core in range(64) if int(value, 16) >> core & 1)
    with contextlib.suppress(UsageError):
        if not isinstance(cores := parse_cpus(value), str):
            return cores
    raise UsageError(f"{where}.cpu_affinity: {value!r} names no cores, as in 0,1 or 4-7 or 0x80.")


def _compare(file: _File, keys: Sequence[Key]) -> tuple[tuple[Key, Key], ...]:
    """The pairs that were named; else those whose names differ in sme2_off and sme2_on alone."""
    names = list(dict.fromkeys(name for name, _ in keys))
    partners = [(name.replace("sme2_on", "sme2_off"), name) for name in names]
    asked: list[tuple[tuple[str, int | None], ...]] = [
        ((pair.baseline.experiment, pair.baseline.threads),
         (pair.candidate.experiment, pair.candidate.threads))
        for pair in file.analysis.compare_pairs
    ]  # fmt: skip
    if file.compare is not None or not asked:
        found = [pair for pair in partners if pair[0] in names and pair[0] != pair[1]]
        plain = found if file.compare is None else file.compare
        asked = [((before, None), (after, None)) for before, after in plain]
    pairs: list[tuple[Key, Key]] = []
    for number, sides in enumerate(asked):
        first, second = (_side(*side, keys, names, f"compare[{number}]") for side in sides)
        both = [(one, other) for one in first for other in second if one[1] == other[1]]
        if not both:
            counts = sorted({threads for _, threads in (*first, *second)})
            raise UsageError(
                f"compare[{number}]: {first[0][0]!r} and {second[0][0]!r} differ in threads "
                f"({', '.join(map(str, counts))}), so their times cannot be compared."
            )
        pairs += both
    return tuple(pairs)


def _side(
    name: str, threads: int | None, keys: Sequence[Key], names: Sequence[str], where: str
) -> list[Key]:
    """The experiments of a name, with one number of threads where that was named as well."""
    found = [key for key in keys if key[0] == name and threads in (None, key[1])]
    if not found:
        wanted = f"{name!r}" if threads is None else f"{name!r} with {count(threads, 'thread')}"
        raise UsageError(
            f"{where}: {wanted} is not an experiment. Choose from: {', '.join(names)}."
        )
    return found


PAIRS = "pairs"


@dataclass(frozen=True)
class Done:
    experiment: Experiment
    runner: Runner
    traced: Run | None = None
    untraced: Run | None = None
    census: KernelCensus | None = None


class ExperimentSession(Session):
    """Its cases ran already, each arm as its experiment says; all else is as in any session."""

    def __init__(self, settings: Settings, say: Say) -> None:
        super().__init__(settings, say)
        self._given: dict[Case, Mapping[Arm, Done]] = {}

    def add(self, case: Case, arms: Mapping[Arm, Done], done: Mapping[Key, Done]) -> None:
        """Make one experiment, or a pair, a case. The kernels are of one that logged them."""
        self._given[case] = arms
        processes = {}
        for arm, found in arms.items():
            run = cast("Run", found.traced)
            if run.etdump is not None:
                run = replace(run, etdump=_inside(self.folder(case), run.etdump))
            logged = (
                other.census
                for other in done.values()
                if other.experiment.arm is arm
                and other.experiment.threads == found.experiment.threads
                and other.census is not None
            )
            self._made["trace", case, arm] = Traced(run, next(logged, None))
            if found.untraced is not None:
                processes[arm] = (found.untraced,)
        self._made["timing", case] = Timing(processes, None)

    def arms(self, case: Case) -> tuple[Arm, ...]:
        return tuple(self._given[case])

    def runtime(self, case: Case) -> tuple[str, str]:
        runners = [found.runner for found in self._given[case].values()]
        hashes = {runner.sha256 for runner in runners}
        return runners[0].executorch, hashes.pop() if len(hashes) == 1 else ""

    def folder(self, case: Case) -> Path:
        """The first case has the run directory itself."""
        return self.out / PAIRS / case.label if case.label else self.out


def run_plan(
    plan: ExperimentPlan, settings: Settings, say: Say, command: str
) -> list[tuple[Path, CaseRecord]]:
    """Run every experiment; the cases that came of it, each with its folder."""
    settings = replace(settings, out=plan.output_root.expanduser())
    case = program_case(plan.model)
    with contextlib.closing(ExperimentSession(settings, say)) as session:
        session.take_folder()
        chosen, target = plan.experiments, session.bench.target.name
        if not session.bench.timed:
            say(f"each experiment runs 1 inference: on {target} no time is taken")
            chosen = tuple(replace(experiment, runs=1, warmup=0) for experiment in chosen)
        done = {experiment.key: _run(session, case, experiment) for experiment in chosen}
        cases: list[tuple[Path, CaseRecord]] = []
        for arms in _pairs(plan, done):
            if cases:
                names = "_".join(found.experiment.name for found in arms.values())
                threads = next(iter(arms.values())).experiment.threads
                case = replace(case, label=names if threads == 1 else f"{names}_t{threads}")
            session.add(case, arms, done)
            folder = session.keep(case, session.measured(case, timed=False), ())
            record = replace(read_record(folder), reproduce=command)
            write_record(folder, record)
            write_case(folder, record, commit=project_commit())
            cases.append((folder, record))
        if cases:
            results = [_result(session.out, found) for found in done.values()]
            config = None if plan.file is None else str(plan.file)
            _extend(session.out / METRICS, {"results": results, "config": config})
            rewrite_experiments(session.out, cases)
        return cases


def _inside(folder: Path, etdump: Path) -> Path:
    """The ETDump and what is beside it, in the case's folder: a record names nothing outside."""
    if etdump.is_relative_to(folder):
        return etdump
    folder.mkdir(parents=True, exist_ok=True)
    for path in (etdump, beside(etdump, SHAPES), etdump.with_suffix(".log")):
        if path.is_file():
            shutil.copyfile(path, folder / path.name)
    return folder / etdump.name


def _runner(experiment: Experiment, session: Session) -> Runner:
    """The one that is named, where it was built; else that of ExecuTorch's wheel."""
    if experiment.runner_path is not None:
        path = experiment.runner_path.expanduser().absolute()
        for place in (path, Path("executorch", experiment.runner_path).absolute()):
            if place.is_file():
                return single_runner(place)
        session.say(f"{experiment.name}: there is no {path}: the wheel's runner runs it")
    return session.bench.runner


def _run(session: Session, case: Case, experiment: Experiment) -> Done:
    bench, artifact = session.bench, session.artifact(case)
    runner = _runner(experiment, session)
    request = RunRequest(
        artifact=artifact,
        arm=experiment.arm,
        threads=experiment.threads,
        warmup=experiment.warmup,
        runs=experiment.runs,
        traced=experiment.mode == "timing",
        keep_outputs=True,
        timeout_seconds=experiment.timeout_seconds,
        cpus=experiment.cpus,
        extra_arguments=experiment.extra_arguments,
    )
    folder = session.out / experiment.name
    # The outputs of several numbers of threads stay apart; what people look for does not.
    place = folder if experiment.threads == 1 else folder / f"t{experiment.threads}"
    stem = f"{artifact.pte.stem}_{experiment.name}_t{experiment.threads}"
    threads = count(experiment.threads, "thread")
    session.say(f"{experiment.name}: on {bench.target.name}, SME2 {experiment.arm}, {threads}")
    if experiment.mode == "xnntrace":
        census = bench.kernels(request, place, runner)
        write_json(folder / f"{stem}_kernels.json", encode(census))
        return Done(experiment, runner, census=census)
    traced = bench.run(request, place, runner)
    # The names by which people look for them.
    etdump = traced.etdump and traced.etdump.replace(folder / f"{stem}{SUFFIX}")
    log = traced.log and traced.log.replace(folder / f"{stem}.log")
    traced = replace(traced, etdump=etdump, log=log)
    if etdump is not None:
        keep_shapes(etdump, artifact.pte, session.say, artifact.method or FORWARD)
    bare = replace(request, traced=False, keep_outputs=False)
    # A stock runner always traces, so its one process has to do for both.
    if not bench.timed or runner.traces(bare):
        return Done(experiment, runner, traced, traced if bench.timed else None)
    return Done(experiment, runner, traced, bench.run(bare, place / "untraced", runner))


def _pairs(plan: ExperimentPlan, done: Mapping[Key, Done]) -> list[dict[Arm, Done]]:
    """What belongs together: the pairs to compare, else every experiment on its own."""
    traced = {key: found for key, found in done.items() if found.traced is not None}
    sides = ([traced[key] for key in pair if key in traced] for pair in plan.compare)
    arms = ({side.experiment.arm: side for side in both} for both in sides)
    pairs = [both for both in arms if len(both) == len(PAIR)]
    taken = {found.experiment.key for both in pairs for found in both.values()}
    alone = (found for key, found in traced.items() if key not in taken)
    return [*pairs, *({found.experiment.arm: found} for found in alone)]


def rewrite_experiments(root: Path, cases: Sequence[tuple[Path, CaseRecord]]) -> None:
    """Put every experiment of ``metrics.json`` into the other files at the top, if it has any."""
    metrics = _object(root / METRICS)
    results = metrics.get("results")
    if not isinstance(results, list) or not cases:
        return
    records = [record for _, record in cases]
    places = [
        {"case": record.id, "folder": Path(os.path.relpath(folder, root)).as_posix()}
        for folder, record in cases
    ]
    told = {"config": metrics.get("config"), "results": results, "cases": places}
    _extend(root / MANIFEST, told)
    stem = model_stem(records[0])
    runs = [pipeline_summary(record) for record in records]
    _extend(root / f"{stem}_pipeline_summary.json", {"runs": results, "cases": runs})
    if len(cases) > 1:
        write_text(root / f"{stem}_pipeline_summary.md", run_report(records))
        analyses = [
            analyze_file(inside(root, name), name=name.removesuffix(SUFFIX))
            for name in _dumps(results)
        ]
        write_summary(analyses, root, timed=not records[0].measured.emulated)


def _dumps(results: Sequence[Any]) -> Iterator[str]:
    for entry in results:
        metrics = entry.get("metrics") if isinstance(entry, dict) else None
        name = metrics.get("etdump") if isinstance(metrics, dict) else None
        if isinstance(name, str):
            yield name


def _result(root: Path, done: Done) -> dict[str, Any]:
    chosen, times, traced = done.experiment, done.untraced, done.traced
    metrics: dict[str, Any] = {"runs": chosen.runs, "threads": chosen.threads}
    if times is not None and not times.emulated:
        milliseconds = [value / 1e6 for value in times.wall_ns]
        metrics |= {
            "latency_ms": milliseconds,
            "median_ms": statistics.median(milliseconds),
            "min_ms": min(milliseconds),
            "max_ms": max(milliseconds),
        }
    for name in ("etdump", "log"):
        path: Path | None = getattr(traced, name, None)
        if path is not None:
            metrics[name] = path.relative_to(root).as_posix()
    return {
        "experiment": chosen.name,
        "mode": chosen.mode,
        "sme2": str(chosen.arm),
        "warmup": chosen.warmup,
        "executorch": done.runner.executorch,
        "metrics": metrics,
    }


def _extend(path: Path, more: dict[str, Any]) -> None:
    write_json(path, _object(path) | more)


def _object(path: Path) -> dict[str, Any]:
    document = read_json(path, remedy="Run the experiments again.")
    if not isinstance(document, dict):
        raise Sme2Error(f"{path} is not an object. Run the experiments again.")
    return document
