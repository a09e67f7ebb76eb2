"""A simulation: what the gate says on pretended machines, where the truth is known.

    python -m benchmarks.simulated_gate            # no machine is timed; a few minutes of CPU time

Nothing here is measured on hardware. Programs of known speed run on a pretended device with a
virtual clock. Its spreads are those seen on real machines: process medians 0.4 %, sessions up to
3 %, and a neighbour that makes everything up to 2.5 times slower for tenths of a second. All above
the device is the product's own: session, measuring, baselines, gate.

A verdict is green where the test passes, with or without a warning. The limits were set before the
first run: no slowdown of 5 % or more is green, and at most one equal program of 500 is red,
whatever its verdict is called. The scenarios were not: the first run missed both, and the pretended
device was corrected (equal programs feel a session alike, long runs last through several spells,
spells are 0.1 s instead of 0.15 s). With 12 of 336 red, the product learned to measure longer what
is open, and to look at the quickest runs.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

import pytest

from benchmarks.harness import Verdict, account, finish, gate_claims, parser_of
from pytest_sme2.export.variant import parse_variant
from pytest_sme2.results.case import Check
from pytest_sme2.results.run import Arm
from pytest_sme2.session.cases import Case
from pytest_sme2.session.gate import Gate
from pytest_sme2.session.session import Session
from pytest_sme2.session.settings import Settings
from pytest_sme2.verdict import baselines
from pytest_sme2.verdict.judging import combine, failing
from tests.support.pretended_device import Burst, PretendedDevice, pretend, program

SLOWDOWNS = (1.05, 1.3, 2.0, 3.0)
OLD, NEW = program("old"), program("new")


@dataclass(frozen=True)
class Scenario:
    """One kind of machine, model and comparison."""

    name: str
    milliseconds: float
    slower: int
    """Trials for each of the slowdowns."""
    equal: int
    slowdowns: tuple[float, ...] = SLOWDOWNS
    session_spread: float = 0.005
    busy: bool = False
    sessions: int = 3
    """Stored sessions; the old program is at hand."""
    only_off: bool = False
    """Whether only the off arm is slower."""
    cases: int = 1
    """How many cases the run has."""
    loaded: bool = False
    """Whether something else takes half of the core's time while the new program is measured."""


SCENARIOS = (
    Scenario("0.3 s per inference", 300, 4, 15),
    Scenario("0.3 s per inference, loaded machine", 300, 4, 15, loaded=True),
    Scenario("1 s per inference", 1000, 4, 15),
    Scenario("1 s per inference, loaded machine", 1000, 4, 15, loaded=True),
    Scenario("one stored session, bursty neighbour", 20, 10, 60, (1.05,), 0.03, True, 1),
    Scenario("three stored sessions, bursty neighbour", 20, 20, 80, (1.05, 1.3), 0.03, True),
    Scenario("six stored sessions, sessions differ by 1 %", 20, 10, 40, (1.05,), 0.01, False, 6),
    Scenario("only the off arm is slower", 20, 8, 0, (1.05, 2.0), only_off=True),
    Scenario("27 cases in one run", 20, 27, 81, (1.05,), 0.01, cases=27),
    # The neighbour's spells are shorter than one inference, so turns cannot dodge them.
    Scenario("0.3 s per inference, bursty neighbour", 300, 4, 15, busy=True),
)


def judge(scenario: Scenario, factor: float, seed: int, folder: Path) -> list[Check]:
    """One trial: sessions are stored, then another program is measured and judged."""
    base = scenario.milliseconds * 1e6
    times = {Arm.ON: base / 2, Arm.OFF: base}
    changed = {
        Arm.ON: times[Arm.ON] * (1.0 if scenario.only_off else factor),
        Arm.OFF: times[Arm.OFF] * factor,
    }
    device = PretendedDevice(
        {OLD.sha256: times, NEW.sha256: changed},
        seed=seed,
        session_spread=scenario.session_spread,
        burst=Burst() if scenario.busy else None,
        # Both arms are only needed where one of them matters.
        sme2=scenario.only_off,
    )
    case = Case("toy", parse_variant("fp32"))
    stored = folder / "baselines"
    for number in range(scenario.sessions):
        device.new_session()
        with pytest.MonkeyPatch.context() as patch:
            pretend(patch, device, OLD)
            session = Session(Settings(device="linux", out=folder / "out"), identity=str(number))
            baselines.store(stored, session.measured(case, timed=True))
            session.close()
    device.new_session()
    device.interference = 1.0 if scenario.loaded else 0.0
    with pytest.MonkeyPatch.context() as patch:
        pretend(patch, device, NEW, OLD)
        settings = Settings(device="linux", out=folder / "out", baseline_dir=stored)
        session = Session(settings, identity="now")
        session.cases = lambda *_: [case] * scenario.cases  # type: ignore[method-assign]
        gate = Gate(session, case, lambda checks: None)
        gate.check_latency()
        session.close()
    return gate.checks


def run(scenario: Scenario) -> list[Verdict]:
    trials = []
    plan = [*([1.0] * scenario.equal), *scenario.slowdowns * scenario.slower]
    for seed, factor in enumerate(plan):
        # The cache is empty: to look through that of this machine is not part of a verdict.
        with (
            tempfile.TemporaryDirectory() as folder,
            mock.patch.dict(os.environ, {"SME2_CACHE_DIR": f"{folder}/cache"}),
        ):
            checks = judge(scenario, factor, seed, Path(folder))
        green = not failing(checks, strict=False)
        trials.append(Verdict(scenario.name, factor, str(combine(checks)), green))
    print(f"simulated: {scenario.name}: {len(plan)} verdicts", flush=True)
    return trials


def main(argv: Sequence[str] | None = None) -> int:
    arguments = parser_of(__doc__).parse_args(argv)
    print("This is a simulation: no machine is timed.")
    with ProcessPoolExecutor(2) as pool:
        trials = [trial for found in pool.map(run, SCENARIOS) for trial in found]
    return finish(gate_claims("simulated", trials), arguments.json, account(trials))


if __name__ == "__main__":
    sys.exit(main())
