"""How well a timed case was measured: its noise, the smallest difference it could show. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from pytest_sme2.report.text import percent
from pytest_sme2.session.run_directory import CaseRecord
from pytest_sme2.timing.stats import robust_spread

# As many as the statistics of a pair ask for.
_FEWEST_PROCESSES = 3


@dataclass(frozen=True)
class Noise:
    """Both are fractions: 0.01 is 1 %."""

    noise_floor: float
    """The relative spread of process medians within an arm."""
    detectable: float | None
    """The smallest difference between the arms that would be seen 4 times of 5."""

    def __str__(self) -> str:
        text = f"noise floor {percent(self.noise_floor)}"
        if self.detectable is None:
            return text
        return f"{text}, smallest detectable difference {percent(self.detectable)}"


def noise_of(record: CaseRecord) -> Noise | None:
    """None where nothing was timed, or too little to tell."""
    measured = record.measured
    if measured.emulated:
        return None
    pairs = record.measurement
    if pairs is not None:
        return None if pairs.noise_floor is None else Noise(pairs.noise_floor, pairs.detectable)
    # Without pairs, such as on a CPU without SME2, one arm's processes still show the noise.
    spreads = [
        robust_spread([math.log(value) for value in values])
        for values in (measured.medians_ns or {}).values()
        if len(values) >= _FEWEST_PROCESSES
    ]
    return Noise(max(spreads), None) if spreads else None


def overall(found: Mapping[str, Noise]) -> str:
    """The precision of several cases in one sentence: the range, and who is noisiest."""
    floors = {name: entry.noise_floor for name, entry in found.items()}
    text = f"noise floor {_range(list(floors.values()))}"
    seen = [entry.detectable for entry in found.values() if entry.detectable is not None]
    if seen:
        text += f", smallest detectable difference {_range(seen)}"
    if len(found) > 1:
        text += f"; the noisiest is {max(floors, key=lambda name: floors[name])}"
    return text


def _range(values: list[float]) -> str:
    low, high = percent(min(values)), percent(max(values))
    return low if low == high else f"{low} to {high}"
