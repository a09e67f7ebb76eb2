"""``sme2 doctor selfcheck``: A/A on the machine at hand. ``timing.selfcheck`` has the figures."""

from __future__ import annotations

import argparse
import dataclasses
import math
import sys
import tempfile
from pathlib import Path
from typing import Any

from pytest_sme2.cli.options import Arguments, chosen, shared, show
from pytest_sme2.errors import TargetError, UsageError
from pytest_sme2.results import Arm, Outcome, PairedTiming, RunRequest
from pytest_sme2.runners.sme2 import wheel_runner
from pytest_sme2.session.device import choose_target
from pytest_sme2.session.options import DEVICE
from pytest_sme2.session.settings import Settings
from pytest_sme2.system.terminal import clear_line, say, terminal_line
from pytest_sme2.system.wording import count
from pytest_sme2.targets.base import Job
from pytest_sme2.targets.local import this_machine
from pytest_sme2.timing.arms import starter_on
from pytest_sme2.timing.selfcheck import SAME, SelfCheck, check_machine, selfcheck_artifact
from pytest_sme2.timing.stats import USUAL_LOOKS

EXAMPLE = "sme2 doctor selfcheck --minutes 2"
ARGUMENTS: Arguments = {
    "--minutes N": ("about how long (default: 1)", 1.0),
    **shared(*DEVICE, device="this machine, with or without SME2"),
}


def run(arguments: argparse.Namespace) -> int:
    if not (math.isfinite(arguments.minutes) and arguments.minutes > 0):
        raise UsageError("--minutes takes a number above 0, as in --minutes 2.")
    # `auto` would prefer an emulator with SME2, whose times are worth nothing here.
    target = choose_target(Settings(**chosen(arguments, device=this_machine().name)))
    capabilities = target.capabilities()
    if not capabilities.timing:
        raise TargetError(
            f"The device {target.name!r} cannot measure time: {capabilities.reason} "
            "Choose another with --device."
        )
    runner = wheel_runner(target.platform, progress=say)
    arm = Arm.ON if capabilities.switches else Arm.OFF
    with tempfile.TemporaryDirectory(prefix="sme2-selfcheck-") as folder:
        try:
            target.prepare()
            request = RunRequest(selfcheck_artifact(), arm)
            # Both labels stand for the very same thing, and only their files are apart.
            jobs = {label: Job(runner, request, Path(folder) / label) for label in SAME}
            result = check_machine(
                starter_on(target, jobs),
                target.name,
                seconds=60 * arguments.minutes,
                progress=_show_progress if sys.stderr.isatty() else None,
                finished=None if arguments.json else _show_measurement,
            )
        finally:
            target.restore()
    show(arguments, to_document(result), [format_summary(result)])
    return exit_code(result)


def exit_code(result: SelfCheck) -> int:
    """1 for a false alarm, 3 for a machine on which most verdicts stay open."""
    if result.false_alarms:
        return 1
    return 3 if 2 * result.count(Outcome.INCONCLUSIVE) >= len(result.measurements) else 0


def _show_progress(number: int, line: str) -> None:
    terminal_line(sys.stderr)(f"measurement {number + 1}: {line}")


def _show_measurement(number: int, measurement: PairedTiming) -> None:
    clear_line(sys.stderr)
    outcome = measurement.decision.outcome if measurement.decision else Outcome.INCONCLUSIVE
    interval = measurement.interval
    bounds = "no interval" if interval is None else f"[{interval[0]:.4f}, {interval[1]:.4f}]"
    print(
        f"{number + 1:3d}  {outcome!s:12}  ratio {measurement.ratio:.4f} {bounds}, "
        f"{count(len(measurement.pairs), 'pair')}, {measurement.seconds:.1f} s",
        flush=True,
    )


def format_summary(result: SelfCheck) -> str:
    total = len(result.measurements)
    said = f"{count(total, 'verdict')}, {count(result.pairs, 'pair')} of processes"
    lines = ["", f"A/A on {result.target}: {said}"]
    if result.noise_floor is not None:
        lines.append(f"noise floor           {result.noise_floor:.2%} between processes")
    if result.detectable:
        sizes = ", ".join(f"{effect:.1%}" for effect in result.detectable)
        lines.append(
            f"smallest detectable   {sizes} slower, after {', '.join(map(str, USUAL_LOOKS))} pairs "
            f"(tolerated: {result.threshold:.0%})"
        )
    lines += [
        f"false alarms          {result.false_alarms} of {total} "
        f"({count(result.count(Outcome.IMPROVED), 'false improvement')})",
        f"inconclusive          {result.count(Outcome.INCONCLUSIVE)} of {total}",
        f"dropped pairs         {result.dropped} of {result.pairs}, for interference",
    ]
    quiet = ["This machine is quiet enough for the default limits."]
    noisy = ["This machine is noisy:", *(f"- {line}" for line in result.advice)]
    return "\n".join([*lines, "", *(noisy if result.advice else quiet)])


def to_document(result: SelfCheck) -> dict[str, Any]:
    """Everything, raw process medians included."""
    return {
        **dataclasses.asdict(result),
        "verdicts": len(result.measurements),
        "false_alarms": result.false_alarms,
        "inconclusive": result.count(Outcome.INCONCLUSIVE),
        "noise_floor": result.noise_floor,
        "smallest_detectable": list(result.detectable),
        "pairs": result.pairs,
        "dropped": result.dropped,
        "advice": list(result.advice),
    }
