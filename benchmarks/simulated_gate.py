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

Budgets and the loss under load are judged at their limit, where red is a false alarm and green the
other error, and 5 % beyond it. Of the load, the first run gave 2 % false alarms where processes
differ by 1 %: it counted three to five moments of a process as so many observations.
"""

from __future__ import annotations

import math
import os
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

import numpy as np
import pytest

from benchmarks.harness import Claim, Verdict, account, finish, gate_claims, parser_of
from pytest_sme2.export.variant import parse_variant
from pytest_sme2.results import Arm, Check, Moment, Sustained
from pytest_sme2.session.cases import Case
from pytest_sme2.session.device import MOMENT_SECONDS, MOMENTS
from pytest_sme2.session.gate import Gate
from pytest_sme2.session.session import Session
from pytest_sme2.session.settings import Settings
from pytest_sme2.timing import stats
from pytest_sme2.verdict import baselines
from pytest_sme2.verdict.judging import combine, failing
from pytest_sme2.verdict.times import ACQUITTAL, ALARM, check_budgets, check_sustained
from tests.support.gate_examples import measured, with_limits
from tests.support.pretended_device import Burst, PretendedDevice, pretend, program
from tests.support.stored_sessions import processes

SLOWDOWNS = (1.05, 1.3, 2.0, 3.0)
OLD, NEW = program("old"), program("new")

LIMIT_TRIALS = 10_000
LIMIT_SPREADS = (0.002, 0.004, 0.01)
LIMIT_LEVELS = (1.0, 1.05)
LOSS, LOAD_SECONDS = 0.15, 300.0
RUN_SPREAD, INFERENCES = 0.005, 30


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


def budget_checks(level: float, spread: float, skewed: bool) -> Iterator[Check]:
    """A median and what 95 % of a process's inferences stay within; the centres of both are at the
    limit times ``level``. That of the latter is what the processes of all trials say together.
    """
    generator = np.random.default_rng(5)

    def tails(centres: stats.Floats) -> stats.Floats:
        runs = 1 + RUN_SPREAD * np.abs(generator.normal(size=(len(centres), INFERENCES)))
        return centres * np.percentile(runs, 95, axis=1, method="hazen")

    drawn = [
        (centres, tails(centres)) for centres in processes(level, spread, skewed, LIMIT_TRIALS)
    ]
    tail = float(np.median(np.concatenate([p95s for _, p95s in drawn]))) / level
    limits = with_limits(max_latency={"any": 0.01}, max_p95={"any": 0.01 * tail})
    for times in drawn:
        medians_ns, p95s_ns = ({Arm.ON: tuple(10e6 * values)} for values in times)
        now = measured(inferences=INFERENCES, medians_ns=medians_ns, p95s_ns=p95s_ns)
        yield from check_budgets(now, limits)


def load_checks(level: float, spread: float) -> Iterator[Check]:
    """Five minutes under load, whose last one takes as long as the limit allows, times ``level``;
    a level of 0 is a steady device.
    """
    generator = np.random.default_rng(7)
    slower = level / (1 - LOSS) or 1.0
    number = int(LOAD_SECONDS / MOMENT_SECONDS)
    for _ in range(LIMIT_TRIALS):
        at = np.arange(number // MOMENTS).repeat(MOMENTS)
        noise = generator.normal(0, spread, number)[at] + generator.normal(0, RUN_SPREAD, number)
        means = 10e6 * np.exp(noise) * np.where(at < len(at) // MOMENTS / 2, 1, slower)
        moments = tuple(
            Moment(MOMENT_SECONDS * (index + 1), float(mean), process=int(process))
            for index, (mean, process) in enumerate(zip(means, at, strict=True))
        )
        found = measured(sustained=Sustained(Arm.ON, moments))
        yield from check_sustained(found, with_limits(max_sustained_loss=LOSS), True)


def limit_rates() -> dict[str, dict[str, dict[str, dict[str, float]]]]:
    """How often each verdict, by what is limited, spread of processes and level."""
    found: dict[str, dict[str, dict[str, dict[str, float]]]] = {}
    for spread in LIMIT_SPREADS:
        for level in (0.0, *LIMIT_LEVELS):
            checks = [("sustained", check) for check in load_checks(level, spread)]
            for skewed in (False, True) if level else ():
                words = ", neighbours" if skewed else ""
                checks += [
                    (f"{check.metric.partition(' ')[0]}{words}", check)
                    for check in budget_checks(level, spread, skewed)
                ]
            for (what, verdict), times in Counter((n, str(c.verdict)) for n, c in checks).items():
                by_level = found.setdefault(what, {}).setdefault(f"{spread:g}", {})
                by_level.setdefault(f"{level:g}", {})[verdict] = times / LIMIT_TRIALS
        print(f"simulated: limits where processes differ by {spread:.1%}", flush=True)
    return found


def limit_claims(
    rates: Mapping[str, Mapping[str, Mapping[str, Mapping[str, float]]]],
) -> list[Claim]:
    """Three standard errors of the simulation are added to what is promised."""

    def of(level: str, verdict: str) -> list[float]:
        every = [levels for spreads in rates.values() for levels in spreads.values()]
        return [levels[level].get(verdict, 0.0) for levels in every if level in levels]

    def most(share: float) -> float:
        return share + 3 * math.sqrt(share / LIMIT_TRIALS)

    both = "budget or loss under load"
    return [
        Claim("limit alarms", f"most red, {both} just at its limit", max(of("1", "FAILED")), "%",
              limit=most(ALARM)),
        Claim("limit green", f"most green, {both} just at its limit", max(of("1", "PASS")), "%",
              limit=most(ACQUITTAL)),
        Claim("limit found", f"fewest red, {both} exceeded by 5 %", min(of("1.05", "FAILED")), "%",
              limit=0.99, least=True),
        Claim("limit missed", f"most green, {both} exceeded by 5 %", max(of("1.05", "PASS")), "%",
              limit=0.0),
        Claim("steady", f"of steady devices, not green under load (limit {LOSS:.0%})",
              1 - min(of("0", "PASS")), "%", limit=0.0),
    ]  # fmt: skip


def main(argv: Sequence[str] | None = None) -> int:
    arguments = parser_of(__doc__).parse_args(argv)
    print("This is a simulation: no machine is timed.")
    with ProcessPoolExecutor(2) as pool:
        trials = [trial for found in pool.map(run, SCENARIOS) for trial in found]
    limits = limit_rates()
    claims = [*gate_claims("simulated", trials), *limit_claims(limits)]
    return finish(claims, arguments.json, {"verdicts": account(trials), "limits": limits})


if __name__ == "__main__":
    sys.exit(main())
