"""What every report shows of a case."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pytest_sme2.profile.cost import rest, split
from pytest_sme2.report.case_summary import (
    ENGINES,
    SME1,
    case_notes,
    decision_text,
    engine_names,
    engine_shares,
    kernel_operators,
    millions,
    tokens_per_second,
)
from pytest_sme2.report.html import Case, report_document
from pytest_sme2.report.markdown import cost_lines
from pytest_sme2.report.terminal import run_lines
from pytest_sme2.report.writing import write_case
from pytest_sme2.results.case import CaseResult
from pytest_sme2.results.profile import Category
from pytest_sme2.results.run import Arm, Fingerprint
from pytest_sme2.results.timing import Frontier, Ship
from pytest_sme2.session.run_directory import find_records, read_record, write_record
from tests.support.gate_examples import frontier
from tests.support.records import changed, cost_of, toy_run

ROOT = Path(__file__).parents[3]


@pytest.fixture
def case(tmp_path: Path) -> Case:
    folder = toy_run(tmp_path, emulated=True)[0]
    record = read_record(folder)
    costs = {
        arm: cost_of(record.measured, arm, 1_000_000 if arm is Arm.ON else 3_000_000)
        for arm in record.measured.profiles
    }
    write_record(folder, changed(record, costs=costs))
    return folder, read_record(folder)


def test_the_terminal_shows_instructions_and_says_what_they_are(case: Case) -> None:
    lines = run_lines([case[1]])
    operators = len(case[1].measured.profiles[Arm.ON].operators)
    assert lines[0].split()[:3] == ["case", "on", "SME2"]
    assert "work Minst off Minst on instructions the rest" in lines[0]
    assert millions(operators * 3_000_000 + 500) in lines[1]
    assert "3.00x fewer" in lines[1]
    assert all(len(line) <= 80 for line in "\n".join(lines).splitlines())
    told = " ".join(" ".join(lines).split())
    assert "not time: where phones were measured, SME2 cut the time 1.8 to 3.9 times" in told
    assert "latency" not in lines[0]


def test_what_executed_it_is_told_apart_and_adds_up() -> None:
    """Added up by hand from the operators and kernels of the sample."""
    (folder,) = find_records(ROOT / "docs" / "sample" / "emulated" / "toy_cnn-fp32")
    measured = read_record(folder).measured
    on = measured.costs[Arm.ON]
    assert split(on) == {
        "outer products, fp32": 65_472,
        "other streaming": 215_752 + 123_600 + 26_688 + 8_681 - 65_472,
        "NEON and scalar": 741_587 - 374_721,
    }
    assert split(measured.costs[Arm.OFF]) == {"other streaming": 0, "NEON and scalar": 6_214_807}
    matrix = 168_507 + 110_267 + 32_411 + 61_891 + 5_930 + 3_351
    left = 741_587 - matrix
    assert rest(on) == (left / 741_587, Category.CONV, 191_165 / left)
    assert next(iter(cost_lines(measured))) == (
        "48.4 % of the instructions that are left are no matrix work, and SME2 cannot help with "
        "them: 53.2 % of these are depthwise convolutions."
    )


def test_what_a_token_costs_is_said_where_the_model_counts_tokens(case: Case) -> None:
    measured = case[1].measured
    assert not any("per token" in line for line in case_notes(case[1]))
    off, on = (round(measured.costs[arm].total.instructions / 4) for arm in (Arm.OFF, Arm.ON))
    text = f"nstructions per token: SME2 off {off:,}, SME2 on {on:,}"
    counted = changed(case[1], tokens=4)
    assert f"I{text}." in case_notes(counted)
    lines = " ".join(" ".join(run_lines([counted])).split())
    assert f"i{text}" in lines


def test_what_was_not_counted_is_said(case: Case) -> None:
    record = changed(case[1], costs={}, uncounted="with 2 threads")
    assert "Minst" not in run_lines([record])[0]
    assert "with 2 threads" in " ".join(run_lines([record]))
    assert list(cost_lines(record.measured)) == ["Nothing was counted: with 2 threads."]


def test_the_files_of_a_case_hold_the_cost(case: Case) -> None:
    folder, record = case
    write_case(folder, record)
    (summary,) = folder.glob("*_pipeline_summary.json")
    arms = json.loads(summary.read_text())["arms"]
    assert arms["on"]["cost"]["outer_products"] == 10_000 * arms["on"]["operators"]
    assert "| instructions |" in summary.with_suffix(".md").read_text()


def test_the_page_holds_instructions_operator_by_operator(case: Case) -> None:
    document: Any = report_document([case])
    shown = next(document["cases"])
    titles, *rows = shown["figures"][1]
    assert titles == ["per inference", "SME2 off", "SME2 on"]
    (whole,) = (row[1:] for row in rows if row[0] == "all instructions")
    totals = [case[1].measured.costs[arm].total.instructions for arm in (Arm.OFF, Arm.ON)]
    assert whole == [f"{total:,}" for total in totals]
    arm = shown["arms"]["on"]["cost"]
    assert sum(arm["instructions"]) + arm["runtime"] == arm["total"]
    assert sum(arm["categories"]) + arm["runtime"] == arm["total"]


def test_tokens_per_second_are_those_of_the_median_process(tmp_path: Path) -> None:
    record = read_record(toy_run(tmp_path)[0])
    medians = {Arm.ON: (1e6, 2e6, 9e6), Arm.OFF: (4e6,)}
    timed = replace(record.measured, tokens=8, medians_ns=medians)
    assert tokens_per_second(timed) == "tokens per second: SME2 off 2,000.0, SME2 on 4,000.0"
    lines = case_notes(replace(record, measured=timed))
    assert "Tokens per second: SME2 off 2,000.0, SME2 on 4,000.0." in lines
    assert "okens" not in "\n".join(case_notes(record))


@pytest.fixture
def measured(tmp_path: Path) -> CaseResult:
    return read_record(toy_run(tmp_path)[0]).measured


def counted(measured: CaseResult, instructions: int) -> CaseResult:
    cost = cost_of(measured, Arm.ON, instructions)
    operators = tuple(
        replace(entry, kernels=((f"lib.so+0x{entry.index}", 5), ("shared", 1 + entry.index)))
        for entry in cost.operators
    )
    cost = replace(cost, operators=operators)
    return replace(measured, emulated=True, costs={Arm.ON: cost})


def test_shares_are_of_time_of_instructions_or_of_operators(measured: CaseResult) -> None:
    number = len(measured.profiles[Arm.ON].operators)
    found = engine_shares(measured)
    assert found[0] == "time"
    assert sum(found[1]) == pytest.approx(1)
    for emulated, unit in (
        (counted(measured, 7), "instructions"),
        (replace(measured, emulated=True), "operators"),
    ):
        found = engine_shares(emulated)
        assert found[0] == unit
        assert found[1] == pytest.approx([2 / number, (number - 4) / number, 2 / number])
    assert engine_shares(replace(measured, profiles={})) is None
    assert engine_shares(counted(measured, 0)) is None


def test_a_kernel_belongs_to_the_operator_that_runs_it_most(measured: CaseResult) -> None:
    found = kernel_operators(counted(measured, 7))
    operators = measured.profiles[Arm.ON].operators
    assert found["lib.so+0x0"] == operators[0].operator.name
    sums: dict[str, int] = {}
    for member in operators:
        sums[member.operator.name] = sums.get(member.operator.name, 0) + 1 + member.index
    assert found["shared"] == max(sums, key=lambda name: sums[name])
    assert kernel_operators(measured) == {}


def test_nothing_is_called_neon_on_another_cpu(measured: CaseResult) -> None:
    assert engine_names([measured]) == ENGINES[:SME1]
    foreign = replace(measured, fingerprint=Fingerprint("linux", (("platform", "linux-x86_64"),)))
    assert engine_names([measured, foreign]) == ("SME2", "XNNPACK", "portable")


OFF = (Arm.OFF,)


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (frontier(), "Ship SME2 with 2 threads: 1.40x [1.37, 1.43] of your best NEON (4 threads)."),
        (
            frontier(0.73, Ship.REFERENCE),
            "NEON with 4 threads is better: SME2 with 2 threads is 0.73x [0.72, 0.74] of it.",
        ),
        (
            frontier(1.0, Ship.EITHER),
            "No difference that matters: SME2 with 2 threads is 1.00x [0.98, 1.02] of your best "
            "NEON (4 threads).",
        ),
        (
            frontier(1.0, Ship.UNCLEAR),
            "Too close to tell: SME2 with 2 threads is 1.00x [0.98, 1.02] of your best NEON "
            "(4 threads).",
        ),
        (frontier(arms=OFF), "Ship 4 threads: 1.40x [1.37, 1.43] of the next best (2 threads)."),
    ],
)
def test_the_decision_is_one_sentence(found: Frontier, said: str) -> None:
    assert decision_text(found) == said


def test_a_chip_without_sme2_is_named() -> None:
    assert decision_text(frontier(), sme1=True).startswith("Ship SME1 with 2 threads")
