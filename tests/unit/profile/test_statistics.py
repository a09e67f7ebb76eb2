from __future__ import annotations

import statistics

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_sme2.profile.build import outliers, robust_stats, robust_stats_of_each


@given(
    st.integers(1, 12).flatmap(
        lambda size: st.lists(
            st.lists(st.integers(0, 10**9), min_size=size, max_size=size), min_size=1, max_size=5
        )
    )
)
def test_many_series_at_once_are_those_alone(rows: list[list[int]]) -> None:
    found = robust_stats_of_each(rows)
    assert found == [robust_stats(row) for row in rows]
    assert [stats.median for stats in found] == [statistics.median(row) for row in rows]
    assert [stats.outliers for stats in found] == [
        int(outliers(np.array(row, dtype=np.float64)).sum()) for row in rows
    ]


def test_no_series_has_no_statistics() -> None:
    assert robust_stats_of_each([]) == []


def test_robust_stats_of_a_known_series() -> None:
    stats = robust_stats([*range(1, 20), 1_000])
    assert (stats.count, stats.median, stats.minimum, stats.maximum) == (20, 10.5, 1, 1_000)
    assert stats.mad == 5
    assert stats.trimmed_mean == pytest.approx(np.mean(range(3, 19)))
    assert stats.mean == pytest.approx(59.5)
    assert (stats.p25, stats.p75) == (5.75, 15.25)
    assert stats.standard_deviation == pytest.approx(np.std([*range(1, 20), 1_000], ddof=1))
    assert stats.cv == pytest.approx(stats.standard_deviation / stats.mean)
    assert stats.outliers == 1


def test_robust_stats_of_one_value_and_of_none() -> None:
    stats = robust_stats([7])
    assert (stats.median, stats.mad, stats.standard_deviation, stats.cv) == (7, 0, 0, 0)
    assert robust_stats([0, 0]).cv == 0
    with pytest.raises(ValueError, match="empty"):
        robust_stats([])


@given(st.lists(st.floats(1, 1e9), min_size=1, max_size=50))
def test_robust_stats_are_ordered(values: list[float]) -> None:
    stats = robust_stats(values)
    order = [stats.minimum, stats.p5, stats.p25, stats.median, stats.p75, stats.p95, stats.maximum]
    assert order == sorted(order)
    assert stats.minimum * (1 - 1e-9) <= stats.trimmed_mean <= stats.maximum * (1 + 1e-9)
    assert 0 <= stats.outliers < max(1, len(values))


def test_outliers_where_most_values_are_equal() -> None:
    assert outliers(np.array([5.0] * 20 + [50.0])).tolist() == [False] * 20 + [True]
    assert not outliers(np.array([5.0] * 5)).any()
    assert not outliers(np.array([1.0, 1.0, 1.0, 900.0])).any()
