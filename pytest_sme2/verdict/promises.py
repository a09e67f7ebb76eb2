"""What a baseline promises to be compared, and what a run left open of it. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields, replace

from pytest_sme2.export.variant import precision_of
from pytest_sme2.results import CaseResult, Limits, Sample, Tolerance
from pytest_sme2.verdict.limits import TOLERANCES

SHARES = "share of "
DIGEST = 12
"""Of a sample's SHA-256, the characters that are stored."""
_SAME_INPUT = 1e-4
"""Of the largest value: random numbers differ in their last digits from host to host."""
_SAME_OUTPUT = 0.1
"""The same where the precision has no tolerance of its own."""


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
            yield from () if value is None else [(entry.name, f"{value:g}")]
            continue
        for name, of in value.items():
            for part in fields(of):
                number = getattr(of, part.name)
                if number is not None:
                    yield f"{entry.name}.{name}.{part.name}", f"{number:g}"


def same_sample(name: str, old: Sample, new: Sample, variant: str) -> bool:
    """Whether two tensors are the same one; numbers may differ by the accepted one's tolerance."""
    if old.sha256[:DIGEST] == new.sha256[:DIGEST]:
        return True
    tolerance = TOLERANCES.get(precision_of(variant) or "")
    output = (tolerance and tolerance.max_rel) or _SAME_OUTPUT
    near = (_SAME_INPUT if name.startswith("input") else output) * old.peak
    numbers = zip(old.numbers, new.numbers, strict=False)
    alike = bool(old.numbers) and len(old.numbers) == len(new.numbers)
    return alike and all(abs(before - now) <= near for before, now in numbers)
