"""One program back to back for minutes, as a user has it who does not stop after a burst."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_sme2.results import INTERRUPTED, Arm, Moment, Run, RunRequest, Sustained
from pytest_sme2.targets.base import Thermal

if TYPE_CHECKING:
    from pytest_sme2.session.device import HeldDevice

MOMENT_SECONDS = 2.0
MOMENTS = 3
"""Of one process: its start lets the device rest, and a verdict counts processes."""
FEWEST_MOMENTS = 60
MOST_RUNS = 20_000


def measure_sustained(
    bench: HeldDevice, title: str, request: RunRequest, folder: Path
) -> Sustained:
    """For as long as the settings say, alone on the device."""
    seconds = bench.settings.sustain_seconds or 0.0
    bench.require_timing()
    with bench.exclusively():
        moments, ended = _load(bench, title, request, folder, seconds)
    return Sustained(Arm(request.arm), tuple(moments), ended)


def _load(
    bench: HeldDevice, title: str, request: RunRequest, folder: Path, seconds: float
) -> tuple[list[Moment], str]:
    """Nothing is waited for in between. Ctrl-C, or a device that must be left alone, ends it."""
    target, moments, ended = bench.target, list[Moment](), ""
    request = replace(request, cpus=target.pinned(request.threads), warmup=1, runs=3)
    single = statistics.median(bench.run(request, folder).wall_ns) / 1e9
    length = MOMENTS * min(MOMENT_SECONDS, seconds / FEWEST_MOMENTS)
    bench.cool_down()
    begun = bench.clock()
    target.pauses = False
    try:
        while not ended and (now := bench.clock() - begun) < seconds:
            runs = min(MOST_RUNS, max(1, round(length / single)))
            bench.say(f"{title}: {now:.0f} of {seconds:.0f} s under load, {single * 1e3:.3f} ms")
            run = bench.run(replace(request, runs=runs), folder)
            single, thermal = statistics.fmean(run.wall_ns) / 1e9, target.thermal()
            process = moments[-1].process + 1 if moments else 0
            moments += moments_of(run, bench.clock() - begun, thermal, process)
            ended = "critical heat" if thermal.critical else ""
    except KeyboardInterrupt:
        ended = INTERRUPTED
    finally:
        target.pauses = True
    return moments, ended


def moments_of(run: Run, ended: float, thermal: Thermal, process: int) -> Iterator[Moment]:
    """Equal parts of a process that ended then."""
    number = min(MOMENTS, len(run.wall_ns))
    edges = [len(run.wall_ns) * edge // number for edge in range(number + 1)]
    left = sum(run.wall_ns)
    for start, end in itertools.pairwise(edges):
        part = run.wall_ns[start:end]
        left -= sum(part)
        yield Moment(
            ended - left / 1e9,
            statistics.fmean(part),
            run.clock_ghz,
            thermal.cap_ghz,
            thermal.celsius,
            process,
        )
