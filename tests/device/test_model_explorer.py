"""Every operator of every program is on a node of the graph that Model Explorer shows."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pytest_sme2.report.model_explorer import write_node_data
from pytest_sme2.results.run import Arm
from pytest_sme2.session.run_directory import SCHEMA, CaseRecord
from tests.device import provision
from tests.support import recorded_runs
from tests.support.nodes import assert_all_is_on_nodes

# torch and torchao warn at import about matters of their own.
pytestmark = pytest.mark.filterwarnings("ignore")

SUITE = sorted(path.stem for path in (recorded_runs.ROOT / "baselines/emulated").glob("*.json"))
TOY = [f"toy_cnn-{variant}" for variant in ("fp32", "fp16", "int8", "int8_dynamic")]


@pytest.mark.parametrize(
    "names",
    [
        TOY,
        pytest.param([*SUITE, *recorded_runs.ARCHITECTURE_RUNS], marks=pytest.mark.nightly),
    ],
    ids=["toy", "all"],
)
def test_every_counted_operator_is_on_a_node(names: list[str], tmp_path: Path) -> None:
    provision.emulator()
    left = {*names}
    for case, session in recorded_runs.cases(names):
        measured = recorded_runs.assembled(session, case, counted=True)
        record = CaseRecord(SCHEMA, case.id, measured, None, (), {})
        files = write_node_data(tmp_path / case.id, record, record)
        found = {file.stem: json.loads(file.read_text("utf-8")) for file in files}
        assert {"on", "percent", "ran", "changed"} <= found.keys()
        assert_all_is_on_nodes(found, measured, Path(measured.program))
        whole = sum(each.counts.instructions for each in measured.costs[Arm.ON].operators)
        calls = next(data for graph, data in found["on"].items() if "::" not in graph)
        assert sum(each["value"] for each in calls["results"].values()) == whole
        left.remove(case.id)
    assert not left
