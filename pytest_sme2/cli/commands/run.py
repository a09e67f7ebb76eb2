"""``sme2 run``: one model on one device with SME2 on and off, or a whole experiment file."""

from __future__ import annotations

import argparse
import importlib.resources

from pytest_sme2.cli.options import FOLDERS, MODEL_OR_PROGRAM, VARIANT, Arguments, shared
from pytest_sme2.errors import UsageError
from pytest_sme2.session.options import DEVICE

TEMPLATES = ("mac", "android", "linux", "emulated")
CASE = ("threads", "budget", "arms", "fresh", "weights", "out", "cpu")
METHOD: Arguments = {
    "--method NAME": "of a .pte file that has several (default: forward, or the only one)"
}
EXAMPLE = "sme2 run toy_cnn --variant fp16 --device emulated"
ARGUMENTS: Arguments = {
    "model MODEL?": MODEL_OR_PROGRAM,
    "--config FILE": "run the experiments of this JSON file; paths are relative to this folder",
    **VARIANT,
    **FOLDERS,
    **METHOD,
    f"--template {{{','.join(TEMPLATES)}}}": "print an experiment file to start from",
    "--kernels": "only list the kernels that run with SME2 on and off; without --device: emulated",
    **shared(*DEVICE, "runner", *CASE),
}


def run(arguments: argparse.Namespace) -> int:
    given = [arguments.model, arguments.config, arguments.template]
    if sum(value is not None for value in given) != 1:
        raise UsageError("Give one of: a MODEL, --config FILE, --template NAME.")
    if arguments.kernels and arguments.model is None:
        raise UsageError("--kernels needs a MODEL.")
    # Only now: the help comes without what measures.
    from pytest_sme2.cli import running

    if arguments.template is not None:
        print(template(arguments.template), end="")
        return 0
    if arguments.config is not None:
        return running.run_config(arguments)
    return running.run_model(arguments)


def template(name: str) -> str:
    folder = importlib.resources.files("pytest_sme2.cli") / "templates"
    return (folder / f"{name}.json").read_text(encoding="utf-8")
