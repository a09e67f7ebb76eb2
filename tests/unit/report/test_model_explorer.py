"""Node data for Model Explorer: every operator is on a node of the program, and sums are equal."""

from __future__ import annotations

import importlib.util
import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pytest_sme2.report.model_explorer import write_node_data
from pytest_sme2.results.run import Arm
from pytest_sme2.session.run_directory import CaseRecord, read_record, write_record
from tests.support import Command
from tests.support.etdump_builder import build_etdump
from tests.support.nodes import assert_all_is_on_nodes
from tests.support.profiles import run_of
from tests.support.records import changed, cost_of, stored_dumps, write_case

PROGRAM = Path(__file__).parents[2] / "data" / "programs" / "toy_fp16.pte"
CALL = ("forward", "forward_0_0")


def case(root: Path, *, emulated: bool) -> tuple[Path, CaseRecord]:
    folder = write_case(
        root, "toy", "fp16", stored_dumps("toy_fp16"), emulated=emulated, program=str(PROGRAM)
    )
    record = read_record(folder)
    if emulated:
        costs = {arm: cost_of(record.measured, arm, 100 * len(arm)) for arm in (Arm.ON, Arm.OFF)}
        record = changed(record, costs=costs)
        write_record(folder, record)
    return folder, record


def read(files: list[Path]) -> dict[str, Any]:
    return {file.stem: json.loads(file.read_text("utf-8")) for file in files}


@pytest.mark.parametrize("emulated", [True, False])
def test_what_was_measured_stands_on_the_nodes(tmp_path: Path, emulated: bool) -> None:
    folder, record = case(tmp_path, emulated=emulated)
    found = read(write_node_data(folder, record, None))
    assert [*found] == ["off", "on", "percent", "ran"]
    assert_all_is_on_nodes(found, record.measured, PROGRAM)
    operators = record.measured.profiles[Arm.ON].operators
    whole = sum(each.time_ns / 1000 for each in operators)
    value = sum(each["value"] for each in found["on"]["forward"]["results"].values())
    assert value == (200 * len(operators) if emulated else pytest.approx(whole, abs=0.1))
    ran = {each["value"] for entry in found["ran"].values() for each in entry["results"].values()}
    assert {"SME2", "NEON"} <= ran <= {"SME2", "NEON", "portable"}


def test_no_emulated_time_is_written(tmp_path: Path) -> None:
    folder, record = case(tmp_path, emulated=True)
    uncounted = changed(record, costs={})
    assert [*read(write_node_data(folder, uncounted, uncounted))] == ["ran"]


def test_what_changed_is_red_where_it_costs_more(tmp_path: Path) -> None:
    folder, record = case(tmp_path, emulated=True)
    cost = record.measured.costs[Arm.ON]
    first, *others = cost.operators
    dearer = replace(first, counts=replace(first.counts, instructions=1000))
    now = changed(record, costs={Arm.ON: replace(cost, operators=(dearer, *others))})
    found = read(write_node_data(folder, now, record))["changed"]
    graph, node = CALL
    assert found[graph]["results"][node] == {"value": 800, "bgColor": "#ff8a80"}
    inner = found[f"{PROGRAM.name}::{node}"]["results"]
    assert [each["value"] for each in inner.values() if each["value"]] == [800]


def test_a_graph_of_two_thousand_operators_takes_little(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ("Convolution (NHWC, PF32) IGEMM", "Add (ND)", "Transpose (ND, X32)", "Clamp (NC)")
    calls = [[(f"{names[number % 4]} #{number}", 5_000) for number in range(2000)]]
    dump = build_etdump([run_of(calls)])
    folder = write_case(
        tmp_path, "large", "fp32", dict.fromkeys(Arm, dump), emulated=True, program=str(PROGRAM)
    )
    record = read_record(folder)
    costs = {arm: cost_of(record.measured, arm, 10**6) for arm in (Arm.ON, Arm.OFF)}
    record = changed(record, costs=costs)
    # Convolutions, additions and transposes; XNNPACK has each Clamp from a convolution.
    graph = {"forward": {0: [7, 1, 5] * 500}}
    monkeypatch.setattr("pytest_sme2.report.model_explorer.read_nodes", lambda _: graph)
    took = []
    for _ in range(3):
        start = time.process_time()
        files = write_node_data(folder, record, record)
        took.append(time.process_time() - start)
    assert min(took) < 1, took
    assert max(file.stat().st_size for file in files) < 100_000
    on = read(files)["on"][f"{PROGRAM.name}::forward_0_0"]["results"]
    assert sum(each["value"] for each in on.values()) == 2000 * 10**6


def test_the_command_prints_what_shows_it(
    sme2: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    case(tmp_path, emulated=True)
    # It works in any folder, wherever the run directory was named from.
    monkeypatch.chdir(tmp_path.parent)
    printed = sme2("report", tmp_path.name, "--format", "model-explorer").out
    assert printed.startswith(f"model-explorer {PROGRAM} --host=127.0.0.1 ")
    *_, paths = printed.strip().partition("--node_data_paths=")
    files = [Path(each) for each in paths.split(",")]
    assert files[-1].name == "ran.json"
    assert all(each.is_absolute() and each.is_file() for each in files)
    refused = sme2("report", tmp_path, "--format", "model-explorer", "--open", code=3)
    assert "pytest-sme2[see]" in refused.err
    record = next(tmp_path.rglob("metrics.json"))
    record.write_text(record.read_text("utf-8").replace(str(PROGRAM), "gone.pte"), "utf-8")
    assert "Run it again" in sme2("report", tmp_path, "--format", "model-explorer", code=2).err
