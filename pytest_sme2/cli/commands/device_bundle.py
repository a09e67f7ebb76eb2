"""``sme2 device-bundle``: the runner for phones that needs no NDK, in one folder or file."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from pytest_sme2.results import Arm
from pytest_sme2.runners.sme2 import wheel_runner
from pytest_sme2.session.device_bundle import write_bundle
from pytest_sme2.system.platforms import LINUX_AARCH64

HELP = "make the self-contained runner for phones, which needs no NDK"
EXAMPLE = "sme2 device-bundle sme2-bundle.tar.gz"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("out", type=Path, metavar="OUT", help="a new folder, or a new .tar.gz file")
    parser.add_argument(
        "--executorch",
        metavar="VERSION",
        help="the ExecuTorch to build it from (default: the installed one)",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(arguments: argparse.Namespace) -> int:
    runner = wheel_runner(
        LINUX_AARCH64,
        executorch=arguments.executorch,
        progress=lambda line: print(line, file=sys.stderr),
    )
    out = write_bundle(runner, arguments.out)
    size = sum(path.stat().st_size for path in runner.files(Arm.ON))
    if arguments.json:
        facts = {"path": str(out), "executorch": runner.executorch, "unpacked_bytes": size}
        print(json.dumps(facts))
    else:
        print(
            f"{out}: the runner of ExecuTorch {runner.executorch} for phones "
            f"({size / 1e6:.0f} MB unpacked). Use it with: --device-bundle {out}"
        )
    return 0
