"""What differs between two baselines, in words."""

from __future__ import annotations

import statistics
from collections.abc import Iterator

from pytest_sme2.results import (
    Arm,
    Baseline,
    BaselineChange,
    BaselineFigures,
    StoredGeneration,
    Structure,
)
from pytest_sme2.system.wording import count
from pytest_sme2.verdict.judging import estimate_text
from pytest_sme2.verdict.promises import limit_facts
from pytest_sme2.verdict.stored_latency import PROVISIONAL_SESSIONS


def changes(old: Baseline | None, new: Baseline) -> tuple[BaselineChange, ...]:
    """What differs between two baselines, one entry per value, in words."""
    before, after = {} if old is None else dict(_facts(old)), dict(_facts(new))
    if old is None or old.schema == new.schema:
        before |= {} if old is None else dict(_conditions(old))
        after |= dict(_conditions(new))
    else:
        # An older file says nothing of them, so none of them has changed.
        after["conditions"] = "stored from now on"
    return tuple(
        BaselineChange(name, before.get(name, "none"), after.get(name, "none"))
        for name in dict.fromkeys((*before, *after))
        if before.get(name) != after.get(name)
    )


def _facts(baseline: Baseline) -> Iterator[tuple[str, str]]:
    """Everything a baseline says: names and short texts."""
    for arm in Arm:
        if (structure := baseline.structures.get(arm)) is not None:
            yield from _structure_facts(structure, arm)
        if (census := baseline.kernels.get(arm)) is not None:
            # A place in a library is meaningless, and moves with every build.
            named = (kernel for kernel in census.kernels if kernel.named)
            yield from ((f"kernel {kernel.name} ({arm})", "runs") for kernel in named)
    for arm, cost in baseline.costs.items():
        yield f"instructions ({arm})", f"{cost.total.instructions:,}"
        yield f"outer products ({arm})", f"{cost.total.outer_products:,}"
        yield f"counted on ({arm})", cost.cpu
    for threads in sorted({session.threads for session in baseline.sessions}):
        yield from _latency_facts(baseline, threads)
    for threads, figures in sorted(baseline.figures.items()):
        yield from _figure_facts(figures, count(threads, "thread"))
    if (stored := baseline.frontier) is not None:
        best = ", ".join(f"{arm} {count(of, 'thread')}" for arm, of in stored.best.items())
        yield "best against best", f"{estimate_text(stored.speedup)} ({best})"
    if baseline.generation is not None:
        yield from _generation_facts(baseline.generation)
    if baseline.pte_bytes is not None:
        yield "program size", f"{baseline.pte_bytes} bytes"
    yield "weights", baseline.weights
    yield from ((f"version of {name}", version) for name, version in baseline.versions.items())


def _conditions(baseline: Baseline) -> Iterator[tuple[str, str]]:
    """Under which its figures were accepted."""
    yield from sorted(baseline.settings.items())
    for name, sample in baseline.samples.items():
        size = f"{sample.kind}, root mean square {sample.scale:.4g}"
        yield name, f"{sample.sha256} ({size})"
    if baseline.limits is not None:
        yield from (("limit " + name, said) for name, said in limit_facts(baseline.limits))


def _structure_facts(structure: Structure, arm: Arm) -> Iterator[tuple[str, str]]:
    if arm is not Arm.OFF:
        name = "SME2 coverage" if arm is Arm.ON else f"coverage ({arm})"
        yield name, f"{structure.sme2} of {count(structure.matrix, 'matrix operator')}"
    for entry in structure.operators:
        yield f"operator {entry.name} ({arm}, {entry.executor})", str(entry.count)


def _generation_facts(stored: StoredGeneration) -> Iterator[tuple[str, str]]:
    yield "generation", f"{stored.prompt_tokens} tokens and {stored.new_tokens} more"
    for arm, costs in stored.costs.items():
        yield f"instructions of the prompt ({arm})", f"{costs.instructions[0]:,}"
        yield f"instructions of new tokens ({arm})", f"{sum(costs.instructions[1:]):,}"
    for phase, speedup in stored.speedups.items():
        yield f"speedup of {phase}", estimate_text(speedup)


def _figure_facts(figures: BaselineFigures, at: str) -> Iterator[tuple[str, str]]:
    if figures.speedup is not None:
        yield f"speedup ({at})", estimate_text(figures.speedup)
    for arm, shares in figures.shares.items():
        for key, share in shares.items():
            yield f"share of {key} ({arm}, {at})", f"{share.value:.1%}"
    for arm, peak in figures.peak_bytes.items():
        yield f"peak memory ({arm}, {at})", f"{peak / 1e6:.1f} MB"


def _latency_facts(baseline: Baseline, threads: int) -> Iterator[tuple[str, str]]:
    current, at = baseline.current(threads), count(threads, "thread")
    for arm in Arm:
        medians = [value for entry in current for value in entry.medians_ns.get(arm, ())]
        if medians:
            yield f"latency ({arm}, {at})", f"{statistics.median(medians) / 1e6:.3f} ms"
    missing = len(current) < PROVISIONAL_SESSIONS
    note = f" (provisional until {PROVISIONAL_SESSIONS})" if missing else ""
    yield f"sessions ({at})", f"{len(current)}{note}"
