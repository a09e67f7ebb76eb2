from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

from pytest_sme2.report.case_summary import noise_of, noise_text
from pytest_sme2.report.markdown import case_report, run_report, step_summary
from pytest_sme2.report.text import code, prose
from pytest_sme2.results.case import Check
from pytest_sme2.results.run import Arm
from pytest_sme2.results.timing import Outcome
from pytest_sme2.session.run_directory import read_record
from tests.support.gate_examples import census
from tests.support.golden import check_golden
from tests.support.profiles import Call
from tests.support.records import HOSTILE, built, changed, stored_dumps, toy_run, write_case


def test_a_case_reads_like_this(tmp_path: Path) -> None:
    folder = toy_run(tmp_path)[0]
    check = Check("latency (on)", Outcome.REGRESSED, "3.1 % slower than the baseline.")
    check_golden("case.md", case_report(replace(read_record(folder), checks=(check,))))


def test_an_emulated_run_reads_like_this(tmp_path: Path) -> None:
    records = [read_record(folder) for folder in toy_run(tmp_path, emulated=True)]
    text = run_report(records)
    check_golden("run_emulated.md", text)
    assert not re.search(r"[0-9] (ms|us)\b|of the time", text)
    assert "Latency" not in text


def test_of_many_cases_those_are_in_full_that_failed(tmp_path: Path) -> None:
    record = read_record(toy_run(tmp_path)[0])
    good, bad = Check("cost", Outcome.PASS, "As before."), Check("cost", Outcome.REGRESSED, "More.")
    records = [
        replace(
            changed(record, model=f"toy{number}"),
            id=f"toy{number}-fp16",
            checks=(bad if number % 60 == 7 else good,),
        )
        for number in range(300)
    ]
    headings = [line for line in run_report(records[:50]).splitlines() if line.startswith("## `")]
    assert len(headings) == 50
    text = run_report(records)
    told = [line for line in text.splitlines() if line.startswith("## `")]
    assert told == [f"## `toy{number}-fp16`" for number in range(7, 300, 60)]
    assert "The 295 other cases are in full in their own folders." in text
    assert all(f"| `{record.id}` |" in text for record in records)
    assert len(text) < 100_000


def test_what_a_time_is_made_of_stands_beside_it(tmp_path: Path) -> None:
    record = read_record(toy_run(tmp_path)[0])
    assert record.measurement is not None
    clocks = {"mean clock (on)": "3.000 GHz", "mean clock (off)": "3.200 GHz"}
    pairs = tuple(
        replace(pair, energy_nj=(2e6, 1e6 + pair.index)) for pair in record.measurement.pairs
    )
    paired = replace(record.measurement, pairs=pairs)
    text = case_report(replace(changed(record, conditions=clocks), measurement=paired)).replace(
        "\\", ""
    )
    assert "million cycles at 3.00 GHz with SME2 on, " in text
    assert "million cycles at 3.20 GHz with SME2 off; SME2's clock is 6.2% lower." in text
    assert "estimates it: 1 mJ [1, 1] with SME2 on, 2 mJ [2, 2] with SME2 off." in text
    assert "uncertain" not in text
    blocks = replace(record.measurement, blocks=(0.6, 0.61, 0.62, 0.63))
    doubtful = case_report(replace(record, measurement=blocks))
    assert "2.00x in short turns: one arm changes the other, so the speedup is unc" in doubtful
    refused = {"cycles": "not counted (perf_event_open: Permission denied)"}
    told = case_report(changed(record, conditions=refused))
    assert told.count("Cycles: not counted (perf_event_open: Permission denied).") == 1


def test_the_ci_summary_is_short_and_names_what_failed(tmp_path: Path) -> None:
    records = [read_record(folder) for folder in toy_run(tmp_path)]
    bad = Check("speedup", Outcome.REGRESSED, "Only 1.1x, at least 1.5x were asked for.")
    text = step_summary([replace(records[0], checks=(bad,)), *records[1:]])
    assert "- `toy-fp16`: speedup REGRESSED: Only 1.1x" in text
    assert len(text.splitlines()) < 40


def test_a_case_of_several_runs_stands_together(tmp_path: Path) -> None:
    mac = [read_record(folder) for folder in toy_run(tmp_path / "mac")]
    dumps = {Arm.OFF: stored_dumps("toy_fp16")[Arm.OFF]}
    alone: dict[str, Any] = {"medians_ns": {Arm.OFF: (30e6,) * 4}, "speedup": None, "kernels": {}}
    old = read_record(write_case(tmp_path / "old", "toy", "fp16", dumps, **alone))
    text = run_report([*mac, old], [*["mac"] * 3, "old"])
    rows = [line.split(" | ") for line in text.splitlines() if line.startswith("| `toy-")]
    assert [row[0] for row in rows] == [
        f"| `toy-{name}`" for name in ("fp16", "fp16", "fp32", "int8")
    ]
    assert rows[0][2:7] == ["`mac`", "2 of 3", "20.000 ms", "10.000 ms", "2.00x \\[1.97, 2.03\\]"]
    assert rows[1][2:7] == ["`old`", "-", "30.000 ms", "-", "-"]
    assert "## `toy-fp16 (old)`" in text


def test_hostile_names_stay_names(tmp_path: Path) -> None:
    record = read_record(write_case(tmp_path, HOSTILE, "fp16", stored_dumps("toy_fp16")))
    bad = Check(HOSTILE, Outcome.PASS, HOSTILE)
    for text in (
        run_report([replace(record, checks=(bad,))]),
        step_summary([record]),
        run_report([record, record], [HOSTILE, "other"]),
    ):
        # What is indented by four is code, as is what stands between backticks.
        prose_lines = "\n".join(x for x in text.splitlines() if not x.startswith("    "))
        outside = re.sub(r"(`+)(?!`).*?(?<!`)\1(?!`)", "", prose_lines)
        assert "<script" not in outside
        assert "<img" not in outside
        rows = [line for line in text.splitlines() if line.startswith("|")]
        assert all(line.endswith("|") for line in rows)


def test_names_and_sentences_are_escaped() -> None:
    assert code("a`b|c") == "`` a`b\\|c ``"
    assert code("a\nb") == "`a\\nb`"
    assert code("") == ""
    assert prose("*x* [y](z) <b>&") == "\\*x\\* \\[y\\](z) &lt;b&gt;&amp;"


def test_a_case_without_etdumps_has_no_section_about_operators(tmp_path: Path) -> None:
    bare = write_case(tmp_path, "toy", "fp16", {}, kernels={}, weights="trained")
    record = read_record(bare)
    text = case_report(record)
    assert "## Latency\n" in text
    for title in ("Bottlenecks by operator", "Portable and delegated", "Kernel insights",
                  "Findings and recommendations", "Category breakdown"):  # fmt: skip
        assert f"## {title}\n" not in text
    assert "Weights are random" not in text
    assert "Findings" not in step_summary([record])
    assert "10.000 ms" in step_summary([record])


def test_sections_say_what_there_is(tmp_path: Path) -> None:
    calls: list[Call] = [[("Convolution (NHWC, F32) IGEMM #1", 50_000)], ("mm.out", 5_000)]
    kernels = {Arm.ON: census(Arm.ON, "kai_matmul_sme2_mopa"), Arm.OFF: census(Arm.OFF)}
    text = case_report(built(tmp_path, calls, calls, kernels=kernels))
    assert re.search(
        "- delegated: 1 operator, .* % of the time\n- portable: 1 operator, .*: 1 `nat", text
    )
    assert "| SME2 on | 1 sme2 | emulator |" in text
    assert "| SME2 off | " not in text.partition("Kernel insights")[2]


def test_a_pair_was_measured_to_what_its_measurement_says(tmp_path: Path) -> None:
    record = read_record(toy_run(tmp_path)[0])
    assert noise_of(record) == (0.0021, 0.0114)
    quiet = "noise floor 0.2 %, smallest detectable difference 1.1 %"
    assert noise_text([record]) == quiet
    loud = replace(record.measurement, noise_floor=0.031, detectable=None)
    noisiest = replace(record, id="b", measurement=loud)
    assert noise_text([record, noisiest]) == "noise floor 3.1 %, of b, the noisiest case"
    few = replace(record, measurement=replace(record.measurement, noise_floor=None))
    for unknown in (few, changed(record, emulated=True), replace(record, measurement=None)):
        assert noise_of(unknown) is None
