"""Which runs are compared, and where their figures changed."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from pytest_sme2.cli.commands.history import history_lines
from pytest_sme2.cli.main import main
from pytest_sme2.report import history_series
from pytest_sme2.report.history import FILE, HistoryRecord, add_records
from pytest_sme2.report.history_series import (
    FEWEST,
    MISSING,
    FigureHistory,
    all_series,
    change_points,
)
from tests.support.histories import run, timed


def lines(records: Sequence[HistoryRecord]) -> list[str]:
    return list(history_lines(all_series(records)))


def track(records: Sequence[HistoryRecord], name: str) -> FigureHistory:
    (series,) = all_series(records)
    (found,) = [each for each in series.tracks if each.figure.name == name]
    return found


def test_steps_and_slow_drifts_are_found_and_nothing_else() -> None:
    chance = random.Random(0)
    planted = {40: 1.01, 90: 0.98, 300: 1.002}
    runs, level = [], 1e6
    for number in range(500):
        level *= planted.get(number, 1.0)
        if 400 <= number < 450:
            level *= 1.0001
        # What the runner's own start adds differs by this much.
        runs.append(run(number, level * (1 + chance.uniform(-1e-5, 1e-5))))
    found = track(runs, "instructions (on)").steps
    exact = [step for step in found if step.at in planted]
    assert [round(step.change or 0, 3) for step in exact] == [0.01, -0.02, 0.002]
    assert exact[0].commits() == "c0039..c0040"
    drift = [step for step in found if step not in exact]
    assert drift
    assert all(400 <= step.at < 450 for step in drift)


def test_ten_times_one_percent_is_told_as_one_sum() -> None:
    runs = [run(number, 1e6 * 1.01**number) for number in range(11)]
    newer = run(5, 1e6 * 1.01**5, versions={"executorch": "1.5.1"})
    told = lines([*runs[:5], newer])
    assert told[0] == "toy-fp32 on emulated: 6 runs, 2026-01-01"
    assert told[-1] == "      +1.00%  c0004..c0005; executorch none → 1.5.1"
    (total,) = [line for line in lines(runs) if "steps" in line]
    assert total == "  instructions (on): 1,104,622, +10.46% in 10 steps from 1,000,000"


def test_what_did_not_change_says_so_and_few_runs_are_not_judged() -> None:
    runs = [
        run(number, 1e6, {"latency (on)": (1.0 + number, 0.5 + number, 1.5 + number)})
        for number in range(3)
    ]
    assert lines(runs)[1:] == [
        "  latency (on): 3.000 ms [2.500 ms, 3.500 ms], 3 runs: too few to look for steps, "
        "from 15 runs on they are",
        "  instructions (on): 1,000,000, unchanged",
    ]


def test_of_many_cases_those_without_a_change_take_one_line() -> None:
    changed = [run(0, 1e6), run(1, 2e6)]
    same = [run(number, 1e6, case="other-fp32") for number in range(2)]
    told = lines([*changed, *same])
    assert told[:2] == [
        "2 cases on 1 device, 2 runs, 2026-01-01: 1 change",
        "  +100.00%  c0000..c0001; instructions (on) of toy-fp32 on emulated",
    ]
    assert told[2] == "other-fp32 on emulated: 2 runs, 2026-01-01, nothing changed"
    assert told[3:] == lines(changed)
    assert lines(same)[1] == "  instructions (on): 1,000,000, unchanged"


def test_a_figure_that_was_zero_has_no_percentage() -> None:
    runs = [run(number, 1, {"operators on SME2": 6 * number}) for number in range(2)]
    assert "  operators on SME2: 6, +6 in 1 step from 0" in lines(runs)


@pytest.mark.parametrize(
    ("facts", "name"),
    [
        ({"device": "linux-12ab"}, "toy-fp32 on linux-12ab"),
        ({"threads": 4}, "toy-fp32 on emulated, 4 threads"),
        ({"runner": "source"}, "toy-fp32 on emulated, source runner"),
        ({"conditions": {"governor": "powersave"}}, "toy-fp32 on emulated, governor powersave"),
    ],
)
def test_only_runs_of_the_same_device_and_conditions_are_compared(
    facts: dict[str, Any], name: str
) -> None:
    series = all_series([run(0, 1e6), run(1, 2e6, **facts)])
    assert {each.name for each in series} == {"toy-fp32 on emulated", name}
    assert not any(track.steps for each in series for track in each.tracks)


def test_clock_and_temperature_do_not_set_runs_apart() -> None:
    runs = [run(number, 1e6, conditions={"temperature": f"{number} C"}) for number in range(2)]
    assert len(all_series(runs)) == 1


def test_a_new_kernel_is_told_with_a_step() -> None:
    old, new = ({"kernel": f"Linux 6.{number}"} for number in range(2))
    told = lines([run(0, 1e6, conditions=old), run(1, 2e6, conditions=new)])
    assert "c0000..c0001; kernel Linux 6.0 → Linux 6.1" in told[-1]


def test_ten_times_one_percent_of_latency_are_found() -> None:
    pytest.importorskip("ruptures")
    planted = {100 + 20 * number: 1.01 for number in range(10)}
    runs = timed(400, planted, spread=0.005, seed=1)
    found = track(runs, "latency (on)")
    assert found.whole.change == pytest.approx(0.105, abs=0.01)
    (total,) = [line for line in lines(runs) if "steps" in line]
    assert total.startswith("  latency (on): ")
    steps = [(step.before.commit, step.after.commit) for step in found.steps]
    held = [at for at in planted if any(low < f"c{at:04}" <= high for low, high in steps)]
    assert len(held) >= 8


def test_without_the_library_it_says_what_was_not_looked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(history_series, "available", lambda: False)
    runs = timed(FEWEST, {}, spread=0.005, seed=1)
    told = lines(runs)
    assert told[-2].endswith("15 runs: steps were not looked for")
    assert told[-1] == MISSING
    assert "pytest-sme2[history]" in MISSING
    assert MISSING not in lines(runs[1:])


def test_a_noisy_figure_of_zero_is_not_compared() -> None:
    runs = [run(number, 1e6, {"speedup": 0.0}) for number in range(2)]
    (series,) = all_series(runs)
    assert [each.figure.name for each in series.tracks] == ["instructions (on)"]


@pytest.mark.parametrize("spread", [0.002, 0.01])
def test_creep_is_told_as_a_drift_and_blames_no_commit(spread: float) -> None:
    pytest.importorskip("ruptures")
    runs = timed(20, dict.fromkeys(range(1, 20), 1.02), spread, seed=3)
    (track,) = (track for track in all_series(runs)[0].tracks if track.figure.unit == "ms")
    assert not track.steps
    assert track.drift.change == pytest.approx(1.02**19 - 1, rel=0.1)
    told = "\n".join(history_lines(all_series(runs)))
    assert "as a drift over 20 runs (+2." in told or "as a drift over 20 runs (+1.9" in told
    # One step is none, whatever the noise.
    (track,) = all_series(timed(40, {20: 1.2}, spread, seed=3))[0].tracks
    assert track.drift is None
    assert len(track.steps) == 1


def test_history_fails_on_what_many_small_changes_add_up_to(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = [run(number, 1e6 * 1.004**number) for number in range(20)]
    add_records(tmp_path / FILE, runs)
    for options, code in (
        ((), 0),
        (("--fail-on", "5%"), 1),
        (("--fail-on", "10%"), 0),
        (("--fail-on", "5%", "--window", "10"), 0),
        (("--fail-on", "5%", "--since", "c0004"), 1),
        (("--fail-on", "5%", "--since", "c0014"), 0),
        (("--fail-on", "5%", "--since", "nowhere"), 2),
        (("--fail-on", "step=0.3%"), 1),
        (("--fail-on", "step=0.5%", "--fail-on", "10%"), 0),
        (("--since", "c0004"), 0),
        (("--fail-on", "gate"), 1),
        (("--fail-on", "gate", "--limit", "max_cost_growth=10%"), 0),
        (("--fail-on", "gate", "--since", "c0019"), 0),
        (("--fail-on", "gate", "--window", "10"), 2),
        (("--fail-on", "a lot"), 2),
        (("--window", "10"), 2),
    ):
        assert main(["history", str(tmp_path), *options]) == code, options
    assert "instructions (on) got 7.88% worse over 20 runs" in capsys.readouterr().err


pytest.importorskip("ruptures")


def noisy(levels: list[float], seed: int, spread: float = 0.005) -> list[float]:
    chance = random.Random(seed)
    return [level * (1 + chance.gauss(0, spread)) for level in levels]


def test_nothing_is_found_where_nothing_is() -> None:
    found = [
        change_points(noisy([5.0] * length, seed)) for seed in range(40) for length in (20, 150)
    ]
    assert sum(map(len, found)) <= 1


@pytest.mark.parametrize("factor", [1.03, 0.97])
def test_a_step_is_found_with_its_place_and_size(factor: float) -> None:
    (found,) = change_points(noisy([5.0] * 60 + [5.0 * factor] * 40, seed=3))
    assert found.earliest <= found.at <= found.latest
    assert found.earliest <= 60 <= found.latest
    assert found.latest - found.earliest <= 6
    assert found.new / found.old == pytest.approx(factor, abs=0.004)


def test_one_wild_run_is_no_change() -> None:
    values = noisy([5.0] * 60, seed=4)
    values[30] *= 1.5
    assert change_points(values) == []


def test_a_drift_becomes_steps_that_add_up() -> None:
    values = noisy([5.0] * 50 + [5.0 * 1.001**number for number in range(100)], seed=5)
    found = change_points(values)
    assert found[-1].new / found[0].old == pytest.approx(1.10, abs=0.02)


def test_the_last_runs_need_to_be_several() -> None:
    assert change_points(noisy([5.0] * 60 + [6.0] * 2, seed=7)) == []
    (found,) = change_points(noisy([5.0] * 60 + [6.0] * 4, seed=7))
    assert found.at == 60


def test_a_figure_without_noise_is_no_matter() -> None:
    assert change_points([7.0] * 30) == []
    (found,) = change_points([7.0] * 15 + [7.1] * 15)
    assert (found.at, found.earliest, found.latest) == (15, 15, 15)
