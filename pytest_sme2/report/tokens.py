"""What a token costs, where a model says how many of them an inference takes. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Mapping

from pytest_sme2.results import Arm, CaseResult


def instructions_per_token(measured: CaseResult) -> str:
    """``instructions per token: SME2 off 23,456, SME2 on 12,345``; empty if nothing was counted."""
    tokens = measured.tokens or 0
    costs = {arm: cost.total.instructions for arm, cost in measured.costs.items()}
    return _text("instructions per token", costs, "{:,.0f}", 1 / tokens) if tokens else ""


def tokens_per_second(measured: CaseResult) -> str:
    """By the median process; empty where times say nothing, as on an emulator."""
    rates = {
        arm: 1e9 / statistics.median(values)
        for arm, values in (measured.medians_ns or {}).items()
        if values
    }
    tokens = measured.tokens or 0
    return _text("tokens per second", rates, "{:,.1f}", tokens) if tokens else ""


def _text(what: str, values: Mapping[Arm, float], form: str, factor: float) -> str:
    parts = [
        f"SME2 {arm} {form.format(values[arm] * factor)}"
        for arm in (Arm.OFF, Arm.ON)
        if arm in values
    ]
    return f"{what}: {', '.join(parts)}" if parts else ""
