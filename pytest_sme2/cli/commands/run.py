"""``sme2 run``: one model on one device with SME2 on and off, or a whole experiment file."""

from __future__ import annotations

import argparse
import json
import shlex
import statistics
import sys
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_sme2.cli.commands.models import model_folders
from pytest_sme2.cli.experiment_file import TEMPLATES, read_plan, template
from pytest_sme2.cli.options import (
    FOLDERS,
    MODEL_OR_PROGRAM,
    VARIANT,
    Arguments,
    chosen,
    opened,
    shared,
    show,
)
from pytest_sme2.errors import EvidenceError, UsageError
from pytest_sme2.export.variant import parse_variant
from pytest_sme2.results import FORWARD, PAIR, Arm, CaseResult, Check, Limits, Outcome
from pytest_sme2.session.cases import Case
from pytest_sme2.session.options import DEVICE, RUNNERS
from pytest_sme2.session.programs import program_case
from pytest_sme2.session.session import Session
from pytest_sme2.session.settings import Settings
from pytest_sme2.system.files import encode, is_program
from pytest_sme2.system.terminal import clear_line, terminal_line
from pytest_sme2.system.wording import count
from pytest_sme2.verdict.judging import estimate_text

if TYPE_CHECKING:
    from pytest_sme2.report.case_summary import Noise

CASE = ("threads", "budget", "arms", "no-cost", "fresh", "weights", "out", "cpu")
METHOD: Arguments = {
    "--method NAME": "of a .pte file that has several (default: forward, or the only one)"
}
EXAMPLE = "sme2 run toy_cnn --variant fp16 --device emulated"
ARGUMENTS: Arguments = {
    "model MODEL?": MODEL_OR_PROGRAM,
    "--config FILE": "run the experiments of this JSON file; paths are relative to this folder",
    "--wheel-runner": (
        "with --config: ignore its runner_path, and use the runner built from ExecuTorch's wheel"
    ),
    **VARIANT,
    **FOLDERS,
    **METHOD,
    f"--template {{{','.join(TEMPLATES)}}}": "print an experiment file to start from",
    "--kernels": "only list the kernels that run with SME2 on and off; without --device: emulated",
    **shared(*DEVICE, *RUNNERS, *CASE),
}


def run(arguments: argparse.Namespace) -> int:
    given = [arguments.model, arguments.config, arguments.template]
    if sum(value is not None for value in given) != 1:
        raise UsageError("Give one of: a MODEL, --config FILE, --template NAME.")
    if arguments.kernels and arguments.model is None:
        raise UsageError("--kernels needs a MODEL.")
    if arguments.template is not None:
        print(template(arguments.template), end="")
        return 0
    if arguments.config is not None:
        return run_config(arguments)
    return run_model(arguments)


def run_config(arguments: argparse.Namespace) -> int:
    """All experiments of a file; exit code 1 where a pair does not show what it claims to."""
    from pytest_sme2.cli.experiments import run_plan
    from pytest_sme2.report.terminal import run_lines

    plan = read_plan(arguments.config)
    for note in plan.notes:
        print(f"sme2: {arguments.config}: {note}", file=sys.stderr)
    command = ["sme2", "run", "--config", str(arguments.config)]
    command += ["--device", arguments.sme2_device] if arguments.sme2_device else []
    command += ["--wheel-runner"] if arguments.wheel_runner else []
    try:
        cases = run_plan(
            plan,
            terminal_line(sys.stderr),
            settings=Settings(**chosen(arguments, device=plan.device)),
            wheel_runner=arguments.wheel_runner,
            command=shlex.join(command),
        )
    finally:
        clear_line(sys.stderr)
    listed = [
        {"case": record.id, "folder": str(folder), "evidence": encode(record.measured.evidence)}
        for folder, record in cases
    ]
    lines = [*run_lines([record for _, record in cases]), f"files: {plan.output_root}"]
    show(arguments, {"output_root": str(plan.output_root), "cases": listed}, lines)
    for _, record in cases:
        evidence = record.measured.evidence
        if evidence is not None and not evidence.valid:
            raise EvidenceError(evidence.message)
    return 0


def run_model(arguments: argparse.Namespace) -> int:
    """One model; exit code 1 where its outputs are wrong."""
    from pytest_sme2.report.case_summary import noise_of
    from pytest_sme2.report.writing import write_case
    from pytest_sme2.session.run_directory import METRICS, read_record

    with opened(_settings(arguments)) as session:
        case = named_case(session, arguments)
        measured = session.measured(case, timed=session.bench.timed and not arguments.kernels)
        checks = output_checks(measured, session.limits(case))
        folder = session.keep(case, measured, checks)
        record = read_record(folder)
        write_case(folder, record)
        # While the device is still held: asked later, it would be taken again, and kept.
        if arguments.kernels:
            return _show_kernels(session, case, measured, arguments)
        lines = _lines(session, case, measured, folder, noise_of(record))
    show(arguments, json.loads((folder / METRICS).read_text("utf-8")), lines)
    if measured.evidence is not None and not measured.evidence.valid:
        raise EvidenceError(measured.evidence.message)
    return 1 if any(check.verdict is Outcome.FAILED for check in checks) else 0


def named_case(session: Session, arguments: argparse.Namespace) -> Case:
    """What ``model``, ``variant`` and ``method`` of the command line name."""
    threads = session.settings.threads[0]
    if is_program(arguments.model):
        return program_case(Path(arguments.model), threads, arguments.method)
    if arguments.method not in (None, FORWARD):
        raise UsageError(
            f"--method {arguments.method}: a model is exported with the method {FORWARD} alone. "
            "Only a .pte file may have others."
        )
    entry = session.registry.get(arguments.model)
    variant = session.variant(entry, parse_variant(arguments.variant))
    return Case(entry.name, variant, threads, entry)


def _show_kernels(
    session: Session, case: Case, measured: CaseResult, arguments: argparse.Namespace
) -> int:
    """Those of the record; where the device does not tell by itself, of one more run that logs."""
    from pytest_sme2.cli.kernel_table import table

    artifact, device = session.artifact(case), session.bench.target.name
    found = dict(measured.kernels)
    for arm in PAIR:
        if arm not in found:
            folder = session.folder(case) / f"kernels_sme2_{arm}"
            found[arm] = session.bench.kernels(session.request(case, arm), folder)
    clear_line(sys.stderr)
    about = {"model": artifact.model, "variant": artifact.variant, "sha256": artifact.sha256}
    document = {"schema": 1, **about, "device": device}
    document |= {str(arm): asdict(census) for arm, census in found.items()}
    return show(arguments, document, table(artifact, device, found[Arm.ON], found[Arm.OFF]))


def _settings(arguments: argparse.Namespace) -> Settings:
    settings = Settings(
        model_folders=model_folders(arguments),
        **chosen(arguments, device="emulated" if arguments.kernels else "auto"),
    )
    if len(settings.threads) > 1:
        value = arguments.sme2_threads
        raise UsageError(
            f"--threads {value}: `sme2 run` measures with one number of threads. Give one, or "
            f"compare several: sme2 threads {arguments.model} --threads {value}"
        )
    return replace(settings, no_cost=settings.no_cost or arguments.kernels)


def _lines(
    session: Session, case: Case, measured: CaseResult, folder: Path, precise: Noise | None
) -> list[str]:
    from pytest_sme2.report.cost import instructions_per_token, tokens_per_second
    from pytest_sme2.verdict.generation import figure_lines, sentence

    able = session.bench.target.capabilities()
    lines = [f"{case.id} on {session.bench.target.name}, weights: {measured.weights}"]
    if measured.evidence is not None:
        lines.append(f"evidence   {measured.evidence.message}")
    elif not able.switches:
        lines.append(f"no SME2    {able.reason} Only the off arm was run.")
    for arm in session.bench.arms:
        structure = measured.structures[arm]
        word = "SME1" if structure.sme1 else "SME2"
        lines.append(
            f"SME2 {measured.arm_name(arm):<4}  {structure.sme2} of "
            f"{count(structure.matrix, 'matrix operator')} on {word} kernels, "
            f"{count(structure.total, 'operator')} in all"
        )
        if arm in measured.kernels:
            names = [kernel.name for kernel in measured.kernels[arm].kernels]
            families = [str(kernel.family) for kernel in measured.kernels[arm].kernels]
            counts = {family: families.count(family) for family in dict.fromkeys(families)}
            shown = ", ".join(f"{calls} {family}" for family, calls in counts.items())
            lines.append(f"           {count(len(names), 'kernel')} ran: {shown}")
        cost = measured.costs.get(arm)
        if cost is not None:
            total = cost.total
            lines.append(
                f"           {total.instructions:,} instructions per inference, "
                f"{total.outer_products:,} outer products"
            )
        medians = (measured.medians_ns or {}).get(arm)
        if medians:
            lines.append(
                f"           median {statistics.median(medians) / 1e6:.3f} ms "
                f"over {count(len(medians), 'process')}"
            )
    if measured.speedup is not None:
        lines.append(f"speedup    {estimate_text(measured.speedup)}")
    tokens = (instructions_per_token(measured), tokens_per_second(measured))
    lines += [f"tokens     {text}" for text in tokens if text]
    if measured.generation is not None:
        lines += [f"generation {line}" for line in figure_lines(measured.generation)]
        lines.append(f"generation {sentence(measured.generation)}")
    if precise is not None:
        lines.append(f"measured   {precise}")
    if not able.timing:
        lines.append(f"no timing  {able.reason}")
    lines += output_lines(measured, session.limits(case))
    lines.append(f"files      {folder}")
    return lines


def output_lines(measured: CaseResult, limits: Limits) -> Iterator[str]:
    """Every comparison with its scale, then the verdict by the limits that tests have."""
    from pytest_sme2.verdict.numerics import agreement_text, tolerance_of

    for entry in measured.agreements:
        other = "SME2 off" if entry.against == "off" else "the eager model"
        tolerance = tolerance_of(measured.variant, limits, entry.against)
        text = agreement_text(entry, tolerance)
        yield f"output {entry.index}   SME2 {measured.arm_name(entry.arm)} against {other}: {text}"
    for check in output_checks(measured, limits):
        yield f"{check.metric}: {check.verdict}. {check.message}"


def output_checks(measured: CaseResult, limits: Limits) -> list[Check]:
    from pytest_sme2.verdict.numerics import check_outputs

    compared = {entry.against for entry in measured.agreements}
    sides = [side for side in ("off", "reference") if side in compared or measured.nan_arms]
    return [check_outputs(measured, limits, side) for side in sides]
