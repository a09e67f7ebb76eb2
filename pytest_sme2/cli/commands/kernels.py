"""``sme2 kernels``: which kernels a model runs on, SME2 on and off side by side."""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path

from pytest_sme2.cli.chosen_case import add_method_argument, chosen_case
from pytest_sme2.cli.commands.models import add_folder_argument, model_folders
from pytest_sme2.cli.device_options import add_device_options, device_settings
from pytest_sme2.export.variant import PRECISIONS
from pytest_sme2.results import PAIR, Arm, Artifact, Kernel, KernelCensus, KernelFamily
from pytest_sme2.session.session import Session
from pytest_sme2.session.settings import Settings
from pytest_sme2.system.terminal import say

EXAMPLE = "sme2 kernels toy_cnn --variant fp16"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", metavar="MODEL|FILE.pte", help="a model or a program")
    parser.add_argument(
        "--variant",
        default="fp32",
        help=f"{', '.join(PRECISIONS)}; with an input size as in fp16@256 (default: fp32)",
    )
    add_method_argument(parser, "forward, or the only one")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--timeout", type=float, default=1800.0, metavar="SECONDS")
    parser.add_argument("--json", action="store_true", help="print JSON")
    add_folder_argument(parser)
    add_device_options(parser, "emulated", runners=True)


def run(arguments: argparse.Namespace) -> int:
    session = Session(
        Settings(model_folders=model_folders(arguments), **device_settings(arguments, "emulated")),
        say,
    )
    censuses = {}
    try:
        case = chosen_case(session, arguments, arguments.threads)
        artifact, device = session.artifact(case), session.bench.chosen.name
        for arm in PAIR:
            request = replace(session.request(case, arm), timeout_seconds=arguments.timeout)
            say(f"Running {case.model} on {device}, SME2 {arm}")
            with tempfile.TemporaryDirectory(prefix="sme2-kernels-") as folder:
                censuses[arm] = session.bench.kernels(request, Path(folder))
    finally:
        session.close()
    if arguments.json:
        print(json.dumps(_document(artifact, device, censuses), indent=2))
    else:
        print(table(artifact, device, censuses[Arm.ON], censuses[Arm.OFF]), end="")
    return 0


def _document(
    artifact: Artifact, device: str, censuses: dict[Arm, KernelCensus]
) -> dict[str, object]:
    return {
        "schema": 1,
        "model": artifact.model,
        "variant": artifact.variant,
        "sha256": artifact.sha256,
        "device": device,
        **{str(arm): asdict(census) for arm, census in censuses.items()},
    }


_TITLES = {
    "emulator": ("kernels that ran", "counted in blocks of code that the emulator translated"),
    "xnnpack-log": ("operators that ran", "counted in lines of XNNPACK's log"),
}


def table(artifact: Artifact, device: str, on: KernelCensus, off: KernelCensus) -> str:
    """Both arms side by side, one row per kernel."""
    what, counted = _TITLES[on.source]
    lines = [f"{artifact.model} ({artifact.variant}) on {device}: {what}, {counted}", ""]
    if on.source == "emulator":
        lines += _rows("kernel", on.kernels, off.kernels)
        lines += ["", *(f"SME2 {census.arm}: {_summary(census.kernels)}" for census in (on, off))]
        if any(not kernel.named for kernel in (*on.kernels, *off.kernels)):
            lines += [
                "",
                "A name such as library.so+0x1234 is a place: the library hides that kernel's "
                "name,",
                "and its family was read off its instructions.",
            ]
    else:
        lines += _rows("operator", on.operators, off.operators)
        lines += ["", "Kernels that XNNPACK made ready; they may have run, or not:", ""]
        lines += _rows("candidate", on.candidates, off.candidates)
    return "\n".join(line.rstrip() for line in lines) + "\n"


def _rows(title: str, on: Sequence[Kernel], off: Sequence[Kernel]) -> list[str]:
    order = list(KernelFamily)
    counts = [{kernel.name: kernel for kernel in side} for side in (on, off)]
    kernels = {**counts[1], **counts[0]}
    names = sorted(
        kernels, key=lambda name: (order.index(kernels[name].family), not kernels[name].named, name)
    )
    if not names:
        return ["none was seen"]
    width = max(len(name) for name in (*names, title))
    lines = [f"{title:<{width}}  family {'on':>7} {'off':>7}"]
    for name in names:
        cells = [str(side[name].count) if name in side else "-" for side in counts]
        lines.append(
            f"{name:<{width}}  {kernels[name].family.value:<6} {cells[0]:>7} {cells[1]:>7}"
        )
    return lines


def _summary(kernels: Sequence[Kernel]) -> str:
    parts = []
    for family in KernelFamily:
        count = sum(kernel.family is family for kernel in kernels)
        if count:
            parts.append(f"{count} {family.value}")
    return ", ".join(parts) or "no kernel was seen"
