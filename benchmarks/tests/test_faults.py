"""A few trials of each kind of fault; the benchmark itself counts many."""

from __future__ import annotations

import pytest

from benchmarks.faults import FAULTS, run_trials
from tests.support.phones import start_lab

# What each fault may lead to; a result where the retries got through.
OUTCOMES = {
    "adbd": {"result"},
    "server": {"result"},
    "push": {"result"},
    "storage": {"result", "TargetError", "RunError"},
    "runner": {"RunError", "result"},
    "hang": {"RunError", "result"},
    "wiped": {"result", "TargetError", "RunError"},
    "capped": {"result"},
    "moving": {"result"},
    "maker": {"result"},
    "interrupt": {"interrupted", "result"},
}


@pytest.mark.parametrize("fault", FAULTS)
def test_trials_end_clean(fault: str) -> None:
    start_lab().close()
    (ending,) = run_trials(fault, 1, seed=7)
    assert ending.problems == ()
    assert ending.outcome in OUTCOMES[fault]
