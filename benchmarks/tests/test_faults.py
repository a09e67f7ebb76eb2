"""A few trials of each kind of fault; the benchmark itself counts many."""

from __future__ import annotations

import pytest

from benchmarks.faults import NAMES, run_trials
from tests.support.phones import start_lab

# What each fault may lead to; a result where the retries got through.
OUTCOMES = {
    "adbd": {"result"},
    "server": {"result"},
    "push": {"result"},
    "storage": {"result", "TargetError", "RunError"},
    "runner": {"RunError", "result"},
    "hang": {"RunError", "result"},
    "interrupt": {"interrupted", "result"},
}


@pytest.mark.parametrize("fault", NAMES)
def test_trials_end_clean(fault: str) -> None:
    start_lab().close()
    endings = run_trials([fault], 2, seed=7)[fault]
    assert [ending.problems for ending in endings] == [(), ()]
    assert {ending.outcome for ending in endings} <= OUTCOMES[fault]
