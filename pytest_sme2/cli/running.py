"""What ``sme2 run`` and ``sme2 threads`` do: one model with SME2 on and off, or experiments."""

from __future__ import annotations

import argparse
import json
import math
import shlex
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path

from pytest_sme2.cli.commands.models import model_folders
from pytest_sme2.cli.experiments import read_plan, run_plan
from pytest_sme2.cli.options import chosen, opened, progress, show
from pytest_sme2.errors import EvidenceError, UsageError
from pytest_sme2.export.variant import parse_variant
from pytest_sme2.report.case_summary import decision_text
from pytest_sme2.report.terminal import frontier_lines, run_lines
from pytest_sme2.report.text import aligned
from pytest_sme2.report.writing import write_case
from pytest_sme2.results.case import CaseResult, Check, Limits
from pytest_sme2.results.evidence import Evidence, Kernel, KernelCensus, KernelFamily
from pytest_sme2.results.run import FORWARD, PAIR, Arm, Artifact
from pytest_sme2.results.timing import INTERRUPTED, Outcome
from pytest_sme2.session.case_result import device_counts
from pytest_sme2.session.cases import Case, program_case
from pytest_sme2.session.run_directory import METRICS, read_record
from pytest_sme2.session.session import Session
from pytest_sme2.session.settings import Settings
from pytest_sme2.system.cache import untold
from pytest_sme2.system.files import encode, is_program
from pytest_sme2.system.processes import project_commit
from pytest_sme2.system.terminal import clear_line
from pytest_sme2.verdict.numerics import agreement_text, check_outputs, tolerance_of
from pytest_sme2.verdict.times import check_sustained


def run_config(arguments: argparse.Namespace) -> int:
    """All experiments of a file; exit code 1 where a pair does not show what it claims to."""
    plan = read_plan(arguments.config)
    command = ["sme2", "run", "--config", str(arguments.config)]
    command += ["--device", arguments.sme2_device] if arguments.sme2_device else []
    settings = Settings(**chosen(arguments, device=plan.device))
    with progress() as say:
        cases = run_plan(plan, settings, say, shlex.join(command))
    listed = [
        {"case": record.id, "folder": str(folder), "evidence": encode(record.measured.evidence)}
        for folder, record in cases
    ]
    records = [record for _, record in cases]
    lines = [*run_lines(records, untold=untold), f"files: {plan.output_root}"]
    show(arguments, {"output_root": str(plan.output_root), "cases": listed}, lines)
    for record in records:
        require_valid(record.measured.evidence)
    return 0


def require_valid(evidence: Evidence | None) -> None:
    if evidence is not None and not evidence.valid:
        raise EvidenceError(evidence.message)


def run_model(arguments: argparse.Namespace) -> int:
    """One model; exit code 1 where its outputs are wrong."""
    with opened(_settings(arguments)) as session:
        case = named_case(session, arguments)
        measured = session.measured(case, timed=session.bench.timed and not arguments.kernels)
        limits = session.limits(case)
        checks = [*output_checks(measured, limits), *check_sustained(measured, limits, False)]
        folder = session.keep(case, measured, checks)
        record = read_record(folder)
        write_case(folder, record, commit=project_commit())
        # While the device is still held: asked later, it would be taken again, and kept.
        if arguments.kernels:
            return _show_kernels(session, case, measured, arguments)
        able = session.bench.target.capabilities()
    lines = [*output_lines(measured, limits), "", *run_lines([record], verbosity=1)]
    if measured.evidence is not None:
        lines.insert(0, f"evidence: {measured.evidence.message}")
    elif not able.switches:
        lines.insert(0, f"no SME2: {able.reason} Only the off arm was run.")
    lines.append(f"files: {folder}")
    show(arguments, json.loads((folder / METRICS).read_text("utf-8")), lines)
    require_valid(measured.evidence)
    failed = any(check.verdict is Outcome.FAILED for check in checks)
    load = measured.sustained
    return 130 if load is not None and load.ended == INTERRUPTED else int(failed)


def run_threads(arguments: argparse.Namespace) -> int:
    """One model with several numbers of threads."""
    settings = Settings(model_folders=model_folders(arguments), **chosen(arguments, device="auto"))
    if arguments.sme2_threads is not None and len(settings.threads) < 2:
        raise UsageError(
            f"--threads {arguments.sme2_threads}: there is nothing to choose. Give several, as in "
            "1,2,4, or measure one: sme2 run"
        )
    with opened(settings) as session:
        session.bench.require_timing()
        if arguments.sme2_threads is None:
            session.settings = replace(settings, threads=device_counts(session.bench.target))
        case = named_case(session, arguments)
        require_valid(session.evidence(case))
        found = session.frontier(case)
        measured = session.measured(case, timed=False)
        folder = session.keep(case, measured, ())
        write_case(folder, read_record(folder), commit=project_commit())
    decision = decision_text(found, measured.fingerprint.sme1)
    about = {"model": case.model, "variant": case.variant_name, "device": measured.device}
    document = {"schema": 1, **about, "decision": decision, **encode(found)}
    if math.isinf(found.speedup.high):
        document["speedup"]["high"] = None  # JSON has no infinity
    title = f"{case.id} on {measured.device}, weights: {measured.weights}"
    return show(arguments, document, [title, *frontier_lines(measured), f"files: {folder}"])


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
    return show(arguments, document, kernel_lines(artifact, device, found[Arm.ON], found[Arm.OFF]))


def kernel_lines(
    artifact: Artifact, device: str, on: KernelCensus, off: KernelCensus
) -> Iterator[str]:
    """Both arms side by side, one row per kernel."""
    case = f"{artifact.model} ({artifact.variant}) on {device}"
    if on.source != "emulator":
        yield f"{case}: operators that ran, counted in lines of XNNPACK's log\n"
        yield from _kernel_rows("operator", on.operators, off.operators)
        yield "\nKernels that XNNPACK made ready; they may have run, or not:\n"
        yield from _kernel_rows("candidate", on.candidates, off.candidates)
        return
    yield f"{case}: kernels that ran, counted in blocks of code that the emulator translated\n"
    yield from _kernel_rows("kernel", on.kernels, off.kernels)
    yield ""
    for census in (on, off):
        counts = Counter(kernel.family for kernel in census.kernels)
        told = [f"{counts[family]} {family.value}" for family in KernelFamily if counts[family]]
        yield f"SME2 {census.arm}: {', '.join(told) or 'no kernel was seen'}"
    if any(not kernel.named for kernel in (*on.kernels, *off.kernels)):
        yield "\nA name such as library.so+0x1234 is a place: the library hides that kernel's name,"
        yield "and its family was read off its instructions."


def _kernel_rows(title: str, on: Sequence[Kernel], off: Sequence[Kernel]) -> list[str]:
    order = list(KernelFamily)
    kernels = {kernel.name: kernel for kernel in (*off, *on)}
    counts = [{kernel.name: str(kernel.count) for kernel in side} for side in (on, off)]
    rows = [
        (kernel.name, kernel.family.value, *(side.get(kernel.name, "-") for side in counts))
        for kernel in sorted(
            kernels.values(), key=lambda one: (order.index(one.family), not one.named, one.name)
        )
    ]
    return aligned([(title, "family", "on", "off"), *rows]) if rows else ["none was seen"]


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
    return replace(settings, no_cost=arguments.kernels)


def output_lines(measured: CaseResult, limits: Limits) -> Iterator[str]:
    """Every comparison with its scale."""
    for entry in measured.agreements:
        other = "SME2 off" if entry.against == "off" else "the eager model"
        tolerance = tolerance_of(measured.variant, limits, entry.against)
        text = agreement_text(entry, tolerance)
        yield f"output {entry.index}: SME2 {measured.arm_name(entry.arm)} against {other}: {text}"


def output_checks(measured: CaseResult, limits: Limits) -> list[Check]:
    compared = {entry.against for entry in measured.agreements}
    sides = [side for side in ("off", "reference") if side in compared or measured.nan_arms]
    return [check_outputs(measured, limits, side) for side in sides]
