"""The trace in Perfetto's own trace processor: what its viewer would show."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from pytest_sme2.report.perfetto import Track, trace_document
from pytest_sme2.report.writing import write_case
from pytest_sme2.results import Category
from pytest_sme2.session.run_directory import read_record
from pytest_sme2.trace.etdump import read_etdump
from tests.support import ETDUMPS
from tests.support.profiles import columns_of, run_of
from tests.support.records import HOSTILE, toy_run
from tests.support.trace_processor import find_trace_processor, query_trace

SLICES = """
    SELECT slice.name, category, slice.ts, slice.dur, depth, slice.parent_id, slice.id, pid,
           EXTRACT_ARG(slice.arg_set_id, 'args.sme2') AS sme2,
           EXTRACT_ARG(slice.arg_set_id, 'args.executor') AS executor
    FROM slice JOIN thread_track ON slice.track_id = thread_track.id
    JOIN thread USING (utid) JOIN process USING (upid) ORDER BY slice.id
"""
# What it could not make sense of while it read the file.
PROBLEMS = "SELECT name, value FROM stats WHERE severity IN ('error', 'data_loss') AND value > 0"
PROCESSES = "SELECT name, pid FROM process WHERE pid > 0 ORDER BY pid"


@pytest.fixture(scope="module")
def processor() -> Path:
    return find_trace_processor()


def test_both_arms_with_all_their_operators(processor: Path, tmp_path: Path) -> None:
    folder = toy_run(tmp_path)[0]
    write_case(folder, read_record(folder))
    trace = folder / "trace.json"
    slices, problems, processes = query_trace(processor, trace, SLICES, PROBLEMS, PROCESSES)
    assert problems == []
    assert [row["name"] for row in processes] == ["toy-fp16, SME2 off", "toy-fp16, SME2 on"]
    written = [
        event for event in json.loads(trace.read_text())["traceEvents"] if event["ph"] == "X"
    ]
    key = Counter((event["pid"], event["cat"], event["name"]) for event in written)
    assert Counter((row["pid"], row["category"], row["name"]) for row in slices) == key
    # Microseconds with a fraction in the file are whole nanoseconds there.
    assert sum(row["dur"] for row in slices) == pytest.approx(
        sum(event["dur"] for event in written) * 1e3, rel=1e-6
    )
    # Runs enclose calls, and calls operators.
    by_id = {row["id"]: row for row in slices}
    for row in slices:
        parent = by_id.get(row["parent_id"])
        if row["category"] == "run":
            assert parent is None
        else:
            assert parent["category"] in ("run", "call")
            assert parent["pid"] == row["pid"]
            assert parent["ts"] <= row["ts"]
            assert row["ts"] + row["dur"] <= parent["ts"] + parent["dur"]
    operators = [row for row in slices if row["category"] in set(Category)]
    assert {row["executor"] for row in operators} == {"delegated", "portable"}
    assert {row["pid"] for row in operators if row["sme2"]} == {2}


def test_a_large_trace_and_hostile_names(processor: Path, tmp_path: Path) -> None:
    trace = tmp_path / "trace.json"
    tracks = [
        Track("mobile", read_etdump(ETDUMPS / "cpp_mobile_fp32_on.etdump")),
        Track(HOSTILE, columns_of(run_of([[(HOSTILE, 5_000)]]))),
    ]
    document = trace_document(tracks)
    trace.write_text(json.dumps(document))
    slices, problems, processes = query_trace(processor, trace, SLICES, PROBLEMS, PROCESSES)
    assert problems == []
    assert len(slices) == sum(event["ph"] == "X" for event in document["traceEvents"])
    assert [row["name"] for row in processes] == ["mobile", HOSTILE]
    assert HOSTILE in {row["name"] for row in slices}
