"""Which check a verdict rests on, and how a change is written."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from pytest_sme2.report.versus_baseline import (
    change_text,
    count_cases,
    deciding,
    effect,
    headline,
    interval_text,
    limit_text,
    summary,
    worst_first,
)
from pytest_sme2.results import Check, Outcome
from pytest_sme2.session.run_directory import read_record
from tests.support.records import toy_run

SLOWER = Check(
    "latency (on)", Outcome.REGRESSED, "", 10e6, 11.15e6, "ns", (1.102, 1.129), limit=0.02
)
OPERATORS = Check("operators (on)", Outcome.REGRESSED, "", 13, 16, "count", limit=13)
COST = Check("cost (on)", Outcome.PASS, "", 1_000_000, 1_000_000, "count", limit=1_000_500)


@pytest.mark.parametrize(
    ("check", "change", "limit", "words"),
    [
        (SLOWER, "+11.5 %", "2 %", "11.5 % slower, limit 2 %"),
        (OPERATORS, "+3", "", "operators (on) 13 -> 16"),
        (
            Check("cost (off)", Outcome.REGRESSED, "", 3.9e6, 108.7e6, "count", limit=3.902e6),
            "+2687.18 %",
            "0.0513 %",
            "28x more instructions with SME2 off",
        ),
        (
            Check("latency (on) against 1.4", Outcome.IMPROVED, "", 10e6, 8e6, "ns", limit=0.02),
            "-20.0 %",
            "2 %",
            "20 % faster than 1.4, limit 2 %",
        ),
        (
            Check("speedup", Outcome.REGRESSED, "", 2.0, 1.7, "ratio", (1.6, 1.8), limit=1.8),
            "-15.0 %",
            "1.80x",
            "speedup 2.00x -> 1.70x, limit 1.80x",
        ),
        (
            Check("share of CONV", Outcome.REGRESSED, "", 0.4, 0.5, "share", None, limit=0.45),
            "+10.0 points",
            "+5 points",
            "share of CONV +10.0 points, limit +5 points",
        ),
        (
            Check("peak memory (on)", Outcome.REGRESSED, "", 50e6, 60e6, "bytes", limit=55e6),
            "+20.0 %",
            "10 %",
            "20 % more memory, limit 10 %",
        ),
        (
            Check("peak memory (on)", Outcome.REGRESSED, "", None, 60e6, "bytes", limit=55e6),
            "-",
            "55.00 MB",
            "peak memory (on) 60.00 MB, limit 55.00 MB",
        ),
        (
            Check("evidence", Outcome.INVALID, "No kernel ran. Look.", new=0, unit="count"),
            "-",
            "",
            "evidence INVALID: No kernel ran",
        ),
    ],
)
def test_a_check_in_a_few_words(check: Check, change: str, limit: str, words: str) -> None:
    assert (change_text(check), limit_text(check), effect(check)) == (change, limit, words)


def test_the_interval_is_that_of_the_change() -> None:
    assert interval_text(SLOWER) == "[+10.2, +12.9]"
    speedup = Check("speedup", Outcome.PASS, "", 2.0, 1.9, "ratio", (1.8, 2.0))
    assert interval_text(speedup) == "[-10.0, +0.0]"
    assert interval_text(OPERATORS) == ""


def test_a_verdict_rests_on_the_worst_check_that_says_most() -> None:
    off = replace(SLOWER, metric="latency (off)")
    assert deciding([OPERATORS, COST, off, SLOWER]) is SLOWER
    assert deciding([replace(OPERATORS, verdict=Outcome.PASS), COST]) is COST
    invalid = Check("evidence", Outcome.INVALID, "")
    assert deciding([SLOWER, invalid]) is invalid
    assert deciding([]) is None


def test_the_headline_is_the_largest_effect_with_the_place_that_is_known() -> None:
    cost = Check("cost (on)", Outcome.REGRESSED, "", 3.9e6, 108.7e6, "count", limit=3.902e6)
    off = replace(cost, metric="cost (off)", new=12e6)
    flip = replace(OPERATORS, where="`x.flip(-1)` at net.py:8")
    assert headline([flip, off, cost]) == ("28x more instructions", flip.where)
    wrong = Check(
        "outputs against off", Outcome.FAILED, "", new=0.5, unit="share",
        details=("output 0 (float32, on): largest error 3",),
    )  # fmt: skip
    assert headline([flip, cost, wrong])[0] == "wrong outputs against off: largest error 3"
    # What is only suspected does not stand before what is certain.
    suspected = replace(SLOWER, verdict=Outcome.SUSPECTED)
    assert deciding([suspected, flip]) is flip
    assert headline([COST]) == ("cost (on) 1.000 Minst -> 1.000 Minst, limit 0.05 %", "")


def test_more_failures_are_counted() -> None:
    assert summary([COST, SLOWER]) == "11.5 % slower, limit 2 %"
    assert summary([OPERATORS, SLOWER]).endswith("; and 1 more")
    assert summary([]) == ""


def test_cases_are_counted_and_failing_ones_come_first(tmp_path: Path) -> None:
    first, second, third = (read_record(folder) for folder in toy_run(tmp_path))
    passed = replace(first, checks=(COST,))
    failed = replace(second, checks=(COST, SLOWER))
    records = [passed, third, failed]
    assert str(count_cases(records)) == "1 failed, 1 passed, 1 not checked"
    assert [record.id for record in worst_first(records)] == [failed.id, passed.id, third.id]
    assert str(count_cases([])) == "no cases"
    worse = replace(first, checks=(replace(SLOWER, new=20e6),))
    assert worst_first([failed, worse]) == [worse, failed]
