from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest

from pytest_sme2.report.csv_files import csv_text, write_experiment, write_summary
from pytest_sme2.session.analysis import Analysis, analyze_file, analyze_folder, on_off_pairs
from tests.support import ETDUMPS
from tests.support.etdump_builder import build_etdump
from tests.support.profiles import Call, run_of
from tests.support.records import toy_run

HOSTILE = "=cmd|' /C calc'!A0, \"<script>alert(1)</script>\"\n../../x"


def analysis_of(folder: Path, *calls: Call, runs: int = 3, name: str = "toy") -> Analysis:
    path = folder / f"{name}.etdump"
    path.write_bytes(build_etdump([run_of(calls) for _ in range(runs)]))
    return analyze_file(path)


def rows(path: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(path.read_text(encoding="utf-8"), newline="")))


CALLS: tuple[Call, ...] = (
    [("Transpose (ND, X32) #1", 2_000), ("Convolution (NHWC, PF32) IGEMM #1", 6_000)],
    ("mean.out", 1_000),
)


def test_tables_hold_every_event_and_add_up(tmp_path: Path) -> None:
    made = write_experiment(analysis_of(tmp_path, *CALLS), tmp_path)
    timeline, run_0, operators, categories, stats = made
    assert json.loads(stats.read_text())["categories"]["CONV"]["median"] == 6_000
    (*_, overhead, total) = rows(categories)
    shares = [float(row["share_percent"]) for row in (*rows(operators), overhead)]
    assert sum(shares) == pytest.approx(float(total["share_percent"]), abs=0.1)
    events = rows(timeline)
    # Two delegated operators, their call, a kernel, its call, and Method::execute; three runs.
    assert len(events) == 3 * 6
    assert rows(run_0) == [event for event in events if event["run"] == "0"]
    conv = events[1]
    assert conv["event"] == "Convolution (NHWC, PF32) IGEMM #1"
    assert conv["operator"] == "Convolution (NHWC, PF32) IGEMM"
    assert (conv["role"], conv["category"], conv["sme2"]) == ("operator", "CONV", "True")
    assert (conv["start_us"], conv["duration_us"]) == ("3.0", "6.0")
    assert {event["role"] for event in events} == {"operator", "framework"}
    assert events[5]["event"] == "Method::execute"
    assert events[5]["category"] == ""


def test_hostile_operator_names_stay_names(tmp_path: Path) -> None:
    analysis = analysis_of(tmp_path, [(HOSTILE, 2_000), ("@SUM(1)", 5), ("-1+1", 5)])
    _, run_0, operators, *_ = write_experiment(analysis, tmp_path)
    assert [row["operator"] for row in rows(operators)] == [f"'{HOSTILE}", "'@SUM(1)", "'-1+1"]
    assert rows(run_0)[0]["event"] == f"'{HOSTILE}"


@pytest.mark.parametrize("text", ["=1", "+1", "-1", "@x", "\tx", "\rx", "\n=1"])
def test_no_cell_is_a_formula(text: str) -> None:
    table = csv_text({"name": [text, -1.5, "plain"]})
    cells = [row[0] for row in csv.reader(io.StringIO(table, newline=""))]
    assert cells == ["name", f"'{text}", "-1.5", "plain"]


def test_the_summary_pairs_on_and_off(tmp_path: Path) -> None:
    analyses = analyze_folder(toy_run(tmp_path)[0], [])
    on, off = "linux_sme2_on/run", "linux_sme2_off/run"
    assert [(pair[0].name, pair[1].name) for pair in on_off_pairs(analyses)] == [(on, off)]
    summary = json.loads(write_summary(analyses, tmp_path).read_text())
    assert summary["schema"] == 2
    assert list(summary["experiments"]) == [off, on]
    (pair,) = summary["pairs"]
    assert pair["evidence"]["valid"] is True
    assert pair["comparison"]["before"] == off
    assert len(pair["comparison"]["operators"]) == 7
    coverage = summary["experiments"][on]["coverage"]
    assert (coverage["sme2_operators"], coverage["matrix_operators"]) == (2, 3)
    (reason,) = coverage["missed"].values()
    assert "1x1 convolutions" in reason


def test_further_methods_are_in_the_summary(tmp_path: Path) -> None:
    analysis = analyze_file(ETDUMPS / "py_methods.etdump")
    summary = json.loads(write_summary([analysis], tmp_path).read_text())
    experiment = summary["experiments"]["py_methods"]
    assert experiment["runs"] == 2
    assert [other["runs"] for other in experiment["other_methods"]] == [2]
