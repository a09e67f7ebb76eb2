"""The files of a history, and what is found in it."""

from __future__ import annotations

import concurrent.futures
import json
import math
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pytest_sme2.cli.commands.history import history_lines
from pytest_sme2.errors import Sme2Error
from pytest_sme2.report.history import (
    FEWEST,
    SHORTEST,
    FigureHistory,
    Floats,
    HistoryRecord,
    Model,
    Ramp,
    add_records,
    all_series,
    pytorch_benchmark,
    read_history,
    write_history,
)
from pytest_sme2.results.run import Arm
from pytest_sme2.session.run_directory import CaseRecord, read_record
from pytest_sme2.system.processes import project_commit
from tests.support import Command
from tests.support.gate_examples import emulated, measured
from tests.support.git import git
from tests.support.histories import run, timed
from tests.support.records import toy_run


def test_a_run_is_written_and_read_again(tmp_path: Path) -> None:
    records = [read_record(path) for path in toy_run(tmp_path / "run")[:2]]
    folder, commit = tmp_path / "history", "0123456789ab"
    written = write_history(folder, records, commit)
    assert written == folder / f"{records[0].measured.session}.json"
    found = read_history(tmp_path / "history")
    assert {record.case for record in found} == {record.id for record in records}
    (first,) = [record for record in found if record.case == records[0].id]
    measured = records[0].measured
    assert first.commit == commit
    assert first.pte_sha256 == measured.pte_sha256
    assert first.device == measured.fingerprint.key
    assert first.threads == measured.threads
    assert first.runner == measured.runner
    value, low, high = first.figures["latency (on)"]
    assert low <= value <= high
    assert first.figures["speedup"][1:] == (
        round(measured.speedup.low, 4),
        round(measured.speedup.high, 4),
    )
    structure = measured.structures[Arm.ON]
    assert first.figures["operators on SME2"] == (structure.sme2, None, None)
    assert first.figures["matrix operators"] == (structure.matrix, None, None)
    # The same run again replaces itself, here and in a copy, so nothing is counted twice.
    write_history(folder, records, commit)
    shutil.copy(written, folder / "copy.json")
    assert read_history(tmp_path / "history") == found


def test_writers_do_not_meet(tmp_path: Path) -> None:
    def add(number: int) -> None:
        add_records(tmp_path, [run(number, 1e6, case=f"case{n}") for n in range(20)])

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        list(pool.map(add, range(16)))
    assert len(read_history(tmp_path)) == 16 * 20


@pytest.mark.parametrize(
    "damage",
    [
        {"figures": {"other": [1, None, None]}},
        {"figures": {"speedup": [1e300, None, None]}},
        {"figures": {"speedup": ["1", None, None]}},
        {"figures": {"speedup": [float("nan"), None, None]}},
        {"figures": {"speedup": [True, None, None]}},
        {"figures": {"speedup": [1]}},
        {"device": None},
        {"threads": "1"},
        {"versions": []},
    ],
)
def test_a_damaged_record_is_named(tmp_path: Path, damage: dict[str, object]) -> None:
    path = add_records(tmp_path, [run(0, 1)])
    document = json.loads(path.read_text())
    document["records"][0] |= damage
    path.write_text(json.dumps(document))
    with pytest.raises(Sme2Error, match=r"s0\.json"):
        read_history(tmp_path)


@pytest.mark.parametrize(
    ("name", "text"),
    [("s0.json", ""), ("s0.json", '{"schema": 4, "rec'), ("s0.json", "[]"),
     ("s0.json", '{"schema": 3, "records": []}'), ("s0.json", '{"schema": 4}'),
     ("history.sqlite", "SQLite format 3")],
)  # fmt: skip
def test_a_file_that_is_no_history_is_named(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(Sme2Error, match=name):
        read_history(tmp_path)


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    for name in ("GITHUB_SHA", "CI_COMMIT_SHA"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    monkeypatch.chdir(tmp_path)
    project_commit.cache_clear()
    yield tmp_path
    project_commit.cache_clear()


def test_a_commit_is_that_of_the_folder_or_what_a_ci_says(
    elsewhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (elsewhere / "file").write_text("a")
    for words in (("init", "-q"), ("add", "file"), ("commit", "-qm", "First")):
        git(elsewhere, *words)
    commit = git(elsewhere, "rev-parse", "HEAD")
    assert project_commit() == commit[:12]
    (elsewhere / "file").write_text("b")
    project_commit.cache_clear()
    assert project_commit() == f"{commit[:12]}+", "files were changed"
    for name in ("GITHUB_SHA", "CI_COMMIT_SHA"):
        with monkeypatch.context() as given:
            given.setenv(name, "0123456789abcdef" * 2 + "01234567")
            project_commit.cache_clear()
            assert project_commit() == "0123456789ab"


def test_without_a_repository_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GITHUB_SHA", "<script>")
    assert project_commit() is None
    monkeypatch.setenv("PATH", "")
    project_commit.cache_clear()
    assert project_commit() is None


def lines(records: Sequence[HistoryRecord]) -> list[str]:
    return list(history_lines(all_series(records)))


def track(records: Sequence[HistoryRecord], name: str) -> FigureHistory:
    (found,) = [each for each in all_series(records)[0].tracks if each.figure.name == name]
    return found


def counted(*values: float) -> list[HistoryRecord]:
    return [run(number, value) for number, value in enumerate(values)]


def test_every_change_of_an_exact_figure_is_told_at_its_commit() -> None:
    # 0.04 % a commit, then back at once.
    runs = counted(*(1e6 * 1.0004**number for number in range(20)), 1e6)
    found = track(runs, "instructions (on)")
    assert [change.where() for change in found.changes] == [
        f"c{number:04}..c{number + 1:04}" for number in range(20)
    ]
    assert {change.format() for change in found.changes[:-1]} == {"+0.04%"}
    assert found.summary == "1,000,000, +0.00% in 20 changes from 1,000,000"


def test_a_change_is_told_with_versions_kernel_and_sum() -> None:
    old, new = ({"kernel": f"Linux 6.{number}"} for number in range(2))
    first = run(0, 1e6, conditions=old)
    last = run(1, 2e6, conditions=new, versions={"executorch": "1.5.1"})
    assert lines([first, last]) == [
        "toy-fp32 on emulated: 2 runs, 2026-01-01",
        "  instructions (on): 2,000,000, +100.00% in 1 change from 1,000,000",
        "    +100.00%  c0000..c0001; executorch none → 1.5.1; kernel Linux 6.0 → Linux 6.1",
    ]


@pytest.mark.parametrize(
    ("figures", "summary"),
    [
        ([{"latency (on)": (1.0, 0.5, 1.5)}] * 3, "3 runs: too few to look for changes, which 15"),
        ([{"instructions (on)": 1e6}] * 3, "unchanged"),
        ([{"operators on SME2": 0}, {"operators on SME2": 6}], "in 1 change from 0"),
        ([{"latency (on)": 2.0}] * FEWEST, "unchanged"),
        (
            [{"latency (on)": 2.0}] * 29 + [{"latency (on)": 2.42}],
            "unchanged; the last run is +21.0% off, which 4 such runs confirm",
        ),
    ],
)
def test_what_became_of_a_figure(figures: list[dict[str, Any]], summary: str) -> None:
    runs = [run(number, None, each) for number, each in enumerate(figures)]
    assert summary in all_series(runs)[0].tracks[0].summary


def test_a_noisy_figure_of_zero_is_not_compared() -> None:
    runs = [run(number, 1e6, {"speedup": 0.0}) for number in range(2)]
    assert [each.figure.name for each in all_series(runs)[0].tracks] == ["instructions (on)"]


@pytest.mark.parametrize(
    ("facts", "name"),
    [
        ({"device": "linux-12ab"}, "toy-fp32 on linux-12ab"),
        ({"threads": 4}, "toy-fp32 on emulated, 4 threads"),
        ({"runner": "source"}, "toy-fp32 on emulated, source runner"),
        ({"conditions": {"governor": "powersave"}}, "toy-fp32 on emulated, governor powersave"),
        ({"conditions": {"temperature": "40 C"}}, "toy-fp32 on emulated"),
    ],
)
def test_only_runs_of_the_same_device_and_conditions_are_compared(
    facts: dict[str, Any], name: str
) -> None:
    series = all_series([run(0, 1e6), run(1, 2e6, **facts)])
    assert {each.name for each in series} == {"toy-fp32 on emulated", name}
    assert sum(len(each.changes) for each in series) == (len(series) == 1)


def test_a_drift_is_told_whole_and_blames_no_commit() -> None:
    planted = dict.fromkeys(range(15, 35), 1.02)
    found = track(timed(45, planted, 0.005, seed=3), "latency (on)")
    (change,) = found.changes
    assert change.format() == "+48.31% [+47.42%, +49.20%]", "the truth is 48.59 %"
    assert change.where().startswith("c0014..c0034; a drift over 20 runs")
    assert found.summary.endswith("+48.31% in 1 change from 9.997 ms")


def with_yardstick(factor: float, latency: float) -> list[HistoryRecord]:
    """Both change at the same commit."""
    return [
        replace(
            each,
            figures={**each.figures, "yardstick": (2 * (factor if at >= 20 else 1), None, None)},
        )
        for at, each in enumerate(timed(40, {20: latency}, 0.003, seed=1))
    ]


@pytest.mark.parametrize(
    ("latency", "machine", "code"), [(1.06, True, 0), (1.3, False, 1), (0.9, False, 0)]
)
def test_a_machine_is_told_by_its_yardstick_and_hides_nothing_else(
    tmp_path: Path, sme2: Command, latency: float, machine: bool, code: int
) -> None:
    records = with_yardstick(1.06, latency)
    (change,) = track(records, "latency (on)").changes
    assert change.machine is machine
    assert ("the machine, as its yardstick says" in change.where()) is machine
    add_records(tmp_path, records)
    sme2("history", tmp_path, "--fail-on", "4%", code=code)


def test_of_many_cases_only_what_changed_is_told() -> None:
    runs = [
        run(number, 1e6 * (1.1 if case == 2 and number > 3 else 1), case=f"m{case}-fp32")
        for number in range(10)
        for case in range(8)
    ]
    assert lines(runs) == [
        "m2-fp32 on emulated: 10 runs, 2026-01-01",
        "  instructions (on): 1,100,000, +10.00% in 1 change from 1,000,000",
        "     +10.00%  c0003..c0004",
        "8 cases, 7 of them without any change",
    ]


CREEP = [run(number, round(1e6 * 1.004**number)) for number in range(20)]
# 4 % in the middle: its interval reaches from about 3.6 to 4.4 %.
NOISY = timed(40, {20: 1.04}, 0.004, seed=1)
ZEROS = {
    values: [run(at, None, {"operators on SME2": each}) for at, each in enumerate(values)]
    for values in ((6, 0), (0, 6), (6, 0, 6))
}


@pytest.mark.parametrize(
    ("records", "options", "code"),
    [
        (CREEP, (), 0),
        (CREEP, ("--fail-on", "5%"), 1),
        (CREEP, ("--fail-on", "10%"), 0),
        (CREEP, ("--fail-on", "5%", "--window", "10"), 0),
        (CREEP, ("--fail-on", "5%", "--since", "c0004"), 1),
        (CREEP, ("--fail-on", "5%", "--since", "c0014"), 0),
        (CREEP, ("--fail-on", "5%", "--figure", "latency*"), 0),
        (CREEP, ("--fail-on", "5%", "--since", "nowhere"), 2),
        (CREEP, ("--fail-on", "a lot"), 2),
        (CREEP, ("--window", "1"), 2),
        (CREEP, ("--case", "other"), 2),
        (NOISY, ("--fail-on", "3%"), 1),
        # The interval holds the limit: nobody can tell.
        (NOISY, ("--fail-on", "4%"), 0),
        (NOISY, ("--fail-on", "2%", "--since", "c0025"), 0),
        (NOISY, ("--fail-on", "2%", "--since", "c0010"), 1),
        (NOISY, ("--fail-on", "2%", "--window", "15"), 0),
        (timed(40, {}, 0.05, seed=1), ("--fail-on", "1%"), 0),
        (timed(40, {20: 0.9}, 0.004, seed=1), ("--fail-on", "1%"), 0),
        (ZEROS[6, 0], ("--fail-on", "5%"), 1),
        (ZEROS[0, 6], ("--fail-on", "5%"), 0),
        (ZEROS[6, 0, 6], ("--fail-on", "5%"), 0),
    ],
)
def test_it_fails_only_where_all_of_the_interval_is_beyond_the_limit(
    tmp_path: Path,
    sme2: Command,
    records: Sequence[HistoryRecord],
    options: tuple[str, ...],
    code: int,
) -> None:
    add_records(tmp_path, records)
    told = sme2("history", tmp_path, *options, code=code).err
    assert (" worse over " in told) == (code == 1)


def test_the_command_writes_a_page_and_json(tmp_path: Path, sme2: Command) -> None:
    add_records(tmp_path, CREEP[:2])
    page = tmp_path / "history.html"
    sme2("history", tmp_path, "--case", "toy*", "--html", page)
    assert "toy-fp32 on emulated" in page.read_text("utf-8")
    assert "ends in .html" in sme2("history", tmp_path, "--html", "history.pdf", code=2).err
    found: Mapping[str, Any] = json.loads(
        sme2("history", tmp_path, "--json", "--fail-on", "0.1%", code=1).out
    )
    (change,) = found["changes"]
    assert change["commits"] == ["c0000", "c0001"]
    assert (change["kind"], change["effect"], change["old"]) == ("step", "worse", 1e6)
    assert found["failed"] == [
        "toy-fp32 on emulated: instructions (on) got 0.40% worse over 2 runs; 0.10% is allowed "
        "(--fail-on)."
    ]
    assert "--sme2-history" in sme2("history", tmp_path / "none", code=2).err


# The model is held against series whose truth is known. ``python -m benchmarks.history`` holds
# thousands; these are few, and each kind has to be right.
SPREADS = (0.003, 0.01, 0.03)


def model(course: Floats, spread: float, seed: int, places: Sequence[int] | None = None) -> Model:
    """Of noise on a course of logarithms, in which two of a hundred runs are wild."""
    chance = np.random.default_rng(seed)
    wild = (chance.random(course.size) < 0.02) * chance.uniform(0.1, 0.5, course.size)
    noise = spread * chance.standard_normal(course.size) + wild
    return Model(np.exp(course + noise).tolist(), places or range(course.size))


def steps(*sizes: float, runs: int = 20) -> Floats:
    """Levels of so many runs, each higher than the one before by so many spreads."""
    return np.repeat(np.cumsum([0.0, *sizes]), runs)


def drift(first: int, last: int, runs: int, slope: float) -> Floats:
    found: Floats = slope * np.clip(np.arange(runs, dtype=np.float64) - first, 0.0, last - first)
    return found


@pytest.mark.parametrize("spread", SPREADS)
def test_nothing_is_found_where_nothing_is(spread: float) -> None:
    found = [
        model(np.zeros(runs), spread, seed).ramps for seed in range(8) for runs in (FEWEST, 40, 120)
    ]
    assert not any(found)


@pytest.mark.parametrize("spread", SPREADS)
@pytest.mark.parametrize("sizes", [(6,), (-6,), (6, -6), (5, 5), (8, -4, 6)])
def test_steps_are_found_at_their_places_with_their_sizes(
    sizes: tuple[float, ...], spread: float
) -> None:
    right = 0
    for seed in range(8):
        found = model(steps(*sizes) * spread, spread, seed)
        assert not any(ramp.drift for ramp in found.ramps)
        for number, size in enumerate(sizes[: len(found.ramps)]):
            first, last = found.range(number)
            _, low, high = found.size(number)
            right += first < 20 * (number + 1) <= last and low <= size * spread <= high
    assert right >= 7 * len(sizes)


@pytest.mark.parametrize("spread", SPREADS)
@pytest.mark.parametrize(("first", "last"), [(14, 34), (0, 20), (25, 44), (0, 44)])
def test_a_drift_is_no_step_and_has_its_ends_and_size(first: int, last: int, spread: float) -> None:
    near = right = 0
    for seed in range(8):
        found = model(drift(first, last, 45, spread), spread, seed)
        (ramp,) = found.ramps
        near += abs(ramp.first - first) <= 2 and abs(ramp.last - last) <= 2
        _, low, high = found.size(0)
        right += low <= spread * (last - first) <= high
    assert near >= 7
    assert right >= 7


@pytest.mark.parametrize(
    ("course", "expected"),
    [
        # The last runs need to be several.
        (np.r_[np.zeros(40), np.full(SHORTEST - 1, 0.2)], 0),
        (np.r_[np.zeros(40), np.full(SHORTEST, 0.2)], 1),
        # So do runs between two changes.
        (np.r_[np.zeros(20), 0.5, np.zeros(20)], 0),
        (np.r_[np.zeros(20), 0.5, 0.6, np.zeros(20)], 0),
        (np.r_[np.zeros(20), np.full(SHORTEST + 1, 0.2), np.zeros(20)], 2),
    ],
)
def test_a_level_takes_several_runs(course: Floats, expected: int) -> None:
    assert len(model(course, 0.01, seed=3).ramps) == expected


def test_a_figure_without_noise_is_no_matter() -> None:
    assert Model([7.0] * 30, range(30)).ramps == []
    found = Model([7.0] * 15 + [7.1] * 15, range(30))
    assert (found.ramps, found.range(0)) == ([Ramp(14, 15)], Ramp(14, 15))
    assert math.exp(found.size(0)[0]) == pytest.approx(7.1 / 7)


def test_a_drift_with_missing_runs_is_straight() -> None:
    kept = [at for at in range(60) if at not in range(26, 34) and at % 7]
    course = drift(15, 45, 60, 0.02)
    noise = 0.004 * np.random.default_rng(2).standard_normal(60)
    found = Model(np.exp(course + noise)[kept].tolist(), kept)
    ((first, last),) = found.ramps
    assert abs(kept[first] - 15) <= 2
    assert abs(kept[last] - 45) <= 2


def test_pytorchs_database() -> None:
    """As its schema has it: records with these parts, and text in all that is extra."""
    results = [CaseRecord(2, "case", each, None, (), {}) for each in (measured(), emulated())]
    entries = json.loads(pytorch_benchmark(results))
    for entry in entries:
        assert set(entry) == {"benchmark", "model", "metric", "runners", "dependencies"}
        assert set(entry["metric"]) == {"name", "benchmark_values", "target_value", "extra_info"}
        assert all(isinstance(value, int | float) for value in entry["metric"]["benchmark_values"])
        parts = (entry["benchmark"], entry["metric"], *entry["runners"])
        extra = [value for part in parts for value in part["extra_info"].values()]
        assert all(isinstance(value, str) for value in extra)
        assert set(entry["benchmark"]) == {"name", "mode", "dtype", "extra_info"}
        assert set(entry["model"]) == {"name", "type", "backend"}
    (latency,) = (one for one in entries if one["metric"]["name"] == "latency (off) (ms)")
    assert latency["metric"]["benchmark_values"] == [20]
    low, high = (float(latency["metric"]["extra_info"][end]) for end in ("low", "high"))
    assert low < 20 < high
    times = {one["benchmark"]["extra_info"]["emulated"] for one in entries if "(ms)" in str(one)}
    assert times == {"false"}
