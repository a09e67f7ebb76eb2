"""What happened: changes of many figures, folded into few rows."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from pytest_sme2.cli.commands.history import history_lines
from pytest_sme2.cli.main import main
from pytest_sme2.report.history import FILE, HistoryRecord, add_records
from pytest_sme2.report.history_events import Event, events, only, size_of
from pytest_sme2.report.history_series import all_series
from tests.support import Command
from tests.support.histories import run, timed


def happened(records: Sequence[HistoryRecord]) -> list[Event]:
    return events(all_series(records))


def many(level: Callable[[int, int], float], cases: int = 4, runs: int = 20) -> list[HistoryRecord]:
    """Runs of several cases on two devices; ``level`` says how much of both arms."""
    return [
        run(
            number,
            None,
            {f"instructions ({arm})": 1e6 * level(case, number) for arm in ("on", "off")},
            case=f"m{case}-fp32",
            device=device,
            session=f"{device}{number}",
        )
        for number in range(runs)
        for device in ("emulated", "other")
        for case in range(cases)
    ]


def test_one_commit_is_one_row_whatever_it_changed() -> None:
    records = many(
        lambda case, number: (
            (1.1 if number >= 8 else 1) * (1.5 if number >= 12 and case == 2 else 1)
        )
    )
    large, small = happened(records)
    assert (large.where.commits(), large.cases) == ("c0011..c0012", ("m2-fp32",))
    assert small.where.commits() == "c0007..c0008"
    assert len(small.cases) == 4
    assert small.devices == ("emulated", "other")
    assert small.title() == "instructions (off, on)"
    assert size_of(all_series(records)) == "4 cases on 2 devices, 40 runs, 2026-01-01"


def test_many_small_changes_are_one_drift() -> None:
    # At 0.08 % each, as another library may do, with a step among them.
    records = many(lambda case, number: 1.0008 ** (number // 2) * (1.2 if number >= 9 else 1))
    step, drift = happened(records)
    assert (step.kind, step.where.commits()) == ("step", "c0008..c0009")
    assert (drift.kind, drift.where.commits()) == ("drift", "c0001..c0018")
    assert drift.changes[0].step.change == pytest.approx(1.0008**9 - 1, abs=1e-5)
    assert len(drift.cases) == 4
    # There and back again is none.
    assert {
        event.kind for event in happened(many(lambda _, number: 1 + 0.0008 * (number % 2)))
    } == {"step"}


def with_yardstick(factor: float, latency: float) -> list[HistoryRecord]:
    """Both change at the same commit."""
    pytest.importorskip("ruptures")
    return [
        replace(
            each,
            case=case,
            figures={**each.figures, "yardstick": (2 * (factor if at >= 20 else 1), None, None)},
        )
        for seed, case in enumerate(("a-fp32", "b-fp32"))
        for at, each in enumerate(timed(40, {20: latency}, 0.003, seed))
    ]


def test_a_machine_that_changed_is_one_row() -> None:
    (machine,) = happened(with_yardstick(1.06, 1.06))
    assert (machine.kind, machine.cases) == ("machine", ("a-fp32", "b-fp32"))
    assert machine.title() == "the machine: latency (on), yardstick"


@pytest.mark.parametrize("latency", [1.3, 0.9])
def test_a_machine_hides_nothing_that_is_larger_or_the_other_way(latency: float) -> None:
    step, machine = happened(with_yardstick(1.06, latency))
    assert (step.kind, step.title()) == ("step", "latency (on)")
    assert (machine.kind, machine.title()) == ("machine", "the machine: yardstick")


def test_one_yardstick_among_many_is_no_machine() -> None:
    records = with_yardstick(1.06, 1.06)
    alone = [
        each
        if each.case == "a-fp32"
        else replace(each, case=f"{other}-fp32", figures={"yardstick": (2, None, None)})
        for each in records
        for other in ("b", "c", "d")
        if each.case != "a-fp32" or other == "b"
    ]
    assert {event.kind for event in happened(alone)} == {"step"}


def test_events_are_chosen_by_figure_size_and_commit() -> None:
    records = many(lambda _, number: (1.02 if number >= 5 else 1) * (1.1 if number >= 9 else 1))
    series = all_series(records)
    found = events(series)
    assert len(found) == 2
    assert [event.where.commits() for event in only(found, "*", 0.05)] == ["c0008..c0009"]
    assert only(found, "latency*", 0) == []
    assert [len(event.changes) for event in only(found, "* (on)", 0)] == [8, 8]
    assert [event.where.commits() for event in events(series, "c0005")] == ["c0008..c0009"]


def test_the_command_follows_renamed_models(tmp_path: Path, sme2: Command) -> None:
    runs = [run(number, 1e6, case="old-fp32") for number in range(5)]
    runs += [run(number, 2e6, case="new-fp32") for number in range(5, 9)]
    add_records(tmp_path / FILE, runs)
    assert json.loads(sme2("history", tmp_path, "--json").out)["changes"] == []
    found = json.loads(sme2("history", tmp_path, "--json", "--rename", "old=new").out)
    ((change,),) = [event["figures"] for event in found["changes"]]
    assert (change["case"], change["change"]) == ("new-fp32", 1.0)
    # Two models of one run are not one.
    add_records(tmp_path / FILE, [run(8, 1e6, case="old-fp32")])
    sme2("history", tmp_path, "--rename", "old=new", code=2)
    sme2("history", tmp_path, "--rename", "old", code=2)


def test_the_gates_limits_decide(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def code(records: Sequence[HistoryRecord], *options: str) -> int:
        folder = tmp_path / str(len(list(tmp_path.iterdir())))
        add_records(folder / FILE, records)
        return main(["history", str(folder), "--fail-on", "gate", *options])

    pytest.importorskip("ruptures")
    noisy = timed(40, {20: 1.04}, 0.004, seed=1)
    assert code(timed(40, {}, 0.004, seed=1)) == 0
    assert code(noisy) == 1
    assert "latency (on) got 4.0" in capsys.readouterr().err
    assert code(noisy, "--limit", "max_regression=5%") == 0
    assert code(noisy, "--since", "c0030") == 0
    # No program is to blame for its machine.
    assert code(with_yardstick(1.06, 1.06)) == 0
    for operators, expected in (((0, 6), 0), ((6, 0), 1), ((0, 6, 3), 1), ((6, 0, 6), 0)):
        runs = [run(at, None, {"operators on SME2": each}) for at, each in enumerate(operators)]
        assert code(runs) == expected, operators
        assert code(runs, "--fail-on", "step=1%") == int(operators != (0, 6)), operators
    limits = tmp_path / "baselines" / "limits.toml"
    limits.parent.mkdir()
    limits.write_text('[variant.fp32]\nmax_regression = "9%"\n')
    assert code(noisy, "--baseline-dir", str(limits.parent)) == 0
    limits.write_text("max_regression = 'a lot'\n")
    assert code(noisy, "--baseline-dir", str(limits.parent)) == 2


@pytest.mark.parametrize(
    ("speeds", "said"),
    [
        ({"A": 2.0, "B": 2.02, "C": 1.98}, ()),
        ({"A": 2.0, "B": 2.3, "C": 1.98}, ("15% slower than is usual for the 3 of its kind",)),
        ({"A": 2.0, "B": 1.6, "C": 2.0}, ("25% faster",)),
        # Of two, nobody knows which one is right.
        ({"A": 2.0, "B": 2.3}, ("15% slower than is usual for the 2 of its kind",)),
        ({"A": 2.0}, ()),
    ],
)
def test_a_phone_that_differs_from_its_kin_is_named(
    speeds: dict[str, float], said: tuple[str, ...]
) -> None:
    runs = [
        run(at, 1e6, {"yardstick": speed}, device="android", conditions={"phone": serial})
        for at in range(3)
        for serial, speed in speeds.items()
    ]
    told = [line for line in history_lines(all_series(runs)) if line.startswith("the phone")]
    assert len(told) == len(said)
    for line, words in zip(told, said, strict=True):
        assert line.startswith(f"the phone B is {words}")
