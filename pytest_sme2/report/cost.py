"""Cost in words and tables: executed instructions, what a token costs, what operators ran on."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict

from pytest_sme2.profile.cost import (
    packing_share,
    rest,
    split,
    tile_use,
    work_coverage,
)
from pytest_sme2.report.text import as_sentence, percent, table
from pytest_sme2.results import (
    SHOWN,
    Arm,
    CaseResult,
    Category,
    Executor,
    InferenceCost,
)

ENGINES = ("SME2", "NEON", "portable", "SME1")
SME2, NEON, PORTABLE, SME1 = range(4)


def engine_names(results: Sequence[CaseResult]) -> tuple[str, ...]:
    """ENGINES, the last only where it ran; where a CPU is not an Arm, nothing is called NEON."""
    foreign = any("x86" in dict(each.fingerprint.facts).get("platform", "") for each in results)
    if any(found.sme1 for measured in results for found in measured.structures.values()):
        return ENGINES
    return ("SME2", "XNNPACK", "portable") if foreign else ENGINES[:SME1]


def engines_of(measured: CaseResult, arm: Arm) -> list[int]:
    """For each operator of an arm its place in ENGINES."""
    return [
        PORTABLE
        if member.operator.executor is Executor.PORTABLE
        else (SME1 if member.operator.sme1 else SME2)
        if member.operator.matrix and member.operator.sme2
        else NEON
        for member in measured.profiles[arm].operators
    ]


def engine_shares(measured: CaseResult) -> tuple[str, list[float]] | None:
    """What the shares are of, and that of each of ENGINES, the last only where it ran."""
    arm = measured.arm
    profile = measured.profiles.get(arm)
    if profile is None or not profile.operators:
        return None
    cost = measured.costs.get(arm)
    if not measured.emulated:
        unit, weights = "time", [member.time_ns for member in profile.operators]
    elif cost is not None and len(cost.operators) == len(profile.operators):
        unit, weights = "instructions", [entry.counts.instructions for entry in cost.operators]
    else:
        unit, weights = "operators", [1.0] * len(profile.operators)
    sums = [0.0] * len(ENGINES)
    for engine, weight in zip(engines_of(measured, arm), weights, strict=True):
        sums[engine] += weight
    whole = sum(sums)
    sums = sums if sums[SME1] else sums[:SME1]
    return (unit, [value / whole for value in sums]) if whole else None


def kernel_operators(measured: CaseResult) -> Mapping[str, str]:
    """By kernel the name of the operator that executed most of it; only where cost was counted."""
    most: dict[str, Counter[str]] = {}
    for cost in measured.costs.values():
        for entry in cost.operators:
            for kernel, instructions in entry.kernels:
                most.setdefault(kernel, Counter())[entry.name] += instructions
    return {kernel: sums.most_common(1)[0][0] for kernel, sums in most.items()}


LIMITS_OF_COST = (
    "cost is the number of executed instructions (Minst: a million), not time: where phones were "
    "measured, SME2 cut the time 1.8 to 3.9 times, and the instructions of the same work 4.5 to "
    "38.9 times (docs/measuring.md)"
)


def millions(count: int | None) -> str:
    """``0.742``, ``6.215``, ``123.4``: millions, with four digits at most."""
    if count is None:
        return "-"
    value = count / 1e6
    places = 0 if value >= 1000 else 1 if value >= 100 else 2 if value >= 10 else 3
    return f"{value:.{places}f}"


WORDS = {
    Category.DATA_MOVEMENT: "data movement",
    Category.ELEMENTWISE: "elementwise operators",
    Category.OTHER: "other operators",
    # What else is of this category is matrix work.
    Category.CONV: "depthwise convolutions",
}


def rest_text(measured: CaseResult) -> str:
    """What is left when SME2 has done its part; empty where nothing was counted."""
    cost = measured.costs.get(measured.arm)
    found = None if cost is None else rest(cost)
    if found is None:
        return ""
    left, category, most = found
    return (
        f"{percent(left)} of the instructions that are left are no matrix work, and SME2 cannot "
        f"help with them: {percent(most)} of these are {WORDS.get(category, str(category))}"
    )


def cost_lines(measured: CaseResult) -> Iterator[str]:
    """The Markdown section about cost."""
    if not measured.costs:
        if measured.uncounted and measured.emulated:
            yield f"Nothing was counted: {measured.uncounted}."
        return
    if left := rest_text(measured):
        yield from (as_sentence(left), "")
    titles, *rows = cost_rows(measured)
    yield from table(titles, rows)
    each = instructions_per_token(measured)
    if each:
        yield from ("", as_sentence(each))


def cost_rows(measured: CaseResult) -> list[list[str]]:
    """What was counted, the first row its titles."""
    arms = [arm for arm in SHOWN if arm in measured.costs]
    columns = [_figures(measured.costs[arm]) for arm in arms]
    names = dict.fromkeys(name for column in columns for name in column)
    titles = ["per inference", *(f"SME2 {measured.arm_name(arm)}" for arm in arms)]
    return [titles, *([name, *(each.get(name, "0") for each in columns)] for name in names)]


def _figures(cost: InferenceCost) -> dict[str, str]:
    total = cost.total
    numbers = {
        **split(cost),
        "all instructions": total.instructions,
    }
    parts = {
        "multiply-accumulates on SME2": work_coverage(cost),
        "tile use": tile_use(cost),
        "packing and layout": packing_share(cost),
    }
    return {name: f"{number:,}" for name, number in numbers.items()} | {
        name: "-" if part is None else percent(part) for name, part in parts.items()
    }


def cost_summary(cost: InferenceCost) -> dict[str, object]:
    """The figures of one arm for programs."""
    return {
        "cpu": cost.cpu,
        "vector_bits": cost.vector_bits,
        **asdict(cost.total),
        "split": split(cost),
        "categories": {str(key): found.instructions for key, found in cost.by_category().items()},
        "coverage_by_work": work_coverage(cost),
        "tile_use": tile_use(cost),
        "packing_and_layout_share": packing_share(cost),
    }


def instructions_per_token(measured: CaseResult) -> str:
    """``instructions per token: SME2 off 23,456, SME2 on 12,345``; empty if nothing was counted."""
    tokens, costs = measured.tokens or 0, measured.costs if measured.tokens else {}
    each = {arm: f"{cost.total.instructions / tokens:,.0f}" for arm, cost in costs.items()}
    return _by_arm("instructions per token", each)


def tokens_per_second(measured: CaseResult) -> str:
    """By the median process; empty where times say nothing, as on an emulator."""
    tokens, times = measured.tokens or 0, (measured.medians_ns or {}) if measured.tokens else {}
    each = {arm: f"{tokens * 1e9 / statistics.median(t):,.1f}" for arm, t in times.items() if t}
    return _by_arm("tokens per second", each)


def _by_arm(what: str, told: Mapping[Arm, str]) -> str:
    parts = ", ".join(f"SME2 {arm} {told[arm]}" for arm in SHOWN if arm in told)
    return f"{what}: {parts}" if parts else ""
