"""The files of a run directory."""

from __future__ import annotations

import csv
import io
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_sme2.plugin.conclusion import conclude_run
from pytest_sme2.report.writing import (
    csv_text,
    model_stem,
    pipeline_summary,
    validate_run,
    write_case,
    write_experiment,
    write_summary,
)
from pytest_sme2.results.case import Check
from pytest_sme2.results.run import AS_EXPORTED
from pytest_sme2.results.timing import Outcome
from pytest_sme2.session.analysis import Analysis, analyze_file, analyze_folder, on_off_pairs
from pytest_sme2.session.run_directory import read_record
from pytest_sme2.session.settings import Settings
from pytest_sme2.system.files import encode, safe_name
from tests.support import ETDUMPS, Command
from tests.support.etdump_builder import build_etdump
from tests.support.golden import check_golden
from tests.support.profiles import Call, run_of
from tests.support.records import HOSTILE, stored_dumps, toy_run
from tests.support.records import write_case as make_case

STEM = "toy_xnnpack_fp16"
STATS = f"linux_sme2_on/{STEM}_linux_sme2_on_t1_operator_stats.csv"


def concluded(root: Path, **choices: object) -> tuple[list[str], list[str]]:
    folders = toy_run(root)
    checks = encode([Check("evidence", Outcome.PASS, "Both arms are as they should be.")])
    names = [read_record(folder).id for folder in folders]
    lines, _, problems = conclude_run(
        dict(zip(names, map(str, folders), strict=True)),
        dict.fromkeys(names, checks),
        Settings(out=root, **choices),  # type: ignore[arg-type]
        command=("pytest", "tests"),
    )
    return lines, problems


def test_a_run_directory_is_as_it_should_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    summary = tmp_path / "summary.md"
    summary.write_text("from an earlier step\n")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summary))
    root = tmp_path / "out"
    lines, problems = concluded(root, report=tmp_path / "r.html")
    assert not problems
    assert f"report: {root / 'report.md'}" in lines
    assert (tmp_path / "r.html").read_text(encoding="utf-8").startswith("<!doctype html>")
    assert summary.read_text().startswith("from an earlier step\n## SME2 performance")
    folder = root / "toy-fp16" / "runs" / "linux"
    assert sorted(path.name for path in folder.iterdir()) == [
        "analysis_summary.json",
        "linux_sme2_off",
        "linux_sme2_on",
        "manifest.json",
        "metrics.json",
        f"{STEM}_pipeline_summary.json",
        f"{STEM}_pipeline_summary.md",
    ]
    assert sorted(path.name for path in (folder / "linux_sme2_on").iterdir()) == [
        "run.etdump",
        "runner.log",
        *(
            f"{STEM}_linux_sme2_on_t1_{ending}"
            for ending in (
                "all_runs_timeline.csv",
                "category_summary.csv",
                "operator_stats.csv",
                "robust_stats.json",
                "run0_timeline.csv",
            )
        ),
    ]
    manifest = json.loads((folder / "manifest.json").read_text())
    assert manifest["command"] == ["pytest", "tests"]
    assert manifest["reproduce"].startswith("sme2 run toy --variant ")
    assert read_record(folder).checks[0].metric == "evidence"
    # A later report does not change how the run was made.
    before = {**manifest, "commit": "1" * 40, "host": "elsewhere"}
    (folder / "manifest.json").write_text(json.dumps(before))
    write_case(folder, read_record(folder), command=["sme2", "report"])
    assert json.loads((folder / "manifest.json").read_text()) == before


def test_the_tables_read_like_this(whole: Path) -> None:
    folder = whole / "toy-fp16" / "runs" / "linux" / "linux_sme2_on"
    for ending in ("operator_stats.csv", "category_summary.csv", "run0_timeline.csv"):
        text = (folder / f"{STEM}_linux_sme2_on_t1_{ending}").read_text(encoding="utf-8")
        check_golden(ending, text)
        assert len(list(csv.reader(text.splitlines()))) > 3


def test_a_pipeline_summary_has_time_only_where_it_means_something(tmp_path: Path) -> None:
    real = pipeline_summary(read_record(toy_run(tmp_path / "a")[0]))
    assert real["arms"]["on"]["latency"]["median"] == pytest.approx(10e6, rel=0.01)
    assert real["speedup"]["value"] == 2.0
    emulated = pipeline_summary(read_record(toy_run(tmp_path / "b", emulated=True)[0]))
    assert not emulated["timed"]
    assert not {"latency", "end_to_end", "category_ns"} & set(emulated["arms"]["on"])
    json.dumps(emulated, allow_nan=False)


def test_the_files_of_a_bare_program_carry_its_name_alone(tmp_path: Path) -> None:
    folder = make_case(tmp_path, "my net", AS_EXPORTED, stored_dumps("toy_fp16"))
    record = read_record(folder)
    assert model_stem(record) == safe_name("my net")
    write_case(folder, record)
    assert (folder / f"{safe_name('my net')}_pipeline_summary.json").is_file()


def test_hostile_names_stay_in_the_run_directory(tmp_path: Path) -> None:
    root = tmp_path / "deep" / "out"
    folder = make_case(root, HOSTILE, "fp16", stored_dumps("toy_fp16"))
    write_case(folder, read_record(folder))
    assert [path.name for path in tmp_path.iterdir()] == ["deep"]
    assert not [finding for finding in validate_run(root) if finding.problem]


def test_a_whole_run_directory_is_valid(whole: Path, sme2: Command) -> None:
    assert " 0 problems" in sme2("report", "--check", whole).out
    told = json.loads(sme2("report", "--check", whole, "--json").out)
    assert told["valid"]
    assert len(told["files"]) > 30


UNLIKE = "is not what its record and ETDumps make"


def cut(name: str) -> Callable[[Path], None]:
    def damage(case: Path) -> None:
        path = case / name
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])

    return damage


def drop(name: str) -> Callable[[Path], None]:
    return lambda case: (case / name).unlink()


def say(name: str, text: str) -> Callable[[Path], object]:
    return lambda case: (case / name).write_text(text)


def another_dump(case: Path) -> None:
    shutil.copy(case / "linux_sme2_off" / "run.etdump", case / "linux_sme2_on" / "run.etdump")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("whole")
    concluded(root)
    return root


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (cut("linux_sme2_on/run.etdump"), "run.etdump: "),
        (cut("metrics.json"), "metrics.json: cannot be read"),
        (cut("analysis_summary.json"), f"analysis_summary.json: {UNLIKE}"),
        (drop("manifest.json"), "manifest.json: is missing"),
        (drop(f"{STEM}_pipeline_summary.md"), "_pipeline_summary.md: is missing"),
        (drop("linux_sme2_on/runner.log"), ".log: is missing"),
        (drop("linux_sme2_off/run.etdump"), "metrics.json: names an ETDump that cannot be used"),
        (say("manifest.json", "[]"), f"manifest.json: {UNLIKE}"),
        (say(STATS, "a,b\n1,2\n"), f"operator_stats.csv: {UNLIKE}"),
        (another_dump, f"manifest.json: {UNLIKE}"),
    ],
)
def test_what_is_missing_or_broken_is_named(
    tmp_path: Path, sme2: Command, whole: Path, damage: Callable[[Path], object], message: str
) -> None:
    shutil.copytree(whole, tmp_path, dirs_exist_ok=True)
    damage(tmp_path / "toy-fp16" / "runs" / "linux")
    assert message in sme2("report", "--check", tmp_path, code=1).out


def test_a_folder_without_a_case_is_not_valid(tmp_path: Path, sme2: Command) -> None:
    sme2("report", "--check", tmp_path, code=1)
    sme2("report", "--check", tmp_path / "none", code=2)


FORMULA = "=cmd|' /C calc'!A0, \"<script>alert(1)</script>\"\n../../x"


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
    analysis = analysis_of(tmp_path, [(FORMULA, 2_000), ("@SUM(1)", 5), ("-1+1", 5)])
    _, run_0, operators, *_ = write_experiment(analysis, tmp_path)
    assert [row["operator"] for row in rows(operators)] == [f"'{FORMULA}", "'@SUM(1)", "'-1+1"]
    assert rows(run_0)[0]["event"] == f"'{FORMULA}"


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
