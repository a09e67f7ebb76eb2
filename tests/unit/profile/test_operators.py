"""Runs that are alike are sorted out once; the answer is that of sorting out every one."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from pytest_sme2.profile import operators as events
from pytest_sme2.profile.operators import distinct, select
from pytest_sme2.results import Columns
from pytest_sme2.trace.etdump import read_etdump
from tests.support import ETDUMPS
from tests.support.profiles import COVERAGE, columns_of, run_of

DUMPS = sorted([*ETDUMPS.glob("*.etdump"), *COVERAGE.glob("*.etdump")])
DELEGATE = [("Convolution (NHWC, F32) IGEMM #1", 700), ("Transpose (ND, X32) #1", 30)]
OTHER = [("Fully Connected (NC, F32) GEMM #1", 40), ("Softmax (NC, F32) #1", 5)]


def assert_same(columns: Columns, monkeypatch: pytest.MonkeyPatch) -> None:
    quick = select(columns)
    monkeypatch.setattr(events, "_alike", lambda columns: (0, 0))
    slow = select(columns)
    for name in ("execute", "role", "rows", "run", "call", "duration"):
        np.testing.assert_array_equal(getattr(quick, name), getattr(slow, name), err_msg=name)
        assert getattr(quick, name).dtype == getattr(slow, name).dtype


@pytest.mark.parametrize("path", DUMPS, ids=lambda path: path.stem)
def test_real_runs(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert_same(read_etdump(path), monkeypatch)


@pytest.mark.parametrize(
    ("runs", "alike"),
    [
        ([[DELEGATE, ("mean.out", 5)]] * 3, True),
        ([[DELEGATE, ("mean.out", 5)], [("mean.out", 5), DELEGATE]], False),
        ([[DELEGATE], [OTHER]], False),
        ([[DELEGATE], [DELEGATE, DELEGATE]], False),
        ([[DELEGATE]], False),
        ([[("mean.out", 0)], [("mean.out", 700)]], True),
    ],
)
def test_runs_that_are_alike_or_not(
    runs: list[list[object]], alike: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    columns = columns_of(*(run_of(calls) for calls in runs))  # type: ignore[arg-type]
    assert (events._alike(columns)[1] > 0) is alike
    assert_same(columns, monkeypatch)


@pytest.mark.parametrize("values", [[], [4], [1, 1, 3, 3, 3, 9], [5, 1, 5, 2], [2, 1]])
def test_distinct_values_are_those_of_numpy(values: list[int]) -> None:
    found, place = distinct(np.array(values, dtype=np.int64))
    expected, inverse = np.unique(values, return_inverse=True)
    assert found.tolist() == expected.tolist()
    assert place.tolist() == inverse.tolist()
