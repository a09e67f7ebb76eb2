"""Made-up records of a history."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import replace

from pytest_sme2.report.history import HistoryRecord, Value


def run(
    number: int,
    instructions: float | None = None,
    figures: Mapping[str, Value | float] | None = None,
    **facts: object,
) -> HistoryRecord:
    """The run of this number; each is of a commit of its own. A figure may lack its interval."""
    given = dict(figures or {})
    if instructions is not None:
        given["instructions (on)"] = round(instructions)
    known = HistoryRecord(
        case="toy-fp32",
        device="emulated",
        recorded=f"2026-{1 + number // 720:02}-{1 + number // 24 % 30:02}T{number % 24:02}:00:00Z",
        session=f"s{number}",
        commit=f"c{number:04}",
        figures={
            name: value if isinstance(value, tuple) else (value, None, None)
            for name, value in given.items()
        },
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
                figures={"latency (on)": (latency, latency * 0.998, latency * 1.002)},
                conditions={"kernel": "Linux 6.1", "governor": "performance"},
                versions={"executorch": "1.5.0" if number < count // 2 else "1.5.1"},
            )
        )
    return runs
