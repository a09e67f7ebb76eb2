"""The comment for a pull request."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from pytest_sme2.report.comment import MARK, MOST_CASES, comment_text
from pytest_sme2.results import Check, Outcome
from pytest_sme2.session.run_directory import read_record
from tests.support.records import HOSTILE, stored_dumps, toy_run, write_case

SLOWER = Check(
    "latency (on)", Outcome.REGRESSED, "11.5 % slower.", 10e6, 11.15e6, "ns", (1.102, 1.129), 0.02,
    where="`x.flip(-1)` at net.py:8",
)  # fmt: skip
SAME = Check("latency (on)", Outcome.PASS, "The same.", 10e6, 10e6, "ns", (0.99, 1.01), 0.02)


def test_the_verdict_is_one_line_and_the_table_small(tmp_path: Path) -> None:
    found = [read_record(folder) for folder in toy_run(tmp_path)]
    found = [replace(found[0], checks=(SAME,)), replace(found[1], checks=(SLOWER,)), found[2]]
    lines = comment_text(found).splitlines()
    assert lines[0] == MARK
    assert lines[1] == (
        "**SME2: ❌ 11.5 % slower, limit 2 %: `x.flip(-1) at net.py:8`, `toy-fp32` "
        "(1 failed, 1 passed, 1 not checked)**"
    )
    assert lines[3].startswith("| case | check | baseline | now | change | limit | verdict |")
    assert lines[5] == (
        "| `toy-fp32` | latency (on) | 10.000 ms | 11.150 ms | +11.5 % \\[+10.2, +12.9\\] | 2 % "
        "| ❌ REGRESSED |"
    )
    assert lines[6].endswith("| ✅ PASS |")
    assert "- `toy-fp32`: **latency**: `x.flip(-1) at net.py:8` 11.5 % slower." in lines


def test_what_passed_needs_no_more_words(tmp_path: Path) -> None:
    found = [replace(read_record(folder), checks=(SAME,)) for folder in toy_run(tmp_path)]
    text = comment_text(found)
    assert "**SME2: ✅ 3 passed**" in text
    assert "<details>" not in text


def test_an_emulated_run_speaks_of_cost_and_not_of_time(tmp_path: Path) -> None:
    cost = Check("cost (on)", Outcome.PASS, "The same.", 742_000, 742_000, "count", None, 742_371)
    found = [
        replace(read_record(folder), checks=(cost,)) for folder in toy_run(tmp_path, emulated=True)
    ]
    text = comment_text(found)
    assert "| 0.742 Minst | 0.742 Minst | 0.00 % | 0.05 % |" in text
    assert " ms" not in text
    assert "no time" in text


def test_many_cases_and_hostile_names_stay_a_small_table(tmp_path: Path) -> None:
    evil = read_record(write_case(tmp_path, HOSTILE, "fp16", stored_dumps("toy_fp16")))
    evil = replace(evil, checks=(replace(SLOWER, metric=HOSTILE, message=HOSTILE),))
    text = comment_text([evil] * 30)
    rows = [line for line in text.splitlines() if line.startswith("| `")]
    assert len(rows) == MOST_CASES
    assert "10 more cases in report.md." in text
    assert "<img" not in text.replace("`<img", "").replace("`` <img", "")
    assert comment_text([]).splitlines()[1] == "**SME2: nothing was measured**"
