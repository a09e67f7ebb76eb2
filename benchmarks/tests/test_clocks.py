"""What `benchmarks.clocks` simulates, held."""

from __future__ import annotations

import pytest

from benchmarks import clocks


@pytest.mark.parametrize("kind", clocks.CLOCKS)
@pytest.mark.parametrize("milliseconds", clocks.MILLISECONDS)
@pytest.mark.parametrize(("turns", "error"), [(True, 0.01), (False, 0.05)])
def test_a_clock_that_moves_does_not_change_a_ratio(kind, milliseconds, turns, error):
    """One after the other, it was 1.78 to 4.43 where equal runs took unequal time."""
    assert clocks.ratio(kind, milliseconds, turns) == pytest.approx(clocks.TRUTH, rel=error)
