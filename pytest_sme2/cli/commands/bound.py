"""``sme2 bound``: how many cycles each operator needs at least, by a model of one core."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import asdict, replace
from pathlib import Path

from pytest_sme2.cli.commands.models import add_folder_argument, model_folders
from pytest_sme2.errors import RunError
from pytest_sme2.export.variant import PRECISIONS, parse_variant
from pytest_sme2.profile.bound import Bound, build_bound
from pytest_sme2.profile.build import build_profile
from pytest_sme2.profile.cost import MismatchError, build_cost
from pytest_sme2.results import Arm, Artifact, RunRequest
from pytest_sme2.session.cases import Case
from pytest_sme2.session.session import Session
from pytest_sme2.session.settings import Settings
from pytest_sme2.system.llvm_mca import CORE, LlvmMca, find_llvm_mca
from pytest_sme2.targets.census import observed_run
from pytest_sme2.targets.emulated import EmulatedTarget
from pytest_sme2.trace.cost_log import read_blocks
from pytest_sme2.trace.etdump import read_etdump

EXAMPLE = "sme2 bound toy_cnn --variant fp32"
LIMITS = (
    "bound: compute only. Caches, memory bandwidth, wrong guesses of branches and the way from one "
    "block of code to the next are not in it, so it is not a latency. With a single row (M = 1) "
    "hardware is known to be far from it."
)

_ROW = "{:<44} {:>12} {:>13} {:>10} {:>10}"
_WIDTH = 44


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", help="a model")
    parser.add_argument(
        "--variant",
        default="fp32",
        help=f"{', '.join(PRECISIONS)}; with an input size as in fp16@256 (default: fp32)",
    )
    parser.add_argument("--qemu", type=Path, metavar="FILE", help="the emulator")
    parser.add_argument("--timeout", type=float, default=1800.0, metavar="SECONDS")
    parser.add_argument("--json", action="store_true", help="print JSON")
    add_folder_argument(parser)


def run(arguments: argparse.Namespace) -> int:
    # First what may be missing: counting takes longer.
    model = find_llvm_mca()
    settings = Settings(
        device="emulated", qemu=arguments.qemu, model_folders=model_folders(arguments)
    )
    session = Session(settings, _say)
    bounds: dict[Arm, Bound] = {}
    try:
        entry = session.registry.get(arguments.model)
        variant = session.variant(entry, parse_variant(arguments.variant))
        case = Case(entry.name, variant, 1, entry)
        artifact = session.artifact(case)
        for arm in Arm:
            request = replace(session.request(case, arm), timeout_seconds=arguments.timeout)
            _say(f"Counting {case.model}, SME2 {arm}")
            bounds[arm] = _bound(session, request, model)
    finally:
        session.close()
    if arguments.json:
        print(json.dumps(_document(artifact, bounds), indent=2))
    else:
        print("\n".join(lines(artifact, bounds, model.version)))
    return 0


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _bound(session: Session, request: RunRequest, model: LlvmMca) -> Bound:
    bench = session.bench
    target = bench.target
    if not isinstance(target, EmulatedTarget):
        raise RunError(f"{target.name} does not count instructions; only the emulator does.")
    once = replace(request, warmup=0, runs=1, traced=True, counted=True, keep_outputs=False)
    with tempfile.TemporaryDirectory(prefix="sme2-bound-") as name:
        kept = Path(name) / "blocks"
        made = observed_run(target, bench.runner, once, Path(name) / "run", keep_counts=kept)
        if made.run.etdump is None or made.counted is None:
            raise RunError(f"{request.artifact.model}: the run left no trace.")
        columns = read_etdump(made.run.etdump)
        blocks = read_blocks(kept, target.cpu.vector_bits)
    rules = session.settings.rules
    profile = build_profile(columns, rules=rules, census=made.census)
    try:
        cost = build_cost(
            made.counted,
            columns,
            profile,
            cpu=target.cpu.model(request.arm),
            toolchain=bench.runner.toolchain,
            rules=rules,
        )
        return build_bound(
            cost,
            blocks.counted,
            model.model(blocks.words),
            columns,
            profile,
            rules,
        )
    except MismatchError as error:
        raise RunError(
            f"{request.artifact.model}: the emulator's log does not fit the ETDump: {error}"
        ) from error


def lines(artifact: Artifact, bounds: Mapping[Arm, Bound], version: str) -> Iterator[str]:
    """A table for each arm, the operators with most cycles first."""
    yield f"{artifact.model} ({artifact.variant}): cycles on {CORE}, modelled by llvm-mca {version}"
    for arm, bound in bounds.items():
        yield ""
        yield _ROW.format(f"SME2 {arm}", "instructions", "cycles, bound", "MB moved", "B/cycle")
        for entry in sorted(bound.operators, key=lambda entry: -entry.cycles):
            yield _ROW.format(
                entry.label[:_WIDTH],
                f"{entry.instructions:,}",
                f"{entry.cycles:,.0f}",
                f"{entry.moved_bytes / 1e6:.3f}",
                f"{entry.bytes_per_cycle:.1f}",
            )
        total = sum(entry.instructions for entry in bound.operators)
        moved = sum(entry.moved_bytes for entry in bound.operators)
        yield _ROW.format(
            "all operators", f"{total:,}", f"{bound.cycles:,.0f}", f"{moved / 1e6:.3f}", ""
        ).rstrip()
        yield f"The model knows {bound.modelled:.1%} of the instructions."
    yield ""
    yield LIMITS


def _document(artifact: Artifact, bounds: Mapping[Arm, Bound]) -> dict[str, object]:
    return {
        "schema": 1,
        "model": artifact.model,
        "variant": artifact.variant,
        "sha256": artifact.sha256,
        "core": CORE,
        "means": LIMITS,
        **{str(arm): {"cycles": bound.cycles, **asdict(bound)} for arm, bound in bounds.items()},
    }
