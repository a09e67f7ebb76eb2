"""Collecting a kernel census from a run on a target that can tell which kernels ran.

How the logs are read is the business of ``kernels.py``.
"""

from __future__ import annotations

import dataclasses
import tempfile
from pathlib import Path

from pytest_sme2.errors import RunError
from pytest_sme2.kernels import census_from_qemu_log, census_from_xnnpack_log
from pytest_sme2.results import KernelCensus, Run, RunRequest
from pytest_sme2.runners import Runner
from pytest_sme2.targets.base import Target
from pytest_sme2.targets.emulated import EmulatedTarget

# in_asm: every block of code as it is translated, which is when it is first about to run.
# strace: where the loader maps the libraries. Both work in every version that knows SME2.
_LOG_ITEMS = "in_asm,strace"


def collect_census(
    target: Target, runner: Runner, request: RunRequest, folder: Path
) -> KernelCensus:
    """The kernels of one inference: from the emulator where there is one, else XNNPACK's log."""
    # One inference runs every kernel there is; more would only make it slow.
    once = dataclasses.replace(request, warmup=0, runs=1, keep_outputs=False)
    if isinstance(target, EmulatedTarget):
        return observed_run(target, runner, once, folder)[1]
    return _logged(target, runner, once, folder)


def observed_run(
    target: EmulatedTarget, runner: Runner, request: RunRequest, folder: Path
) -> tuple[Run, KernelCensus]:
    """A run and its kernels in one: the emulator logs what it translates, traced or not."""
    # Not in the run's own folder: QEMU takes a percent sign in the log's name for a pattern.
    with tempfile.TemporaryDirectory(prefix="sme2-census-") as temporary:
        log = Path(temporary) / "qemu.log"
        observed = target.with_options("-d", _LOG_ITEMS, "-D", str(log))
        run = observed.run(runner, request, folder)
        if not log.exists():
            raise RunError(
                f"The emulator {target.qemu.path} wrote no log of what it translated. "
                "Is it QEMU's own user-mode emulator? The run's log is " + str(run.log)
            )
        census = census_from_qemu_log(log, runner.files(request.arm), request.arm)
    if census.blocks == 0:
        raise RunError(
            f"The log of the emulator {target.qemu.path} ({target.qemu.version}) holds no "
            "translated block, so nothing can be said about kernels. Use another version of QEMU."
        )
    return run, census


def _logged(target: Target, runner: Runner, request: RunRequest, folder: Path) -> KernelCensus:
    run = target.run(runner, request, folder)
    if run.log is None:
        raise RunError(f"The target {target.name!r} keeps no log to find kernels in.")
    with run.log.open(encoding="utf-8", errors="replace") as file:
        census = census_from_xnnpack_log(file, request.arm)
    if not census.operators and not census.candidates:
        raise RunError(
            f"The log {run.log} holds no line of XNNPACK's, so the kernels on {target.name!r} are "
            "not to be seen. Give runners built with `sme2 build --variant xnnlog`, or use "
            "--device emulated."
        )
    return census
