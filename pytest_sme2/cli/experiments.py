"""Runs an experiment file and leaves the run directory behind: dumps, logs, tables, summaries."""

from __future__ import annotations

import contextlib
import os
import shutil
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar, cast

from pytest_sme2.cli.experiment_file import Experiment, ExperimentPlan, Key
from pytest_sme2.errors import Sme2Error, UsageError
from pytest_sme2.profile.beside import SHAPES, beside, keep_shapes
from pytest_sme2.report.csv_files import write_summary
from pytest_sme2.report.markdown import run_report
from pytest_sme2.report.writing import model_stem, pipeline_summary, write_case
from pytest_sme2.results import FORWARD, PAIR, Arm, KernelCensus, Run, RunRequest
from pytest_sme2.runners.base import Runner
from pytest_sme2.runners.stock import single_runner
from pytest_sme2.session.analysis import SUFFIX, analyze_file
from pytest_sme2.session.case_result import Timing
from pytest_sme2.session.case_trace import Traced
from pytest_sme2.session.cases import Case, program_case
from pytest_sme2.session.device import HeldDevice
from pytest_sme2.session.run_directory import (
    MANIFEST,
    METRICS,
    CaseRecord,
    read_record,
    write_record,
)
from pytest_sme2.session.session import Session
from pytest_sme2.session.settings import Settings
from pytest_sme2.system.files import encode, inside, write_json, write_text
from pytest_sme2.system.processes import project_commit
from pytest_sme2.system.reading import read_json
from pytest_sme2.system.terminal import Say
from pytest_sme2.system.wording import count

PAIRS = "pairs"
_Value = TypeVar("_Value")


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

    def retry_on_one_device(self, measure: Callable[[], _Value]) -> _Value:
        """What ran is not run again elsewhere."""
        return measure()


def run_plan(
    plan: ExperimentPlan, settings: Settings, say: Say, command: str
) -> list[tuple[Path, CaseRecord]]:
    """Run every experiment; the cases that came of it, each with its folder."""
    settings = replace(settings, out=plan.output_root.expanduser())
    case = program_case(plan.model)
    with contextlib.closing(ExperimentSession(settings, say)) as session:
        _ = session.run_lock
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


def _runner(experiment: Experiment, bench: HeldDevice) -> Runner:
    if experiment.runner_path is None:
        return bench.runner
    path = experiment.runner_path.expanduser().absolute()
    for place in (path, Path("executorch", experiment.runner_path).absolute()):
        if place.is_file():
            return single_runner(place)
    raise UsageError(
        f"runner_path of the experiment {experiment.name!r}: there is no {str(path)!r}. "
        "Build it with `sme2 build`, or use the wheel's runner with --wheel-runner."
    )


def _run(session: Session, case: Case, experiment: Experiment) -> Done:
    bench, artifact = session.bench, session.artifact(case)
    runner = _runner(experiment, bench)
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
