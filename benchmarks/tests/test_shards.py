"""What the zoo over several shards is judged by."""

from __future__ import annotations

import pytest

from benchmarks.shards import Round, lost_and_twice
from pytest_sme2.session.shard import SCHEMA, RanTest, Shard, write_shard


def test_balance_is_the_slowest_over_the_usual():
    assert Round((), (10.0, 10.0, 10.0, 10.0), ()).imbalance == 1
    assert Round((), (25.0, 5.0, 5.0, 5.0), ()).imbalance == pytest.approx(2.5)


def test_lost_tests_and_tests_that_ran_twice_are_counted(tmp_path):
    ran = RanTest("passed")
    found = ("a", "b", "c")
    write_shard(tmp_path / "1", Shard(SCHEMA, 0, {"a": ran}, found, 1, 2))
    write_shard(tmp_path / "2", Shard(SCHEMA, 0, {"a": ran, "b": ran}, found, 2, 2))
    assert lost_and_twice([tmp_path / "1", tmp_path / "2"]) == (1, 1)
