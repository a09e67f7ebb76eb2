"""A whole generation against its baseline and limits, phase by phase, and in one sentence. Pure."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import replace

from pytest_sme2.results.case import (
    DECODE,
    PHASES,
    PREFILL,
    Baseline,
    CaseResult,
    Check,
    Generated,
    Limits,
    PhaseRatio,
    StepCosts,
    StoredGeneration,
)
from pytest_sme2.results.run import Arm
from pytest_sme2.results.timing import Outcome
from pytest_sme2.system.wording import as_given, fewer
from pytest_sme2.verdict import numerics
from pytest_sme2.verdict.judging import (
    CREATE_HINT,
    MORE_TIME,
    UPDATE_HINT,
    estimate_text,
    left_open,
    metric_against,
    suspect,
    too_hot,
)

# What the C library executes depends on the state of the heap: so much of a step, at least.
_HEAP_SHARE, _HEAP = 0.02, 2000
# A decode this much slower than the prompt is what one row in a tile looks like.
_ROW = 1.15


def sentence(found: Generated) -> str:
    """``prefill 4.1x, decode 0.9x: one row does not fill a tile``: speedups where times count; on
    the emulator ``instructions: prefill 4.10x fewer, …``.
    """
    if found.speedups:
        ratios = {phase: found.speedups[phase].value for phase in PHASES}
        text = ", ".join(f"{phase} {ratio:.1f}x" for phase, ratio in ratios.items())
    elif {Arm.ON, Arm.OFF} <= set(found.costs):
        on, off = (found.costs[arm].instructions for arm in (Arm.ON, Arm.OFF))
        ratios = {PREFILL: off[0] / on[0], DECODE: sum(off[1:]) / sum(on[1:])}
        told = ", ".join(f"{phase} {fewer(ratio)}" for phase, ratio in ratios.items())
        text = f"instructions: {told}"
    else:
        return ""
    row = ratios[PREFILL] > _ROW * ratios[DECODE] and ratios[DECODE] < _ROW
    return f"{text}: one row does not fill a tile" if row else text


def figure_lines(found: Generated) -> Iterator[str]:
    """What a user waits for, a line per arm."""
    for arm, costs in found.costs.items():
        steps = costs.instructions
        prompt = steps[0] / found.prompt_tokens
        yield (
            f"SME2 {arm}: {prompt:,.0f} instructions per token of the prompt "
            f"({found.prompt_tokens}), {statistics.median(steps[1:]):,.0f} per new token "
            f"(context {found.context(1)} to {found.context(found.new_tokens)})"
        )
    for arm, times in found.steps_ns.items():
        decode, first = found.decode_ns(arm), found.first_token_ns(arm)
        yield (
            f"SME2 {arm}: load {found.loads_ns[arm] / 1e6:.1f} ms, first token after "
            f"{first / 1e6:.1f} ms, prefill {found.prompt_tokens * 1e9 / times[0]:,.1f} tokens/s, "
            f"decode {1e9 / decode:,.1f} tokens/s (a step {decode / 1e6:.3f} ms, 95 % within "
            f"{found.decode_p95_ns[arm] / 1e6:.3f} ms), memory "
            f"{found.peak_bytes[arm][-1] / 1e6:.1f} MB"
        )


def check_outputs(measured: CaseResult, limits: Limits, against: str) -> list[Check]:
    """The last step's outputs: they are right only if every step found the cache before it."""
    found = measured.generation
    if found is None or not any(entry.against == against for entry in found.agreements):
        return []
    last = replace(measured, agreements=found.agreements)
    check = numerics.check_outputs(last, limits, against)
    return [replace(check, metric=f"generated {check.metric}")]


def check_costs(measured: CaseResult, baseline: Baseline | None, limits: Limits) -> list[Check]:
    """The instructions of each phase and arm; none where the model does not generate."""
    found = measured.generation
    if found is None:
        return []
    stored = None if baseline is None else baseline.generation
    cpu = dict(measured.fingerprint.facts).get("cpu", "")
    return [
        _check_phase(found, phase, arm, stored, cpu, limits.max_cost_growth)
        for arm in found.costs
        for phase in PHASES
    ]


def _check_phase(
    found: Generated, phase: str, arm: Arm, stored: StoredGeneration | None, cpu: str, limit: float
) -> Check:
    metric, now = f"{phase} cost ({arm})", found.costs[arm]
    new = _per_token(found, now.instructions, phase)
    told = f"{new:,.0f} instructions per token"
    before = None if stored is None else stored.costs.get(arm)
    if stored is None or before is None or stored.cpu != cpu:
        text = f"{told}; there is no baseline. {CREATE_HINT}"
        return Check(metric, Outcome.NO_BASELINE, text, new=new, unit="count")
    if (stored.prompt_tokens, stored.new_tokens) != (found.prompt_tokens, found.new_tokens):
        text = (
            f"{told}; the baseline is of {stored.prompt_tokens} and {stored.new_tokens} tokens, "
            f"this generation of {found.prompt_tokens} and {found.new_tokens}. {UPDATE_HINT}"
        )
        return Check(metric, Outcome.INVALID, text, new=new, unit="count")
    old = _per_token(found, before.instructions, phase)
    steps = [*_compared(before, now)]
    steps = steps[:1] if phase == PREFILL else steps[1:]
    grown = [(step, one, other) for step, one, other in steps if other > one * (1 + limit)]
    less = all(other * (1 + limit) < one for _, one, other in steps)
    change = "the same as" if old == new else f"{new / old - 1:+.2%} of"
    message = f"{told}; {change} the baseline ({old:,.0f}); {as_given(limit)}% more is allowed."
    verdict = Outcome.IMPROVED if less else Outcome.PASS
    details: tuple[str, ...] = ()
    if grown:
        verdict = Outcome.REGRESSED
        step, one, other = grown[0]
        where = f"at context {found.context(step)}" if phase == DECODE else "in the prompt"
        begins = f"It begins {where}: {one:,} to {other:,} instructions ({other / one - 1:+.2%})."
        message += f" {begins} {UPDATE_HINT}"
        details = tuple(
            f"context {found.context(step)}: {one:,} → {other:,} instructions"
            for step, one, other in grown[:10]
        )
    return Check(metric, verdict, message, old, new, "count", None, old * (1 + limit), details)


def _per_token(found: Generated, steps: Sequence[int], phase: str) -> float:
    return steps[0] / found.prompt_tokens if phase == PREFILL else sum(steps[1:]) / len(steps[1:])


def _compared(before: StepCosts, now: StepCosts) -> Iterator[tuple[int, int, int]]:
    """Each step and what both executed, without the C library's part where the heap explains its
    difference, or where it is another library.
    """
    same = before.toolchain in ("", now.toolchain)
    for step, (old, new) in enumerate(zip(before.instructions, now.instructions, strict=True)):
        systems = before.system[step], now.system[step]
        heap = abs(systems[1] - systems[0]) <= max(_HEAP, _HEAP_SHARE * old)
        yield (step, old - systems[0], new - systems[1]) if heap or not same else (step, old, new)


def check_against(
    phases: Sequence[PhaseRatio],
    begins: int,
    limits: Limits,
    name: str,
    arm: Arm | None = None,
    throttled: int = 0,
) -> list[Check]:
    """Each phase against another version's, from pairs; ``begins`` is where a decode slows down, 0
    where that is not known. The device itself slowed so many pairs down.
    """
    checks = [_check_worst(part, begins, limits, name, arm) for part in worst_parts(phases)]
    if not throttled:
        return checks
    hot = too_hot(throttled)
    return [replace(check, verdict=Outcome.INVALID, message=hot) for check in checks]


def worst_parts(phases: Sequence[PhaseRatio]) -> list[PhaseRatio]:
    """Of each phase, the part that speaks for it."""
    order = (Outcome.REGRESSED, Outcome.INCONCLUSIVE, Outcome.PASS, Outcome.IMPROVED)
    worst: dict[str, PhaseRatio] = {}
    for part in sorted(phases, key=lambda one: (order.index(one.outcome), -one.ratio.value)):
        worst.setdefault(part.phase, part)
    return [worst[phase] for phase in PHASES if phase in worst]


def _check_worst(
    part: PhaseRatio, begins: int, limits: Limits, name: str, arm: Arm | None
) -> Check:
    limit, metric = limits.max_regression, metric_against(f"{part.phase} latency", name, arm)
    if not math.isfinite(part.ratio.high):
        few = f"The time limit left too few pairs for a verdict. {MORE_TIME}"
        return Check(metric, Outcome.INVALID, few, limit=1 + limit)
    verdict = suspect(part.outcome, part.ratio.value > 1 + limit)
    place = f" at context {part.context} to {part.last}" if part.phase == DECODE else ""
    text = (
        f"{part.phase.capitalize()}{place} takes {estimate_text(part.ratio)} of the time of "
        f"{name}; {as_given(limit)}% more is allowed."
    )
    if verdict is Outcome.REGRESSED and part.phase == DECODE and begins:
        text += f" It begins at context {begins}."
    interval = (part.ratio.low, part.ratio.high)
    verdict, text = left_open(verdict, text, interval, limit)
    return Check(metric, verdict, text, 1.0, part.ratio.value, "ratio", interval, 1 + limit)


def stored_generation(
    old: StoredGeneration | None, measured: CaseResult
) -> StoredGeneration | None:
    """What a baseline keeps: the old one where the heap is all the difference."""
    found = measured.generation
    if found is None:
        return old
    cpu = dict(measured.fingerprint.facts).get("cpu", "") if found.costs else ""
    tokens = (found.prompt_tokens, found.new_tokens)
    if old is None or (old.prompt_tokens, old.new_tokens, old.cpu) != (*tokens, cpu):
        old = StoredGeneration(*tokens, cpu)
    costs = dict(old.costs)
    for arm, now in found.costs.items():
        before = costs.get(arm, now)
        same = all(one == other for _, one, other in _compared(before, now))
        costs[arm] = before if same and before.toolchain == now.toolchain else now
    return replace(old, costs=costs)
