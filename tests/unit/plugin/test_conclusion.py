"""The end of a run: what is written, what is printed, and what a damaged case does to the rest."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from pytest_sme2.plugin.conclusion import conclude_run
from pytest_sme2.results.case import Check
from pytest_sme2.results.timing import Outcome
from pytest_sme2.session.run_directory import METRICS, read_record
from pytest_sme2.session.settings import Settings
from pytest_sme2.system.files import encode
from tests.support.records import stored_dumps, toy_run, write_case


def folders(paths: Sequence[Path]) -> dict[str, str]:
    return {path.parents[1].name: str(path) for path in paths}


def settings(root: Path, **choices: object) -> Settings:
    return Settings(out=root, baseline_dir=root / "baselines", **choices)  # type: ignore[arg-type]


def test_cases_are_listed_as_asked_for_whatever_worker_was_first(tmp_path: Path) -> None:
    dumps = stored_dumps("toy_fp16")
    paths = [write_case(tmp_path, model, "fp16", dumps) for model in ("a", "b", "c")]
    lines, _, problems = conclude_run(
        folders(paths), {}, settings(tmp_path, models=("c", "a", "b"))
    )
    assert not problems
    names = [line.partition("-")[0] for line in lines]
    places = [names.index(model) for model in ("c", "a", "b")]
    assert places == sorted(places)


def test_reports_are_written_and_named(tmp_path: Path) -> None:
    chosen = settings(
        tmp_path,
        report=tmp_path / "r.html",
        comment=tmp_path / "a b.json",
    )
    lines, _, problems = conclude_run(folders(toy_run(tmp_path)), {}, chosen)
    assert not problems
    for name in ("report.md", "r.html", "a b.json"):
        assert f"report: {tmp_path / name}" in lines
        assert (tmp_path / name).stat().st_size > 0
    quiet, *_ = conclude_run(folders(toy_run(tmp_path)), {}, chosen, verbosity=-1)
    assert not any(line.startswith("report: ") for line in quiet)


def test_a_damaged_case_is_named_and_the_others_are_reported(tmp_path: Path) -> None:
    first, *others = toy_run(tmp_path)
    (first / METRICS).write_text("{}")
    lines, _, problems = conclude_run(folders([first, *others]), {}, settings(tmp_path))
    assert problems[0].startswith("toy-fp16: ")
    assert any(line.startswith("toy-int8 ") for line in lines)
    assert (tmp_path / "report.md").is_file()


def test_a_report_that_cannot_be_written_is_a_problem(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    chosen = settings(tmp_path, report=tmp_path / "file" / "r.html")
    *_, problems = conclude_run(folders(toy_run(tmp_path)), {}, chosen)
    assert problems[0].startswith("the report was not written: ")


def test_baselines_are_stored_only_when_asked(tmp_path: Path) -> None:
    paths = folders(toy_run(tmp_path)[:1])
    conclude_run(paths, {}, settings(tmp_path))
    assert not (tmp_path / "baselines").exists()
    lines, _, problems = conclude_run(paths, {}, settings(tmp_path, update_baselines=True))
    assert not problems
    (stored,) = (tmp_path / "baselines").glob("*/toy-fp16.json")
    assert "1 new" in " ".join(lines)
    again, *_ = conclude_run(paths, {}, settings(tmp_path, update_baselines=True))
    assert any("1 unchanged" in line for line in again)
    every, *_ = conclude_run(paths, {}, settings(tmp_path, update_baselines=True), verbosity=1)
    assert f"  toy-fp16: unchanged ({stored})" in every


@pytest.mark.parametrize(("verbosity", "said"), [(0, "1 new"), (1, "toy-fp16: new (")])
def test_a_dry_run_says_what_an_update_would_change_and_writes_nothing(
    tmp_path: Path, verbosity: int, said: str
) -> None:
    paths = folders(toy_run(tmp_path)[:1])
    dry = settings(tmp_path, update_baselines=True, dry_run=True)
    lines, _, problems = conclude_run(paths, {}, dry, verbosity=verbosity)
    assert not problems
    assert said in " ".join(lines)
    assert not any(word in " ".join(lines) for word in ("Commit", "NO_BASELINE"))
    assert lines[-1] == "  --update-baselines=dry: no baseline was written."
    assert not (tmp_path / "baselines").exists()


def test_a_baseline_that_is_refused_is_a_problem(tmp_path: Path) -> None:
    (path, *_) = toy_run(tmp_path)
    document = json.loads((path / METRICS).read_text())
    document["measured"]["interference"] = 0.5
    (path / METRICS).write_text(json.dumps(document))
    checks = {"toy-fp16": [encode(Check("latency (on)", Outcome.NO_BASELINE, "No baseline."))]}
    chosen = settings(tmp_path, update_baselines=True)
    _, _, problems = conclude_run(folders([path]), checks, chosen)
    (problem,) = problems
    assert problem.startswith("toy-fp16: ")
    assert "because the machine was busy" in problem
    (check,) = read_record(path).checks
    assert check.verdict is Outcome.NO_BASELINE


@pytest.mark.parametrize("verbosity", [0, -2])
def test_without_cases_nothing_is_written(tmp_path: Path, verbosity: int) -> None:
    assert conclude_run({}, {}, settings(tmp_path), verbosity=verbosity) == ([], [], [])
    assert list(tmp_path.iterdir()) == []
