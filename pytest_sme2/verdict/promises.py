"""What a baseline promises to be compared, and what a run left open of it. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields, replace

from pytest_sme2.export.variant import precision_of
from pytest_sme2.results import Baseline, CaseResult, Limits, Sample, Tolerance
from pytest_sme2.system.wording import as_given
from pytest_sme2.verdict.limits import SCALARS, parse_fraction, parse_loss, parse_share
from pytest_sme2.verdict.numerics import changed

SHARES = "share of "
# How far a tensor may lie from the accepted one, as a share of its root mean square. Another host
# draws other last digits and adds in another order. What is quantized rounds the other way then,
# and passes that on: half of the share of int8 was seen. So each model is also held to what its
# eager form answers, in floats, where such a difference stays small.
_SAME_INPUT = 1e-4
_SAME_OUTPUT = {
    "fp32": 1e-4,
    "fp16": 1e-2,
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
    # The eager form is in floats, of half precision for fp16 alone.
    return _SAME_OUTPUT["fp16"] if kind == "reference" and precision == "fp16" else _SAME_INPUT


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
