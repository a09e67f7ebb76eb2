"""Experiment files on a pretended device: which processes run, and which cases come of them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pytest_sme2.cli.experiments import parse_plan, run_plan
from pytest_sme2.report.writing import validate_run
from pytest_sme2.results.run import Arm
from pytest_sme2.session.run_directory import CaseRecord
from pytest_sme2.session.settings import Settings
from tests.support import Command
from tests.support.pretended_target import PretendedTarget, use

PROGRAM = Path(__file__).parents[2] / "data" / "programs" / "toy_fp16.pte"
PAIR: tuple[dict[str, Any], ...] = ({"name": "x_sme2_on"}, {"name": "x_sme2_off"})


@pytest.fixture(autouse=True)
def target(monkeypatch: pytest.MonkeyPatch) -> PretendedTarget:
    target = PretendedTarget()
    use(target, monkeypatch)
    return target


def run(root: Path, *experiments: dict[str, Any]) -> list[tuple[Path, CaseRecord]]:
    document = {"model": str(PROGRAM), "output_root": str(root), "experiments": list(experiments)}
    plan = replace(parse_plan(document), file=root / "experiments.json")
    return run_plan(plan, Settings(device="linux"), lambda line: None, "")


def test_a_pair_becomes_one_case(target: PretendedTarget, tmp_path: Path) -> None:
    ((folder, record),) = run(tmp_path, *PAIR)
    assert folder == tmp_path
    assert record.id == "toy_fp16-as exported"
    assert record.measured.evidence.valid
    medians = record.measured.medians_ns or {}
    assert medians[Arm.OFF][0] == pytest.approx(2 * medians[Arm.ON][0], rel=0.05)
    assert [found.problem for found in validate_run(tmp_path) if found.problem] == []
    assert sorted(path.name for path in tmp_path.rglob("*.etdump")) == [
        "toy_fp16_x_sme2_off_t1.etdump",
        "toy_fp16_x_sme2_on_t1.etdump",
    ]
    # A runner in the wrong state is not evidence.
    target.stuck = True
    ((_, record),) = run(tmp_path / "stuck", *PAIR)
    assert not record.measured.evidence.valid


def test_each_experiment_runs_as_it_is_written(target: PretendedTarget, tmp_path: Path) -> None:
    chosen = {"runs": 4, "warmup": 2, "threads": 3, "cpu_affinity": "0-1", "timeout_seconds": 7}
    run(tmp_path, {"name": "x_sme2_off", "extra_args": ["--flag"], **chosen})
    (traced, _), (untraced, _) = target.requests
    for request in (traced, untraced):
        assert (request.runs, request.warmup, request.threads) == (4, 2, 3)
        assert (request.cpus, request.timeout_seconds) == ((0, 1), 7)
        assert request.extra_arguments == ("--flag",)
    assert (traced.traced, untraced.traced) == (True, False)


def test_without_times_one_inference_runs_traced(target: PretendedTarget, tmp_path: Path) -> None:
    target.timing = False
    ((_, record),) = run(tmp_path, *({**entry, "runs": 10, "warmup": 1} for entry in PAIR))
    assert record.measured.medians_ns is None
    assert [request.traced for request, _ in target.requests] == [True, True]
    assert {(request.runs, request.warmup) for request, _ in target.requests} == {(1, 0)}
    results = json.loads((tmp_path / "metrics.json").read_text())["results"]
    assert {entry["metrics"]["etdump"] for entry in results} == {
        f"x_sme2_{arm}/toy_fp16_x_sme2_{arm}_t1.etdump" for arm in ("on", "off")
    }


def test_what_belongs_to_no_pair_is_a_case_of_its_own(tmp_path: Path) -> None:
    found = run(tmp_path, *PAIR, {"name": "alone", "sme2": "off"})
    assert [folder for folder, _ in found] == [tmp_path, tmp_path / "pairs" / "alone"]
    assert found[1][1].id == "toy_fp16-as exported-alone"
    assert found[1][1].measured.evidence is None


@pytest.mark.slow
def test_every_pair_is_in_the_files_at_the_top(tmp_path: Path, sme2: Command) -> None:
    on, off = ({**entry, "threads": [1, 2]} for entry in PAIR)
    found = run(tmp_path, on, off)
    assert [folder.relative_to(tmp_path).as_posix() for folder, _ in found] == [
        ".",
        "pairs/x_sme2_off_x_sme2_on_t2",
    ]
    assert [record.measured.threads for _, record in found] == [1, 2]
    dumps = {
        f"x_sme2_{arm}/toy_fp16_x_sme2_{arm}_t{count}.etdump"
        for arm in ("on", "off")
        for count in (1, 2)
    }
    for name in ("metrics.json", "manifest.json"):
        results = json.loads((tmp_path / name).read_text())["results"]
        assert {entry["metrics"]["etdump"] for entry in results} == dumps
        assert {len(entry["metrics"]["latency_ms"]) for entry in results} == {10}
    manifest = json.loads((tmp_path / "manifest.json").read_text())
    assert manifest["program"]["path"] == str(PROGRAM)
    assert manifest["config"] == str(tmp_path / "experiments.json")
    assert [case["folder"] for case in manifest["cases"]] == [".", "pairs/x_sme2_off_x_sme2_on_t2"]
    summary = json.loads((tmp_path / "analysis_summary.json").read_text())
    assert set(summary["experiments"]) == {dump.removesuffix(".etdump") for dump in dumps}
    assert len(summary["pairs"]) == 2
    (pipeline,) = tmp_path.glob("*_pipeline_summary.json")
    document = json.loads(pipeline.read_text())
    assert [case["threads"] for case in document["cases"]] == [1, 2]
    assert pipeline.with_suffix(".md").read_text().count("toy_fp16-as exported") >= 2
    assert [found.problem for found in validate_run(tmp_path) if found.problem] == []
    # Reports that are made again leave nothing out.
    names = ("manifest.json", "analysis_summary.json", pipeline.name)
    before = {name: json.loads((tmp_path / name).read_text()) for name in names}
    sme2("report", tmp_path)
    after = {name: json.loads((tmp_path / name).read_text()) for name in names}
    for document in (*before.values(), *after.values()):
        document.pop("command", None)
    assert after == before
