from __future__ import annotations

import json
import math

from pytest_sme2.report.comment import bencher_metric_format, github_action_benchmark
from pytest_sme2.results import Arm, Estimate
from tests.support.gate_examples import CONV_OFF, CONV_ON, PORTABLE, emulated, measured, structure


def test_github_action_benchmark() -> None:
    entries = json.loads(github_action_benchmark([measured(), emulated(model="other")]))
    assert all({"name", "unit", "value"} <= entry.keys() for entry in entries)
    assert all(isinstance(entry["value"], (int, float)) for entry in entries)
    by_name = {entry["name"]: entry for entry in entries}
    assert len(by_name) == len(entries)
    latency = by_name["toy_cnn-fp16 on linux: latency-on"]
    assert (latency["unit"], latency["value"]) == ("ns", 10e6)
    assert latency["range"] == "9.98e+06 to 1.002e+07"
    assert latency["extra"] == "executorch 1.5.1\nexecutorch runtime 1.5.1"
    assert by_name["toy_cnn-fp16 on linux: time-on-over-off"]["value"] == 0.5
    assert "range" not in by_name["toy_cnn-fp16 on linux: program-size"]


def test_bencher() -> None:
    document = json.loads(bencher_metric_format([measured(), measured(threads=4)]))
    assert set(document) == {"toy_cnn-fp16 on linux", "toy_cnn-fp16 on linux (4 threads)"}
    measures = document["toy_cnn-fp16 on linux"]
    assert measures["latency-off"]["value"] == 20e6
    assert measures["latency-off"]["lower_value"] < 20e6 < measures["latency-off"]["upper_value"]
    assert measures["peak-memory-on"] == {"value": 50_000_000}
    # Bencher takes a measure's slug: at most 64 characters of kebab case.
    assert all(len(name) <= 64 and name == name.lower() for name in measures)


def test_emulated_runs_export_no_times() -> None:
    document = json.loads(bencher_metric_format([emulated()]))
    assert set(document["toy_cnn-fp16 on emulated"]) == {
        "program-size", "operators", "portable-operators", "matrix-operators-without-sme2",
    }  # fmt: skip


def test_smaller_is_better_for_counts_too() -> None:
    counts = {CONV_ON: 3, CONV_OFF: 1, PORTABLE: 2}
    now = emulated(structures={Arm.ON: structure(counts)})
    (measures,) = json.loads(bencher_metric_format([now])).values()
    assert measures["matrix-operators-without-sme2"]["value"] == 1
    assert measures["portable-operators"]["value"] == 2
    assert measures["operators"]["value"] == 6


def test_without_sme2_nothing_is_said_to_have_missed_it() -> None:
    now = emulated(structures={Arm.OFF: structure({CONV_OFF: 4, PORTABLE: 1})})
    (measures,) = json.loads(bencher_metric_format([now])).values()
    assert measures["operators"]["value"] == 5
    assert "matrix-operators-without-sme2" not in measures


def test_what_is_not_known_is_not_exported() -> None:
    (measures,) = json.loads(
        bencher_metric_format([emulated(structures={}, pte_bytes=None)])
    ).values()
    assert measures == {}


def test_a_speedup_without_interval_is_left_out() -> None:
    weak = measured(speedup=Estimate(2.0, 0.0, math.inf, 0.99, 2))
    assert "time-on-over-off" not in bencher_metric_format([weak])


def test_hostile_names_stay_names() -> None:
    name = '"; DROP <script>\n'
    document = json.loads(bencher_metric_format([measured(model=name)]))
    assert list(document) == [f"{name}-fp16 on linux"]
    assert json.loads(github_action_benchmark([])) == []
