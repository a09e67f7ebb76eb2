"""Runs an experiment file and leaves the run directory behind: dumps, logs, tables, summaries."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_sme2.cli.experiment_file import Experiment, ExperimentPlan
from pytest_sme2.errors import UsageError
from pytest_sme2.profile.build import build_profile
from pytest_sme2.profile.evidence import check_pair
from pytest_sme2.profile.shapes import keep_shapes, kept_shapes
from pytest_sme2.report.reproduce import AS_EXPORTED
from pytest_sme2.report.text import count
from pytest_sme2.report.writing import write_case
from pytest_sme2.results import Arm, Artifact, Fingerprint, KernelCensus, Pair, Run, RunRequest
from pytest_sme2.session.analysis import SUFFIX
from pytest_sme2.session.case_result import assemble, new_session
from pytest_sme2.session.run_directory import SCHEMA, CaseRecord, read_record, write_record
from pytest_sme2.session.run_lock import RunLock
from pytest_sme2.session.settings import Settings
from pytest_sme2.system.files import encode, file_sha256, write_json
from pytest_sme2.system.terminal import Say
from pytest_sme2.targets.settings import parse_device
from pytest_sme2.trace.etdump import read_etdump

if TYPE_CHECKING:
    from pytest_sme2.runners.base import Runner
    from pytest_sme2.targets.base import Target


@dataclass(frozen=True)
class Done:
    """One experiment that ran."""

    experiment: Experiment
    executorch: str
    """The version its runner was built from."""
    traced: Run | None = None
    untraced: Run | None = None
    census: KernelCensus | None = None


def run_plan(
    plan: ExperimentPlan, say: Say, *, qemu: Path | None = None
) -> list[tuple[Path, CaseRecord]]:
    """Run every experiment; the cases that came of it, each with its folder."""
    from pytest_sme2.session.device import choose_target

    plan = replace(plan, output_root=plan.output_root.expanduser().absolute())
    artifact = program_artifact(plan.model)
    identity, recorded = new_session()
    run_lock = RunLock(plan.output_root, identity)
    target = choose_target(Settings(device=parse_device(plan.device), qemu=qemu))
    target.prepare()
    try:
        done = {
            experiment.name: _run(plan, experiment, artifact, target, say)
            for experiment in plan.experiments
        }
        session = _Session(artifact, target.fingerprint(), identity, recorded)
    finally:
        target.restore()
    written = []
    for number, arms in enumerate(_pairs(plan, done)):
        folder = plan.output_root
        if number:
            folder = folder / "pairs" / "_".join(found.experiment.name for found in arms.values())
        record = _record(session, arms, done, folder)
        if number:
            record = replace(record, id=f"{record.id}-{folder.name}")
        write_record(folder, record)
        record = read_record(folder)
        write_case(folder, record)
        written.append((folder, record))
    run_lock.leave()
    return written


@dataclass(frozen=True)
class _Session:
    """What all cases of one plan have in common."""

    artifact: Artifact
    fingerprint: Fingerprint
    identity: str
    recorded: str


def _record(
    session: _Session, arms: Mapping[Arm, Done], done: Mapping[str, Done], folder: Path
) -> CaseRecord:
    """One case: a pair, or an experiment on its own."""
    artifact, first = session.artifact, next(iter(arms.values()))
    traced = {arm: found.traced for arm, found in arms.items()}
    dumps = {arm: run.etdump for arm, run in traced.items() if run is not None and run.etdump}
    censuses = {arm: _census(done, arm, first.experiment.threads) for arm in arms}
    profiles = {
        arm: build_profile(read_etdump(dump), census=censuses[arm], shapes=kept_shapes(dump))
        for arm, dump in dumps.items()
    }
    both = len(profiles) == len(Arm)
    untraced = {arm: (found.untraced,) for arm, found in arms.items() if found.untraced is not None}
    pair = Pair(
        artifact=artifact,
        target=session.fingerprint.target,
        on=untraced.get(Arm.ON, ()),
        off=untraced.get(Arm.OFF, ()),
        traced_on=traced.get(Arm.ON),
        traced_off=traced.get(Arm.OFF),
        evidence=check_pair(on=profiles[Arm.ON], off=profiles[Arm.OFF]) if both else None,
        census_on=censuses.get(Arm.ON),
        census_off=censuses.get(Arm.OFF),
    )
    return CaseRecord(
        schema=SCHEMA,
        id=f"{artifact.model}-{artifact.variant}",
        measured=assemble(
            pair,
            session.fingerprint,
            session=session.identity,
            recorded=session.recorded,
            profiles=profiles,
            runtime=first.executorch,
        ),
        measurement=None,
        checks=(),
        etdumps={
            arm: Path(os.path.relpath(dump, folder)).as_posix() for arm, dump in dumps.items()
        },
    )


def program_artifact(pte: Path) -> Artifact:
    """The program as it was exported, where its record lies beside it; else as a bare file."""
    from pytest_sme2.export.store import META_FILE, load_artifact

    pte = pte.expanduser().absolute()
    if not pte.is_file():
        raise UsageError(f"model: there is no program {str(pte)!r}. Make one with `sme2 export`.")
    if (pte.parent / META_FILE).is_file():
        artifact = load_artifact(pte.parent)
        if artifact.pte.absolute() == pte:
            return artifact
    return Artifact(
        model=pte.stem,
        variant=AS_EXPORTED,
        folder=pte.parent,
        pte=pte,
        sha256=file_sha256(pte),
        inputs=(),
        outputs=(),
        weights="unknown",
    )


def _runner(experiment: Experiment, target: Target, say: Say) -> Runner:
    from pytest_sme2.runners.sme2 import wheel_runner
    from pytest_sme2.runners.stock import single_runner

    if experiment.runner_path is None:
        return wheel_runner(target.platform, progress=say)
    path = experiment.runner_path.expanduser().absolute()
    if not path.is_file():
        raise UsageError(
            f"runner_path of the experiment {experiment.name!r}: there is no {str(path)!r}. "
            "Build it with `sme2 build`, or leave the field out to use the wheel's runner."
        )
    return single_runner(path)


def _run(
    plan: ExperimentPlan, experiment: Experiment, artifact: Artifact, target: Target, say: Say
) -> Done:
    from pytest_sme2.targets.census import collect_census

    runner = _runner(experiment, target, say)
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
    folder = (plan.output_root / experiment.name).absolute()
    stem = f"{artifact.pte.stem}_{experiment.name}_t{experiment.threads}"
    threads = count(experiment.threads, "thread")
    say(f"{experiment.name}: SME2 {experiment.arm} on {target.name}, {threads}")
    target.put([artifact.pte, *artifact.input_files, *runner.files(experiment.arm)])
    if experiment.mode == "xnntrace":
        census = collect_census(target, runner, request, folder)
        write_json(folder / f"{stem}_kernels.json", encode(census))
        return Done(experiment, runner.executorch, census=census)
    traced = _named(target.run(runner, request, folder), folder, stem)
    if traced.etdump is not None:
        keep_shapes(traced.etdump, artifact.pte, say)
    untraced = None
    if target.capabilities().timing:
        # A stock runner always traces, so its one process has to do for both.
        always = runner.traces(_untraced(request))
        untraced = traced if always else target.run(runner, _untraced(request), folder / "untraced")
    return Done(experiment, runner.executorch, traced, untraced)


def _untraced(request: RunRequest) -> RunRequest:
    return replace(request, traced=False, keep_outputs=False)


def _named(run: Run, folder: Path, stem: str) -> Run:
    """The run's files under the names by which people look for them."""
    etdump = run.etdump and run.etdump.replace(folder / f"{stem}{SUFFIX}")
    return replace(run, etdump=etdump, log=run.log and run.log.replace(folder / f"{stem}.log"))


def _pairs(plan: ExperimentPlan, done: Mapping[str, Done]) -> list[dict[Arm, Done]]:
    """What belongs together: the pairs to compare, else every experiment on its own."""
    pairs = []
    for before, after in plan.compare:
        sides = [done[name] for name in (before, after)]
        arms = {side.experiment.arm: side for side in sides if side.traced is not None}
        if len(arms) != len(Arm):
            continue
        counts = {side.experiment.threads for side in sides}
        if len(counts) > 1:
            raise UsageError(
                f"compare: {before!r} and {after!r} differ in threads "
                f"({', '.join(map(str, sorted(counts)))}), so their times cannot be compared."
            )
        pairs.append(arms)
    taken = {found.experiment.name for arms in pairs for found in arms.values()}
    for found in done.values():
        if found.traced is not None and found.experiment.name not in taken:
            pairs.append({found.experiment.arm: found})
    return pairs


def _census(done: Mapping[str, Done], arm: Arm, threads: int) -> KernelCensus | None:
    """The kernels of the trace experiment of this arm, if there was one."""
    fitting = (
        found.census
        for found in done.values()
        if found.experiment.arm is arm and found.experiment.threads == threads
    )
    return next((census for census in fitting if census is not None), None)
