"""Made-up records of a history."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import replace

from pytest_sme2.report.history import HistoryRecord
from pytest_sme2.results import Arm


def run(number: int, instructions: float | None = None, **facts: object) -> HistoryRecord:
    """The run of this number; each is of a commit of its own."""
    known = HistoryRecord(
        schema=1,
        case="toy-fp32",
        device="emulated",
        recorded=f"2026-{1 + number // 720:02}-{1 + number // 24 % 30:02}T{number % 24:02}:00:00Z",
        session=f"s{number}",
        commit=f"c{number:04}",
        instructions={} if instructions is None else {Arm.ON: round(instructions)},
    )
    return replace(known, **facts)  # type: ignore[arg-type]


def timed(
    count: int, planted: Mapping[int, float], spread: float, seed: int
) -> list[HistoryRecord]:
    """Runs on hardware whose latency is multiplied from each planted run on."""
    chance = random.Random(seed)
    runs, level = [], 10.0
    for number in range(count):
        level *= planted.get(number, 1.0)
        latency = level * (1 + chance.gauss(0, spread))
        runs.append(
            run(
                number,
                device="linux-12ab",
                latency_ms={Arm.ON: latency},
                latency_interval_ms={Arm.ON: (latency * 0.998, latency * 1.002)},
                conditions={"kernel": "Linux 6.1", "governor": "performance"},
                versions={"executorch": "1.5.0" if number < count // 2 else "1.5.1"},
            )
        )
    return runs
