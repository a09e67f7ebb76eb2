"""The trace, compared with the trace-event format.

What is checked here are the format's rules: the phases and their fields, and that events of one
thread nest. What Perfetto makes of it is asked in ``tests/device/test_trace_processor.py``.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pytest_sme2.profile.operators import select
from pytest_sme2.report.perfetto import Track, trace_document
from pytest_sme2.results import Arm, Category, Columns, OperatorShapes
from pytest_sme2.session.run_directory import CaseRecord, read_record
from pytest_sme2.trace.etdump import read_etdump
from tests.support import ETDUMPS, Command
from tests.support.etdump_builder import Block, Profiling, Tree, inference, operator_call
from tests.support.profiles import columns_of, run_of
from tests.support.records import HOSTILE, cost_of, toy_run

DUMPS = sorted(ETDUMPS.glob("*.etdump"))


def check_format(document: dict[str, Any]) -> None:
    """The rules of the JSON object format for the phases that are used."""
    json.loads(json.dumps(document, allow_nan=False))
    assert document["displayTimeUnit"] in ("ms", "ns")
    for event in document["traceEvents"]:
        assert isinstance(event["name"], str)
        assert isinstance(event["pid"], int)
        assert isinstance(event["tid"], int)
        assert isinstance(event["args"], dict)
        assert event["ph"] in ("X", "M")
        if event["ph"] == "X":
            assert event["ts"] >= 0
            assert event["dur"] >= 0
            assert isinstance(event["cat"], str)


def check_nesting(document: dict[str, Any]) -> None:
    """Two events of one thread enclose one another, or do not touch."""
    for process in {event["pid"] for event in document["traceEvents"]}:
        events = [
            event
            for event in document["traceEvents"]
            if event["pid"] == process and event["ph"] == "X"
        ]
        events.sort(key=lambda event: (event["ts"], -event["dur"]))
        stack: list[float] = []
        for event in events:
            while stack and stack[-1] <= event["ts"] + 1e-6:
                stack.pop()
            end = event["ts"] + event["dur"]
            assert not stack or end <= stack[-1] + 1e-6, event
            stack.append(end)


@pytest.mark.parametrize("path", DUMPS, ids=lambda path: path.stem)
def test_real_dumps_become_valid_traces(path: Path) -> None:
    document = trace_document([Track(path.stem, read_etdump(path))])
    check_format(document)
    check_nesting(document)
    kinds = {event.get("cat") for event in document["traceEvents"]}
    assert "run" in kinds
    assert kinds & {str(category) for category in Category}


def test_operators_that_reach_past_their_call_are_moved_into_it() -> None:
    columns = read_etdump(ETDUMPS / "cpp_mobile_fp32_on.etdump")
    document = trace_document([Track("a", columns)])
    total = sum(e["dur"] for e in document["traceEvents"] if e.get("cat") in set(Category))
    selection = select(columns)
    assert total == pytest.approx(selection.duration.sum() / 1e3)


@pytest.mark.parametrize("emulated", [False, True])
def test_both_arms_are_processes_of_their_own(
    tmp_path: Path, sme2: Command, emulated: bool
) -> None:
    folder = toy_run(tmp_path, emulated=emulated)[0]
    document = json.loads(sme2("report", folder, "--format", "perfetto").out)
    check_format(document)
    check_nesting(document)
    names = [e["args"]["name"] for e in document["traceEvents"] if e["name"] == "process_name"]
    note = " (emulated: its times say nothing about hardware)" * emulated
    assert names == [f"toy-fp16, SME2 {arm}{note}" for arm in ("off", "on")]
    on = [e for e in document["traceEvents"] if e["pid"] == 2 and e["args"].get("sme2")]
    off = [e for e in document["traceEvents"] if e["pid"] == 1 and e["args"].get("sme2")]
    assert on
    assert not off


def test_categories_have_colours_of_their_own() -> None:
    calls = [[("Convolution (NHWC, F32) IGEMM #1", 9_000), ("Transpose (ND, X32) #1", 2_000)]]
    document = trace_document([Track("a", columns_of(run_of(calls)))])
    colours = {e["cat"]: e["cname"] for e in document["traceEvents"] if e["ph"] == "X"}
    assert len({colours["CONV"], colours["DATA_MOVEMENT"], colours["run"]}) == 3


def test_a_dump_without_inference_is_an_empty_track() -> None:
    columns = columns_of(Block([Profiling("Program::load_method", 1_000, 2_000)]))
    document = trace_document([Track("a", columns)])
    check_format(document)
    assert {event["ph"] for event in document["traceEvents"]} == {"M"}


def test_a_kernel_that_is_its_own_call_is_drawn_once() -> None:
    kernel = Profiling("native_call_mm.out", 2_000, 3_000, 0)
    bare = columns_of(inference([Tree(kernel)], start=1_000, end=4_000))
    called = columns_of(
        inference([operator_call(0, 2_000, 3_000, "mm.out")], start=1_000, end=4_000)
    )
    drawn = [
        [(event["cat"], event["ts"], event["dur"]) for event in document["traceEvents"]
         if event["ph"] == "X"]
        for document in (trace_document([Track("a", columns)]) for columns in (bare, called))
    ]  # fmt: skip
    assert drawn[0] == [("run", 0.0, 3.0), ("GEMM", 1.0, 1.0)]
    assert drawn[1] == [("run", 0.0, 3.0), ("call", 1.0, 1.0), ("GEMM", 1.0, 1.0)]


def test_a_file_and_a_folder_of_dumps_do_as_well(tmp_path: Path, sme2: Command) -> None:
    dump = ETDUMPS / "cpp_toy_fp16_on.etdump"
    for path in (dump, ETDUMPS):
        document = json.loads(sme2("report", path, "--format", "perfetto").out)
        check_format(document)
        named = {event["args"].get("name") for event in document["traceEvents"]}
        assert "cpp_toy_fp16_on" in named
    sme2("report", tmp_path / "none", "--format", "perfetto", code=2)


def test_hostile_names_are_only_names() -> None:
    columns = columns_of(run_of([[(HOSTILE, 5_000)]]))
    document = trace_document([Track(HOSTILE, columns)])
    check_format(document)


def recorded(root: Path, *, emulated: bool = False) -> tuple[CaseRecord, Columns]:
    folder = toy_run(root, emulated=emulated)[1]
    record = read_record(folder)
    return record, read_etdump(folder / record.etdumps[Arm.ON])


def test_a_slice_says_what_the_operator_is_and_what_it_costs(tmp_path: Path) -> None:
    """Module, shapes, kernel and cost stand in the arguments of the operator's slice."""
    record, columns = recorded(tmp_path, emulated=True)
    profile = record.measured.profiles[Arm.ON]
    shapes = OperatorShapes("convolution", ((1, 8, 8, 3), (16, 3, 3, 3)), (1, 8, 8, 16))
    operators = tuple(
        replace(member, module=f"layers.{member.index}", shapes=shapes if not number else None)
        for number, member in enumerate(profile.operators)
    )
    cost = cost_of(record.measured, Arm.ON, 1000)
    track = Track("toy", columns, (), True, cost, replace(profile, operators=operators))
    slices = [
        event["args"]
        for event in trace_document([track])["traceEvents"]
        if "executor" in event["args"]
    ]
    assert slices[0]["shapes"] == "1x8x8x3 by 16x3x3x3 to 1x8x8x16"
    assert "shapes" not in slices[1]
    share = 100 * 1000 / cost.total.instructions
    for details, member, entry in zip(slices, operators, cost.operators, strict=False):
        assert details["module"] == member.module
        assert details["kernel"] == "kai_run_x_sme2_mopa"
        assert (details["instructions"], details["outer_products"]) == (1000, 10)
        assert details.get("multiply_accumulates") == entry.macs
        assert details["cost_percent"] == pytest.approx(share, abs=0.01)


def test_a_run_of_other_operators_gets_no_arguments_of_these(tmp_path: Path) -> None:
    record, columns = recorded(tmp_path)
    profile = record.measured.profiles[Arm.ON]
    fewer = tuple(replace(each, module="a") for each in profile.operators[:-1])
    track = Track("toy", columns, profile=replace(profile, operators=fewer))
    events = trace_document([track])["traceEvents"]
    assert not any("module" in event["args"] for event in events)
