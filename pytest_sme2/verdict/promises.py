"""What a baseline promises to be compared, and what a run left open of it. Pure.

What differs between two baselines, in words.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping
from dataclasses import fields, replace

from pytest_sme2.export.variant import precision_of
from pytest_sme2.results import (
    Arm,
    Baseline,
    BaselineChange,
    BaselineFigures,
    CaseResult,
    Limits,
    Sample,
    StoredGeneration,
    Structure,
    Tolerance,
)
from pytest_sme2.system.wording import as_given, count
from pytest_sme2.verdict.judging import estimate_text
from pytest_sme2.verdict.limits import SCALARS, parse_fraction, parse_loss, parse_share
from pytest_sme2.verdict.numerics import changed
from pytest_sme2.verdict.stored_latency import PROVISIONAL_SESSIONS

SHARES = "share of "
# How far a tensor may lie from the accepted one, as a share of its root mean square. Another host
# draws other last digits and adds in another order. What is quantized rounds the other way then,
# and passes that on: half of the share of int8 was seen. So each model is also held to what its
# eager form answers, in floats, where such a difference stays small.
_SAME_INPUT = 1e-4
_SAME_OUTPUT = {
    "fp32": 1e-4,
    "fp16": 1e-2,
    "bf16": 0.1,
    "int8": 0.1,
    "int8_dynamic": 0.1,
    "int4": 0.1,
    "int4_channel": 0.1,
}
_SAME_PROGRAM = 1e-4
"""Of a program that was given as it is, so that it has the same bytes everywhere."""


def settings_of(measured: CaseResult) -> dict[str, str]:
    """What the figures of a case depend on besides its program and its inputs."""
    cpu = dict(measured.fingerprint.facts).get("cpu", "") if measured.emulated else ""
    return {"runner": measured.runner, **({"cpu": cpu} if cpu else {})}


def limits_for(variant: str, limits: Limits) -> Limits:
    """Those that concern a variant."""
    precision = precision_of(variant)

    def own(tolerances: Mapping[str, Tolerance]) -> dict[str, Tolerance]:
        return {name: of for name, of in tolerances.items() if name == precision}

    return replace(
        limits,
        tolerances=own(limits.tolerances),
        on_off_tolerances=own(limits.on_off_tolerances),
    )


def limit_facts(limits: Limits) -> Iterator[tuple[str, str]]:
    """Each limit that is set, by its name as in limits.toml."""
    for entry in fields(limits):
        value = getattr(limits, entry.name)
        if not isinstance(value, Mapping):
            yield from () if value is None else [(entry.name, limit_text(entry.name, value))]
            continue
        for name, of in value.items():
            if isinstance(of, float):
                yield f"{entry.name}.{name}", limit_text(entry.name, of)
                continue
            for part in fields(of):
                number = getattr(of, part.name)
                if number is not None:
                    yield f"{entry.name}.{name}.{part.name}", limit_text(entry.name, number)


def limit_text(name: str, value: float) -> str:
    """With all its digits, as ``limits.toml`` has it: ``0.01 %``, ``300000000``."""
    percent = name == "shares" or SCALARS.get(name) in (parse_fraction, parse_loss, parse_share)
    return f"{as_given(value)} %" if percent else f"{value:.12g}"


def tolerance_of_sample(name: str, variant: str) -> float:
    kind, precision = name.split()[0], precision_of(variant)
    if kind == "output":
        return _SAME_OUTPUT.get(precision, _SAME_PROGRAM)
    # The eager form is in float32, but for these two.
    halved = kind == "reference" and precision in ("fp16", "bf16")
    return _SAME_OUTPUT[precision] if halved else _SAME_INPUT


def same_sample(name: str, old: Sample, new: Sample, variant: str) -> bool:
    """Whether two tensors are the same one."""
    return not changed(old, new, tolerance_of_sample(name, variant))


def differences(baseline: Baseline, measured: CaseResult, limits: Limits | None) -> Iterator[str]:
    """What a case was not measured with as it was accepted; what changed first explains the rest.

    Nothing of a case of which nothing ran.
    """
    if not measured.structures:
        return
    now = {"weights": measured.weights, **settings_of(measured)}
    now |= {} if limits is None else _limits_by_name(limits_for(measured.variant, limits))
    accepted = {"weights": baseline.weights, **baseline.settings}
    accepted |= {} if baseline.limits is None else _limits_by_name(baseline.limits)
    yield from _other_samples(baseline, measured, "input")
    for name in {**accepted, **now}:
        old, new = accepted.get(name, "none"), now.get(name, "none")
        if old != new:
            yield f"{name}: {old} was accepted, and it is {new}."
    yield from _other_samples(baseline, measured, "reference", "output")


def _limits_by_name(limits: Limits) -> dict[str, str]:
    return {f"limit {name}": value for name, value in limit_facts(limits)}


def _other_samples(baseline: Baseline, measured: CaseResult, *kinds: str) -> Iterator[str]:
    for name in {**baseline.samples, **measured.samples}:
        if name.split()[0] not in kinds:
            continue
        old, new = baseline.samples.get(name), measured.samples.get(name)
        words = "it is new" if old is None else "it is gone"
        if old is not None and new is not None:
            words = changed(old, new, tolerance_of_sample(name, measured.variant))
        if words:
            yield f"{name} is not the accepted one: {words}."


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
