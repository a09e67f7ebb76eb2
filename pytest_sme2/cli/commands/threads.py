"""``sme2 threads``: the best number of threads with SME2 against the best without."""

from __future__ import annotations

import argparse
import math
from dataclasses import replace

from pytest_sme2.cli.commands.models import model_folders
from pytest_sme2.cli.commands.run import METHOD
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
from pytest_sme2.cli.running import named_case, require_valid
from pytest_sme2.errors import UsageError
from pytest_sme2.report.case_summary import decision_text
from pytest_sme2.report.terminal import frontier_lines
from pytest_sme2.report.writing import write_case
from pytest_sme2.session.case_result import device_counts
from pytest_sme2.session.options import DEVICE
from pytest_sme2.session.run_directory import read_record
from pytest_sme2.session.settings import Settings
from pytest_sme2.system.files import encode
from pytest_sme2.system.processes import project_commit

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
