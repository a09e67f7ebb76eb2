from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pytest_sme2.report.findings import cost_text, run_findings
from pytest_sme2.report.terminal import MOST_FINDINGS, run_lines
from pytest_sme2.report.text import WIDTH
from pytest_sme2.results.case import Check
from pytest_sme2.results.run import AS_EXPORTED, Arm
from pytest_sme2.results.timing import Estimate, Outcome
from pytest_sme2.session.run_directory import CaseRecord, read_record
from pytest_sme2.system.cache import untold
from tests.support.gate_examples import frontier
from tests.support.golden import check_golden
from tests.support.records import HOSTILE, changed, stored_dumps, toy_run, write_case

# Words that would speak of time; "times" as in "no times" is in the note that explains it.
TIME_WORDS = (" ms", " us", "% of the time", "faster", "as fast", "bottleneck", "latency is")


def records(root: Path, **choices: bool) -> list[CaseRecord]:
    return [read_record(folder) for folder in toy_run(root, **choices)]


def judged(record: CaseRecord, outcome: Outcome) -> CaseRecord:
    slower = 1.0 if outcome is Outcome.PASS else 1.115
    return replace(
        record,
        checks=(
            Check("operators (on)", Outcome.PASS, "The same.", 6, 6, "count", None, 6),
            Check(
                "latency (on)", outcome, "Said.", 9e6, 9e6 * slower, "ns",
                (slower - 0.013, slower + 0.014), 0.02,
            ),
        ),
    )  # fmt: skip


def flat(lines: list[str]) -> str:
    return " ".join(" ".join(lines).split())


def test_a_run_on_hardware_reads_like_this(tmp_path: Path) -> None:
    found = records(tmp_path)
    found[0] = judged(found[0], Outcome.REGRESSED)
    found[1] = judged(found[1], Outcome.PASS)
    check_golden("terminal.txt", "\n".join(run_lines(found)) + "\n")
    check_golden("terminal_verbose.txt", "\n".join(run_lines(found, 1)) + "\n")


def test_an_emulated_run_reads_like_this(tmp_path: Path) -> None:
    check_golden(
        "terminal_emulated.txt", "\n".join(run_lines(records(tmp_path, emulated=True))) + "\n"
    )


def test_runs_from_the_cache_are_said_to_be(tmp_path: Path) -> None:
    found = records(tmp_path, emulated=True)
    assert "from the cache" not in flat(run_lines(found))
    again = [replace(record, remembered=(Arm.ON, Arm.OFF)) for record in found]
    text = flat(run_lines(again))
    assert "6 emulated runs taken from the cache" in text
    assert "--sme2-fresh makes them again" in text


def test_nothing_is_said_of_emulated_time(tmp_path: Path) -> None:
    text = flat(run_lines(records(tmp_path, emulated=True), 2))
    assert not [word for word in TIME_WORDS if word in text]
    assert "no time is shown" in text


def test_variants_name_their_device_where_there_are_several(tmp_path: Path) -> None:
    found = [*records(tmp_path / "a"), *records(tmp_path / "b", emulated=True)]
    assert " in fp32 on emulated" in flat([cost_text(entry) for _, entry in run_findings(found)])
    assert "on linux" not in flat([cost_text(entry) for _, entry in run_findings(found[:3])])


def test_quiet_prints_the_table_alone_and_quieter_nothing(tmp_path: Path) -> None:
    found = records(tmp_path)
    table = run_lines(found, -1)
    assert len(table) == 4
    assert run_lines(found)[:4] == table
    compared = run_lines([judged(found[0], Outcome.IMPROVED), *found[1:]], -1)
    assert compared[5].startswith("case     check ")
    assert run_lines(found, -2) == []
    assert run_lines([]) == []


def test_many_models_stay_few_lines(tmp_path: Path) -> None:
    folders = [
        write_case(tmp_path, f"model{number}", "fp16", stored_dumps("toy_fp16"))
        for number in range(9)
    ]
    lines = run_lines([read_record(folder) for folder in folders])
    findings = [line for line in lines if line.startswith("- model")]
    assert len(findings) == MOST_FINDINGS
    assert any("more findings with -v" in line for line in lines)


def test_programs_go_by_their_names(tmp_path: Path) -> None:
    first = records(tmp_path)[0]
    programs = [
        replace(changed(first, model=name, variant=AS_EXPORTED), id=f"{name}-{AS_EXPORTED}")
        for name in ("one", "two:prefill")
    ]
    lines = run_lines([*programs, first], verbosity=-1)
    assert [line.split()[0] for line in lines] == ["case", "one", "two:prefill", first.id]


@pytest.mark.parametrize("emulated", [False, True])
def test_no_line_is_wider_than_a_terminal(tmp_path: Path, emulated: bool) -> None:
    timed: dict[str, Any] = {
        "medians_ns": {Arm.ON: (12345e6,), Arm.OFF: (99999e6,)},
        "speedup": Estimate(12.34, 11.11, 13.57, 0.99, 10),
        "peak_bytes": {Arm.ON: 4_000_000_000},
    }
    facts: dict[str, Any] = {"emulated": True} if emulated else timed
    dumps = stored_dumps("mobile_fp16")
    folders = [
        write_case(tmp_path, name, "int8_dynamic@1024", dumps, **facts)
        # One word that is wider than the terminal would be kept whole.
        for name in ("m" * 40, "short")
    ]
    found = [judged(read_record(folder), Outcome.INCONCLUSIVE) for folder in folders]
    text = "\n".join(run_lines(found, 1))
    assert max(len(line) for line in text.splitlines()) <= WIDTH


def test_a_hostile_name_stays_a_name(tmp_path: Path) -> None:
    record = read_record(
        write_case(tmp_path, HOSTILE + "\x1b[2J", "fp16", stored_dumps("toy_fp16"))
    )
    text = "\n".join(run_lines([record], 1))
    assert "\x1b" not in text
    assert "\n../../" not in text


def test_the_best_number_of_threads_is_a_table_and_a_sentence(tmp_path: Path) -> None:
    first, *_ = records(tmp_path)
    unsure = frontier(unsure=(4,))
    lines = run_lines([changed(first, frontier=unsure)], -1)
    begun = lines.index(f"{first.id}:")
    table = [flat([re.sub(r"\[.*?\]", "[]", line)]) for line in lines[begun + 1 : begun + 5]]
    assert table == [
        "threads SME2 NEON cores",
        "1 3.000 ms [] 6.000 ms [] 7-7",
        "2 2.000 ms [] * 4.000 ms [] 6-7",
        "4 2.200 ms [] 2.800 ms [] * 4-7",
    ]
    text = flat(lines)
    assert "Ship SME2 with 2 threads: 1.40x [1.37, 1.43] of your best NEON (4 threads)." in text
    assert "chosen on one half of 20 rounds, judged on the other; 99.0% confidence" in text
    assert "not told apart from the best of its arm: SME2 with 4 threads" in text


@pytest.mark.parametrize(
    ("outcome", "words"), [(Outcome.PASS, "all PASS"), (Outcome.REGRESSED, "1 REGRESSED")]
)
def test_what_it_was_measured_against_is_said(tmp_path: Path, outcome: Outcome, words: str) -> None:
    checks = (
        Check("operators (on) against release", Outcome.PASS, "."),
        Check("cost against release", outcome, "."),
        Check("outputs against off", Outcome.PASS, "."),
    )
    record = replace(records(tmp_path, emulated=True)[0], checks=checks)
    assert f"- against release: 2 checks, {words} -" in flat(run_lines([record]))


def test_a_case_without_a_problem_takes_five_lines(tmp_path: Path) -> None:
    passed = judged(records(tmp_path)[0], Outcome.PASS)
    lines = "\n".join(run_lines([passed])).splitlines()
    notes = lines.index("Good to know:")
    assert len([line for line in (*lines[:notes], lines[-1]) if line]) <= 5


def test_what_figures_mean_is_said_once_per_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SME2_CACHE_DIR", str(tmp_path / "cache"))
    found = records(tmp_path, emulated=True)
    first, second = (flat(run_lines(found, untold=untold)) for _ in range(2))
    assert "no time is shown" in first
    assert "weights are random" in first
    assert "no time is shown" not in second
    assert "weights are random" not in second
    assert "with -v, and in report.md" in second


def test_names_that_do_not_fit_have_a_line_of_their_own(tmp_path: Path) -> None:
    """Cut in the middle, two data types of a model or two models read the same."""
    first, *others = records(tmp_path)
    names = [f"a_model_with_a_name_of_some_length-{variant}" for variant in ("fp32", "int8@64")]
    renamed = [replace(first, id=name) for name in names]
    lines = run_lines([*renamed, *others], width=72)
    places = [lines.index(name) for name in names]
    assert all(lines[place + 1].split()[:3] == ["2", "of", "3"] for place in places)
