"""The comment for a pull request."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from pytest_sme2.report.comment import MOST_CASES, comment_json, pytorch_benchmark
from pytest_sme2.results import CaseResult, Check, Outcome
from pytest_sme2.session.run_directory import CaseRecord, read_record
from tests.support.gate_examples import emulated, measured
from tests.support.records import stored_dumps, toy_run, write_case

SLOWER = Check(
    "latency (on)", Outcome.REGRESSED, "11.5 % slower.", 10e6, 11.15e6, "ns", (1.102, 1.129), 0.02,
    where="`x.flip(-1)` at net.py:8",
)  # fmt: skip
SAME = Check("latency (on)", Outcome.PASS, "The same.", 10e6, 10e6, "ns", (0.99, 1.01), 0.02)


def told(records: Sequence[CaseRecord]) -> Any:
    return json.loads(comment_json(records))


def test_the_worst_case_comes_first(tmp_path: Path) -> None:
    found = [read_record(folder) for folder in toy_run(tmp_path)]
    found = [replace(found[0], checks=(SAME,)), replace(found[1], checks=(SLOWER,)), found[2]]
    document = told(found)
    assert document["counts"] == {"failed": 1, "warned": 0, "passed": 1, "not checked": 1}
    assert document["worst"] == {
        "effect": "11.5 % slower, limit 2 %", "place": "x.flip(-1) at net.py:8", "case": "toy-fp32"
    }  # fmt: skip
    assert document["rows"][0] == {
        "case": "toy-fp32", "check": "latency (on)", "baseline": "10.000 ms", "now": "11.150 ms",
        "change": "+11.5 %", "interval": "[+10.2, +12.9]", "limit": "2 %", "verdict": "REGRESSED",
        "state": "failed",
    }  # fmt: skip
    assert [row["state"] for row in document["rows"][1:]] == ["passed", "unknown"]
    assert document["failures"] == [
        {
            "case": "toy-fp32", "check": "latency", "place": "x.flip(-1) at net.py:8",
            "message": "11.5 % slower.",
        }
    ]  # fmt: skip


def test_what_passed_needs_no_more_words(tmp_path: Path) -> None:
    found = [replace(read_record(folder), checks=(SAME,)) for folder in toy_run(tmp_path)]
    document = told(found)
    assert document["counts"]["passed"] == len(found)
    assert (document["worst"], document["failures"]) == (None, [])


def test_an_emulated_run_speaks_of_cost_and_not_of_time(tmp_path: Path) -> None:
    cost = Check("cost (on)", Outcome.PASS, "The same.", 742_000, 742_000, "count", None, 742_371)
    found = [
        replace(read_record(folder), checks=(cost,)) for folder in toy_run(tmp_path, emulated=True)
    ]
    document = told(found)
    row = document["rows"][0]
    assert (row["baseline"], row["change"], row["limit"]) == ("0.742 Minst", "0.00 %", "0.05 %")
    assert " ms" not in json.dumps(document)
    assert document["emulated"] is True


def test_many_cases_stay_a_small_document(tmp_path: Path) -> None:
    one = read_record(write_case(tmp_path, "net", "fp16", stored_dumps("toy_fp16")))
    document = told(
        [
            replace(one, checks=(replace(SLOWER, metric=f"latency {number}"),))
            for number in range(30)
        ]
    )
    assert len(document["rows"]) == MOST_CASES
    assert (len(document["failures"]), document["more_failures"]) == (5, 25)
    assert told([])["rows"] == []


def read(form: Callable[[Sequence[CaseRecord]], str], *results: CaseResult) -> Any:
    return json.loads(form([CaseRecord(2, "case", each, None, (), {}) for each in results]))


def test_pytorchs_database() -> None:
    """As its schema has it: records with these parts, and text in all that is extra."""
    entries = read(pytorch_benchmark, measured(), emulated())
    for entry in entries:
        assert set(entry) == {"benchmark", "model", "metric", "runners", "dependencies"}
        assert set(entry["metric"]) == {"name", "benchmark_values", "target_value", "extra_info"}
        assert all(isinstance(value, int | float) for value in entry["metric"]["benchmark_values"])
        parts = (entry["benchmark"], entry["metric"], *entry["runners"])
        extra = [value for part in parts for value in part["extra_info"].values()]
        assert all(isinstance(value, str) for value in extra)
        assert set(entry["benchmark"]) == {"name", "mode", "dtype", "extra_info"}
        assert set(entry["model"]) == {"name", "type", "backend"}
    (latency,) = (one for one in entries if one["metric"]["name"] == "latency (off) (ms)")
    assert latency["metric"]["benchmark_values"] == [20]
    low, high = (float(latency["metric"]["extra_info"][end]) for end in ("low", "high"))
    assert low < 20 < high
    times = {one["benchmark"]["extra_info"]["emulated"] for one in entries if "(ms)" in str(one)}
    assert times == {"false"}
