"""The detection benchmark's own arithmetic: rules, resuming, and the pre-set judgements."""

from __future__ import annotations

import importlib
import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytest_sme2.results import Arm, Outcome, RunRequest
from pytest_sme2.targets.base import Job
from pytest_sme2.timing.processes import SamplingPlan
from tests.support.pretended_machine import ARTIFACT, Machine


@pytest.fixture
def detection():
    return importlib.import_module("benchmarks.detection")


class PretendedTarget(Machine):
    """Runs what the folder's name says."""

    waited_seconds = 0.0

    def make_job(self, label):
        nobody: Any = SimpleNamespace(takes_turns=True)
        return Job(nobody, RunRequest(ARTIFACT, Arm.OFF), Path(label))

    def run(self, runner, request, folder):
        return self(folder.parent.name, warmup=request.warmup, runs=request.runs)

    def run_in_turns(self, jobs):
        runs = [self.run(job.runner, job.request, job.folder) for job in jobs]
        return [
            replace(run, request=replace(run.request, turn=job.request.turn))
            for run, job in zip(runs, jobs, strict=True)
        ]


def entry_of(detection, extra, seed):
    target = PretendedTarget(slowdown=extra / 100, seed=seed)
    entry = {"condition": "idle", "extra": extra}
    entry |= detection.record(target, target.make_job, SamplingPlan(seed=seed))
    return json.loads(json.dumps(entry))


def test_what_is_recorded_is_decided_the_same_again(detection):
    for extra in (0, 5):
        records = [entry_of(detection, extra, seed) for seed in range(3)]
        scenario = detection.make_scenario(records, extra)
        assert [str(outcome) for outcome in scenario.outcomes] == [
            entry["outcome"] for entry in records
        ]
        expected = Outcome.REGRESSED if extra else Outcome.PASS
        assert set(scenario.outcomes) == {expected}
        assert len(scenario.peer) == sum(len(entry["kept"]) for entry in records)


def test_a_cut_off_line_is_left_out_and_stays_alone(detection, tmp_path, capsys):
    samples = tmp_path / "samples.jsonl"
    entry = entry_of(detection, 0, 1)
    written = [detection.append_record(samples, entry)]
    with samples.open("a") as file:
        file.write(json.dumps(entry)[:100])
    written.append(detection.append_record(samples, entry))
    assert detection.read_records(samples) == written
    assert "cut off" in capsys.readouterr().err


def test_collecting_goes_on_with_what_lags_behind(detection):
    records: list[dict[str, object]] = []
    for _ in range(60):
        records.append({"extra": detection.next_extra(records)})
    counts = [sum(entry["extra"] == extra for entry in records) for extra in (0, 3, 5)]
    assert counts == [50, 5, 5]


def test_too_few_verdicts_do_not_meet_the_rules(detection, tmp_path, capsys):
    samples: Path = tmp_path / "samples.jsonl"
    for extra in (0, 3, 5):
        detection.append_record(samples, entry_of(detection, extra, extra))
    result = tmp_path / "result.json"
    arguments = ["report", "--samples", str(samples), "--json", str(result)]
    assert detection.main(arguments) == 1
    out = capsys.readouterr().out
    assert "verdicts on equal programs: 1 (limit ≥ 300: MISSED)" in out
    assert "of 1 verdicts: 100 %; pytest-benchmark, mean:5%" in out
    document = json.loads(result.read_text("utf-8"))
    assert [claim["key"] for claim in document["claims"]] == [
        "verdicts", "alarms", "inconclusive", "caught 3", "caught 5",
    ]  # fmt: skip
    assert document["details"]["5"]["verdicts"] == {"REGRESSED": 1}


def test_the_peer_sees_a_large_slowdown_and_is_moved_by_one_spike(detection):
    calm, slow = (1000,) * 30, (1500,) * 30
    assert detection.peer_fails(calm, slow)
    assert not detection.peer_fails(slow, calm)
    spiked = (4000, *calm[1:])
    assert detection.peer_fails(calm, spiked)
    assert detection.log_ratio(calm, spiked, None) == 0.0
