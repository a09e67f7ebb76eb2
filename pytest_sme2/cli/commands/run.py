"""``sme2 run``: one model on one device with SME2 on and off, or a whole experiment file."""

from __future__ import annotations

import argparse
import json
import shlex
import statistics
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_sme2.cli.chosen_case import add_method_argument, chosen_case
from pytest_sme2.cli.commands.models import add_folder_argument, model_folders
from pytest_sme2.cli.device_options import add_device_options, device_settings
from pytest_sme2.cli.experiment_file import TEMPLATES, read_plan, template
from pytest_sme2.errors import EvidenceError, UsageError
from pytest_sme2.export.variant import PRECISIONS
from pytest_sme2.results import CaseResult, Check, Limits, Outcome
from pytest_sme2.session.cases import Case
from pytest_sme2.session.session import Session
from pytest_sme2.session.settings import Settings, parse_arms, parse_budget, parse_threads
from pytest_sme2.system.files import encode
from pytest_sme2.system.qemu import checked_cpu
from pytest_sme2.system.terminal import clear_line, terminal_line
from pytest_sme2.system.wording import count
from pytest_sme2.verdict.judging import estimate_text

if TYPE_CHECKING:
    from pytest_sme2.report.noise import Noise

ALL = "all"
EXAMPLE = "sme2 run toy_cnn --variant fp16 --device emulated"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "model",
        metavar="MODEL",
        nargs="?",
        help="the model; `sme2 models` lists them. Or a .pte file, which is run as it is",
    )
    parser.add_argument(
        "--config",
        type=Path,
        metavar="FILE",
        help="run the experiments of this JSON file; its paths are relative to the current folder",
    )
    parser.add_argument(
        "--wheel-runner",
        action="store_true",
        help="with --config: ignore its runner_path, and use the runner built from ExecuTorch's "
        "wheel",
    )
    parser.add_argument(
        "--template",
        choices=TEMPLATES,
        help="print an example of an experiment file, and run nothing",
    )
    parser.add_argument(
        "--variant",
        default="fp32",
        help=f"{', '.join(PRECISIONS)}; with an input size as in fp16@256 (default: fp32)",
    )
    add_method_argument(parser, "forward, or the only one")
    parser.add_argument(
        "--threads", default="1", metavar="N", help="number of threads (default: 1)"
    )
    parser.add_argument(
        "--budget", default="30s", metavar="TIME", help="time to measure (default: 30s)"
    )
    parser.add_argument(
        "--sme2-cpu",
        metavar="NAME[:BITS]",
        help="the CPU to emulate: strict (default), apple-m4, arm-c1, sme1, with a vector length "
        "as in strict:256; all compares them",
    )
    parser.add_argument(
        "--sme2-arms",
        default="on,off",
        metavar="ARM,ARM[,ARM]",
        help="on,off (default), or off,sme1,on on the emulator: sme1 hides SME2 and keeps SME",
    )
    parser.add_argument("--no-cost", action="store_true", help="do not count executed instructions")
    parser.add_argument("--fresh", action="store_true", help="ignore cached emulator runs")
    parser.add_argument(
        "--weights", type=Path, metavar="FILE", help="a state dict (default: random weights)"
    )
    parser.add_argument(
        "--out", type=Path, metavar="DIR", help="the run directory (default: sme2-out)"
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    add_folder_argument(parser)
    add_device_options(parser, "auto", runners=True)


def run(arguments: argparse.Namespace) -> int:
    chosen = [arguments.model, arguments.config, arguments.template]
    if sum(value is not None for value in chosen) != 1:
        raise UsageError("Give one of: a MODEL, --config FILE, --template NAME.")
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
    command += ["--device", arguments.device] if arguments.device else []
    command += ["--wheel-runner"] if arguments.wheel_runner else []
    try:
        cases = run_plan(
            plan,
            terminal_line(sys.stderr),
            settings=Settings(**device_settings(arguments, plan.device)),
            wheel_runner=arguments.wheel_runner,
            command=shlex.join(command),
        )
    finally:
        clear_line(sys.stderr)
    if arguments.json:
        listed = [
            {"case": record.id, "folder": str(folder), "evidence": encode(record.measured.evidence)}
            for folder, record in cases
        ]
        print(json.dumps({"output_root": str(plan.output_root), "cases": listed}, indent=2))
    else:
        print("\n".join(run_lines([record for _, record in cases])))
        print(f"files: {plan.output_root}")
    for _, record in cases:
        evidence = record.measured.evidence
        if evidence is not None and not evidence.valid:
            raise EvidenceError(evidence.message)
    return 0


def run_model(arguments: argparse.Namespace) -> int:
    """One model; exit code 1 where its outputs are wrong."""
    from pytest_sme2.report.noise import noise_of
    from pytest_sme2.report.writing import write_case
    from pytest_sme2.session.run_directory import METRICS, read_record

    say = terminal_line(sys.stderr)
    if arguments.sme2_cpu == ALL:
        return _compare_cpus(arguments)
    chosen = arguments.sme2_cpu
    cpu = None if chosen is None else checked_cpu(chosen)
    session = Session(replace(_settings(arguments), emulated_cpu=cpu), say)
    case = chosen_case(session, arguments, session.settings.threads[0])
    try:
        measured = session.measured(case, timed=session.bench.timed)
        checks = output_checks(measured, session.limits(case))
        folder = session.keep(case, measured, checks)
        record = read_record(folder)
        write_case(folder, record)
        # While the device is still held: asked later, it would be taken again, and kept.
        lines = _lines(session, case, measured, folder, noise_of(record))
    finally:
        clear_line(sys.stderr)
        session.close()
    if arguments.json:
        print(json.dumps(json.loads((folder / METRICS).read_text("utf-8")), indent=2))
    else:
        print("\n".join(lines))
    if measured.evidence is not None and not measured.evidence.valid:
        raise EvidenceError(measured.evidence.message)
    return 1 if any(check.verdict is Outcome.FAILED for check in checks) else 0


def _one_count(value: str) -> tuple[int, ...]:
    counts = parse_threads(value)
    if len(counts) > 1:
        raise UsageError(
            f"--threads {value}: `sme2 run` measures with one number of threads. Give one, or "
            f"compare several: pytest --threads {value}"
        )
    return counts


def _settings(arguments: argparse.Namespace) -> Settings:
    return Settings(
        model_folders=model_folders(arguments),
        threads=_one_count(arguments.threads),
        out=arguments.out,
        fresh=arguments.fresh,
        weights=arguments.weights,
        budget_seconds=parse_budget(arguments.budget),
        no_cost=arguments.no_cost,
        arms=parse_arms(arguments.sme2_arms),
        **device_settings(arguments, "auto"),
    )


def _compare_cpus(arguments: argparse.Namespace) -> int:
    """The model on every emulated CPU; exit code 1 where it does not run on one of them."""
    from pytest_sme2.cli.cpus import cpu_lines, run_on_every_cpu

    settings = _settings(arguments)
    if settings.device != "emulated":
        raise UsageError("--sme2-cpu all compares emulated CPUs: give --device emulated as well.")
    say = terminal_line(sys.stderr)
    try:
        found = list(
            run_on_every_cpu(
                settings, say, lambda each: chosen_case(each, arguments, settings.threads[0])
            )
        )
    finally:
        clear_line(sys.stderr)
    print("\n".join(cpu_lines(found)))
    return 1 if any(entry.problem for entry in found) else 0


def _lines(
    session: Session, case: Case, measured: CaseResult, folder: Path, precise: Noise | None
) -> list[str]:
    from pytest_sme2.report.cost import instructions_per_token, tokens_per_second

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
    if precise is not None:
        lines.append(f"measured   {precise}")
    if not able.timing:
        lines.append(f"no timing  {able.reason}")
    lines += output_lines(measured, session.limits(case))
    lines.append(f"files      {folder}")
    return lines


def output_lines(measured: CaseResult, limits: Limits) -> Iterator[str]:
    """Every comparison with its scale, then the verdict by the limits that tests have."""
    from pytest_sme2.verdict.outputs import agreement_text, tolerance_of

    for entry in measured.agreements:
        other = "SME2 off" if entry.against == "off" else "the eager model"
        tolerance = tolerance_of(measured.variant, limits, entry.against)
        text = agreement_text(entry, tolerance)
        yield f"output {entry.index}   SME2 {measured.arm_name(entry.arm)} against {other}: {text}"
    for check in output_checks(measured, limits):
        yield f"{check.metric}: {check.verdict}. {check.message}"


def output_checks(measured: CaseResult, limits: Limits) -> list[Check]:
    from pytest_sme2.verdict.outputs import check_outputs

    compared = {entry.against for entry in measured.agreements}
    sides = [side for side in ("off", "reference") if side in compared or measured.nan_arms]
    return [check_outputs(measured, limits, side) for side in sides]
