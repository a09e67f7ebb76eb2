"""The benchmark of the whole gate: what comes next, what is kept, and what is judged."""

from __future__ import annotations

import json

from benchmarks import detection_gate as gate
from benchmarks.harness import FEWEST_EQUAL, FEWEST_SLOWER, append_record, read_records


def entry(setting=0, factor=1.0, outcome="PASS", green=True):
    return {
        "setting": gate.SETTINGS[setting].name,
        "factor": factor,
        "outcome": outcome,
        "green": green,
        "load": 1.0,
        "seconds": 2.0,
        "messages": ["latency: as fast."],
    }


def test_the_plan_is_enough_for_the_limits():
    planned = [item for setting in gate.SETTINGS for item in setting.planned.items()]
    assert sum(count for factor, count in planned if factor == 1) >= FEWEST_EQUAL
    assert sum(count for factor, count in planned if factor >= 1.05) >= FEWEST_SLOWER
    for setting in gate.SETTINGS:
        assert {*setting.planned} <= {gate.EQUAL, *setting.programs.slower}


def test_what_lags_most_comes_next_until_all_is_done(tmp_path):
    collector = gate.Collector(tmp_path / "verdicts.jsonl")
    setting = gate.SETTINGS[1]
    seen = []
    while (following := collector.lagging([setting])) is not None:
        seen.append(following[1])
        collector.keep(setting, following[1], entry(1, following[1]))
    assert seen[: len(setting.planned)] == sorted(setting.planned)
    assert len(seen) == sum(setting.planned.values())
    assert [kept["factor"] for kept in read_records(collector.samples)] == seen


def test_a_green_slowdown_and_a_false_alarm_miss_their_limits(tmp_path, capsys):
    samples = tmp_path / "verdicts.jsonl"
    for one in (
        entry(),
        entry(outcome="REGRESSED", green=False),
        entry(factor=2.0),
        entry(factor=3.0, outcome="INVALID", green=False),
    ):
        append_record(samples, one)
    out = tmp_path / "out.json"
    assert gate.main(["report", "--samples", str(samples), "--json", str(out)]) == 1
    found = {claim["key"]: claim["value"] for claim in json.loads(out.read_text())["claims"]}
    assert found == {
        "slower": 2, "green": 1, "equal": 2, "alarms": 1, "open": 0,
    }  # fmt: skip
    assert '"2": {\n   "PASS": 1\n  }' in capsys.readouterr().out
