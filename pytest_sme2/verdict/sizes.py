"""Peak memory and the size of the program."""

from __future__ import annotations

import math

from pytest_sme2.results import Arm, Baseline, CaseResult, Check, Limits, Outcome
from pytest_sme2.verdict.baselines import differing_facts
from pytest_sme2.verdict.judging import CREATE_HINT, UPDATE_HINT, judge


def check_memory(
    measured: CaseResult, baseline: Baseline | None, limits: Limits, arm: Arm | None = None
) -> Check:
    """The peak resident set: against the most allowed, then against the baseline."""
    arm = measured.arm if arm is None else arm
    metric = f"peak memory ({arm})"
    untimed = _untimed_memory(metric, measured)
    if untimed is not None:
        return untimed
    new = (measured.peak_bytes or {}).get(arm)
    if new is None:
        return Check(metric, Outcome.INVALID, "It was not measured.")
    most = limits.max_memory_bytes
    if most is not None and new > most:
        return Check(
            metric,
            Outcome.FAILED if baseline is None else Outcome.REGRESSED,
            f"{new / 1e6:.1f} MB is more than the {most / 1e6:.1f} MB allowed.",
            new=new,
            unit="bytes",
            limit=most,
        )
    old = None if baseline is None else baseline.at(measured.threads).peak_bytes.get(arm)
    if baseline is not None and old is not None:
        differing = differing_facts(baseline.fingerprint, measured.fingerprint)
        if differing:
            message = f"The baseline is of another target ({'; '.join(differing)})."
            return Check(metric, Outcome.INVALID, message, new=new, unit="bytes")
    if old is None and most is not None:
        message = f"{new / 1e6:.1f} MB of the {most / 1e6:.1f} MB allowed."
        return Check(metric, Outcome.PASS, message, new=new, unit="bytes", limit=most)
    return _growth(metric, new, old, limits.max_memory_growth)


def _untimed_memory(metric: str, measured: CaseResult) -> Check | None:
    if not measured.emulated:
        return None
    return Check(
        metric,
        Outcome.INVALID,
        "An emulated process's memory holds the emulator's own and is never compared.",
    )


def check_size(measured: CaseResult, baseline: Baseline | None, limits: Limits) -> Check:
    """The size of the program's file."""
    metric = "program size"
    if measured.pte_bytes is None:
        return Check(metric, Outcome.INVALID, "It was not measured.")
    old = None if baseline is None else baseline.pte_bytes
    return _growth(metric, measured.pte_bytes, old, limits.max_size_growth)


def _growth(metric: str, new: int, old: int | None, limit: float) -> Check:
    """A size against the baseline's; exact, so there is no interval."""
    if old is None:
        return Check(
            metric, Outcome.NO_BASELINE, f"No baseline. {CREATE_HINT}", new=new, unit="bytes"
        )
    ratio = new / old if old else math.inf
    verdict = judge(ratio, ratio, limit)
    change = "the same as in" if new == old else f"{ratio - 1:+.1%} against"
    hint = f" {UPDATE_HINT}" if verdict is Outcome.REGRESSED else ""
    return Check(
        metric,
        verdict,
        f"{change} the baseline; {limit:.1%} more is allowed.{hint}",
        old=old,
        new=new,
        unit="bytes",
        limit=old * (1 + limit),
    )
