"""Generations of ExecuTorch's own runners of language models: their commands run in turns, and what
they printed compared, phase by phase.
"""

from __future__ import annotations

import argparse
import math
import statistics
from collections.abc import Mapping, Sequence

from pytest_sme2.cli.options import chosen, opened, show
from pytest_sme2.errors import RunError, UsageError
from pytest_sme2.report.text import printable
from pytest_sme2.results import DECODE, PHASES, PREFILL, Arm, Estimate, PhaseRatio, Run
from pytest_sme2.runners.stock import UNTOLD, ObservedGeneration
from pytest_sme2.session.settings import Settings
from pytest_sme2.system.wording import count
from pytest_sme2.timing.processes import estimate_of, judge_phase
from pytest_sme2.timing.stats import FALSE_ALARM_RATE
from pytest_sme2.verdict.generation import check_against
from pytest_sme2.verdict.judging import FAILING
from pytest_sme2.verdict.limits import default_limits

NAMES = ("A", "B")
_Observed = Sequence[ObservedGeneration]


def run_commands(arguments: argparse.Namespace) -> int:
    """One command, or two in turns; exit code 1 where the second is slower in a phase, or nobody
    can tell.
    """
    from pytest_sme2.runners.stock import observed_command
    from pytest_sme2.session.case_result import measure_generations
    from pytest_sme2.targets.base import Job

    if len(arguments.command) > len(NAMES):
        raise UsageError("--command is given once, or twice to compare two.")
    with opened(Settings(**chosen(arguments, device="auto"))) as session:
        bench, folder = session.bench, session.out / "commands"
        bench.require_timing()
        jobs = {}
        for side, command in zip(NAMES, arguments.command, strict=False):
            runner, artifact = observed_command(command, bench.target.platform)
            jobs[side] = Job(runner, bench.request(artifact, Arm.OFF, 1), folder / side)
        runs, hot = measure_generations(bench, "commands", jobs, _judge)
    found = {side: _observed(of[1:]) for side, of in runs.items()}
    lines = observed_lines(found)
    lines += map(" is ".join, zip(found, arguments.command, strict=True))
    checks = []
    if len(found) > 1:
        phases = _compared(*found.values())
        checks = check_against(phases, 0, default_limits(), NAMES[0], throttled=hot)
    lines += [f"{check.metric}: {check.verdict}. {check.message}" for check in checks]
    judged = [{"metric": one.metric, "verdict": one.verdict, "new": one.new} for one in checks]
    told = {side: [vars(one) for one in of] for side, of in found.items()}
    document = {"generations": told, "checks": judged}
    show(arguments, document, [*lines, UNTOLD, f"files: {folder}"])
    return 1 if any(check.verdict in FAILING for check in checks) else 0


def _observed(runs: Sequence[Run]) -> _Observed:
    from pytest_sme2.runners.stock import one_generation

    return [one_generation(run.log) for run in runs if run.log]


def _judge(old: Sequence[Run], new: Sequence[Run]) -> list[PhaseRatio]:
    return _compared(_observed(old), _observed(new))


def _compared(before: _Observed, after: _Observed) -> list[PhaseRatio]:
    """How long each phase of the second takes, of the first's time."""
    sizes = {(one.prompt_tokens, one.new_tokens) for one in (*before, *after)}
    if len(sizes) > 1:
        shown = ", ".join(f"{prompt} and {new}" for prompt, new in sorted(sizes))
        raise RunError(
            f"The generations differ in their tokens of prompt and answer ({shown}), so their "
            "times are not comparable. Give both one prompt, a temperature of 0, and a number "
            "of new tokens that ends them."
        )
    ((prompt, tokens),) = sizes
    contexts = {PREFILL: (prompt, prompt), DECODE: (prompt + 1, prompt + tokens)}
    limit, parts = default_limits().max_regression, len(PHASES)
    return [
        judge_phase(phase, *contexts[phase], series, limit, parts)
        for phase, series in _log_ratios(before, after).items()
    ]


def _log_ratios(before: _Observed, after: _Observed) -> dict[str, list[float]]:
    """Of each phase, by token; runs are paired in order."""
    found = {}
    for phase in PHASES:
        pairs = [
            (one.token_ms[phase], other.token_ms[phase])
            for one, other in zip(before, after, strict=False)
        ]
        if pairs and min(min(pair) for pair in pairs) > 0:
            found[phase] = [math.log(other / one) for one, other in pairs]
    return found


def compare_observed(before: _Observed, after: _Observed) -> dict[str, Estimate]:
    """How many times faster the second is in each phase."""
    alpha = FALSE_ALARM_RATE / len(PHASES)
    return {
        phase: estimate_of(series, alpha) for phase, series in _log_ratios(after, before).items()
    }


def observed_lines(found: Mapping[str, _Observed]) -> list[str]:
    """What a user waits for, a line per side."""
    lines = []
    for name, generations in found.items():
        load = statistics.median(one.load_ms for one in generations)
        first = statistics.median(one.first_token_ms for one in generations)
        rates = [
            f"{phase} {1000 / time:,.1f} tokens/s"
            for phase in PHASES
            if (time := statistics.median(one.token_ms[phase] for one in generations)) > 0
        ]
        times = f"load {load:g} ms, first token {first:g} ms"
        number = count(len(generations), "generation")
        lines.append(f"{printable(name)}: {number}, {', '.join([times, *rates])}")
    return lines
