"""``sme2 threads``: the best number of threads with SME2 against the best without."""

from __future__ import annotations

import argparse

from pytest_sme2.cli.commands.run import METHOD
from pytest_sme2.cli.options import FOLDERS, MODEL_OR_PROGRAM, VARIANT, Arguments, shared
from pytest_sme2.session.options import DEVICE

EXAMPLE = "sme2 threads toy_cnn --variant fp16 --device android --threads 1,2,4"
MORE = " Here: 1, 2, 4 and 8, as far as the device has cores."
ARGUMENTS: Arguments = {
    "model MODEL": MODEL_OR_PROGRAM,
    **VARIANT,
    **FOLDERS,
    **METHOD,
    **shared(*DEVICE, "runner", "budget", "weights", "out", "threads", more=MORE),
}


def run(arguments: argparse.Namespace) -> int:
    # Only now: the help comes without what measures.
    from pytest_sme2.cli.running import run_threads

    return run_threads(arguments)
