"""What differs between two baselines, in words."""

from __future__ import annotations

import statistics

from pytest_sme2.results import (
    Arm,
    Baseline,
    BaselineChange,
    BaselineFigures,
    StoredCost,
    StoredGeneration,
    Structure,
)
from pytest_sme2.system.wording import count
from pytest_sme2.verdict.judging import estimate_text
from pytest_sme2.verdict.stored_latency import PROVISIONAL_SESSIONS


def changes(old: Baseline | None, new: Baseline) -> tuple[BaselineChange, ...]:
    """What differs between two baselines, one entry per value, in words."""
    before = {} if old is None else _facts(old)
    after = _facts(new)
    return tuple(
        BaselineChange(name, before.get(name, "none"), after.get(name, "none"))
        for name in dict.fromkeys((*before, *after))
        if before.get(name) != after.get(name)
    )


def _facts(baseline: Baseline) -> dict[str, str]:
    """Everything a baseline says, as a flat table of short texts."""
    facts: dict[str, str] = {}
    for arm in Arm:
        structure = baseline.structures.get(arm)
        if structure is not None:
            facts |= _structure_facts(structure, arm)
        census = baseline.kernels.get(arm)
        if census is not None:
            # A place in a library is meaningless, and moves with every build.
            named = (kernel for kernel in census.kernels if kernel.named)
            facts |= {f"kernel {kernel.name} ({arm})": "runs" for kernel in named}
    for arm, cost in baseline.costs.items():
        facts |= _cost_facts(cost, arm)
    for threads in sorted({session.threads for session in baseline.sessions}):
        facts |= _latency_facts(baseline, threads)
    for threads, figures in sorted(baseline.figures.items()):
        facts |= _figure_facts(figures, threads)
    if baseline.frontier is not None:
        stored = baseline.frontier
        best = ", ".join(f"{arm} {count(of, 'thread')}" for arm, of in stored.best.items())
        facts["best against best"] = f"{estimate_text(stored.speedup)} ({best})"
    if baseline.generation is not None:
        facts |= _generation_facts(baseline.generation)
    if baseline.pte_bytes is not None:
        facts["program size"] = f"{baseline.pte_bytes} bytes"
    facts["weights"] = baseline.weights
    facts |= {f"version of {name}": version for name, version in baseline.versions.items()}
    return facts


def _structure_facts(structure: Structure, arm: Arm) -> dict[str, str]:
    facts = {}
    if arm is not Arm.OFF:
        name = "SME2 coverage" if arm is Arm.ON else f"coverage ({arm})"
        facts[name] = f"{structure.sme2} of {count(structure.matrix, 'matrix operator')}"
    for entry in structure.operators:
        name = f"operator {entry.name} ({arm}, {entry.executor})"
        facts[name] = str(entry.count)
    return facts


def _cost_facts(cost: StoredCost, arm: Arm) -> dict[str, str]:
    return {
        f"instructions ({arm})": f"{cost.total.instructions:,}",
        f"outer products ({arm})": f"{cost.total.outer_products:,}",
        f"counted on ({arm})": cost.cpu,
    }


def _generation_facts(stored: StoredGeneration) -> dict[str, str]:
    facts = {"generation": f"{stored.prompt_tokens} tokens and {stored.new_tokens} more"}
    for arm, costs in stored.costs.items():
        facts[f"instructions of the prompt ({arm})"] = f"{costs.instructions[0]:,}"
        facts[f"instructions of new tokens ({arm})"] = f"{sum(costs.instructions[1:]):,}"
    for phase, speedup in stored.speedups.items():
        facts[f"speedup of {phase}"] = estimate_text(speedup)
    return facts


def _figure_facts(figures: BaselineFigures, threads: int) -> dict[str, str]:
    at = count(threads, "thread")
    facts = {}
    if figures.speedup is not None:
        facts[f"speedup ({at})"] = estimate_text(figures.speedup)
    for arm, shares in figures.shares.items():
        facts |= {f"share of {key} ({arm}, {at})": f"{s.value:.1%}" for key, s in shares.items()}
    for arm, peak in figures.peak_bytes.items():
        facts[f"peak memory ({arm}, {at})"] = f"{peak / 1e6:.1f} MB"
    return facts


def _latency_facts(baseline: Baseline, threads: int) -> dict[str, str]:
    facts = {}
    current = baseline.current(threads)
    for arm in Arm:
        medians = [value for entry in current for value in entry.medians_ns.get(arm, ())]
        if medians:
            name = f"latency ({arm}, {count(threads, 'thread')})"
            facts[name] = f"{statistics.median(medians) / 1e6:.3f} ms"
    sessions = f"{len(current)}"
    if len(current) < PROVISIONAL_SESSIONS:
        sessions += f" (provisional until {PROVISIONAL_SESSIONS})"
    facts[f"sessions ({count(threads, 'thread')})"] = sessions
    return facts
