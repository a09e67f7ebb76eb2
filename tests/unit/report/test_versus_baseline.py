"""What a comparison with the baseline says."""

from __future__ import annotations

import dataclasses
import json
import shlex
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pytest_sme2.profile.operators import structure_of
from pytest_sme2.report.versus_baseline import (
    MOST_CASES,
    MOST_LINES,
    WIDTH,
    Update,
    change_text,
    comment_json,
    count_cases,
    deciding,
    effect,
    failure_text,
    headline,
    interval_text,
    limit_text,
    update_lines,
    worst_first,
)
from pytest_sme2.results.case import BaselineChange, CaseResult, Check
from pytest_sme2.results.profile import Profile
from pytest_sme2.results.run import Arm
from pytest_sme2.results.timing import Outcome
from pytest_sme2.session.case_result import shares_of
from pytest_sme2.session.run_directory import CaseRecord, read_record
from pytest_sme2.verdict import baselines, judging
from pytest_sme2.verdict.limits import default_limits
from pytest_sme2.verdict.structure import TRACED_PAIRS, growth_of
from tests.support.every_check import check_all
from tests.support.gate_examples import (
    CONV_ON,
    TRANSPOSE,
    baseline,
    emulated,
    measured,
    medians,
    structure,
)
from tests.support.profiles import profile_of
from tests.support.records import stored_dumps, toy_run, write_case

SLOWER = Check(
    "latency (on)", Outcome.REGRESSED, "", 10e6, 11.15e6, "ns", (1.102, 1.129), limit=0.02
)
OPERATORS = Check("operators (on)", Outcome.REGRESSED, "", 13, 16, "count", limit=13)
COST = Check("cost (on)", Outcome.PASS, "", 1_000_000, 1_000_000, "count", limit=1_000_500)


@pytest.mark.parametrize(
    ("check", "told"),
    [
        (SLOWER, "+11.5 % | 2 % | 11.5 % slower, limit 2 %"),
        (OPERATORS, "+3 |  | operators (on) 13 -> 16"),
        (
            Check("cost (off)", Outcome.REGRESSED, "", 3.9e6, 108.7e6, "count", limit=3.902e6),
            "+2687.18 % | 0.0513 % | 28x more instructions with SME2 off",
        ),
        (
            Check(
                "decode cost (on)", Outcome.REGRESSED, "", 741_282, 815_410.5, "count", limit=742e3
            ),
            "+10.00 % | 0.0969 % | 10 % more instructions per new token, limit 0.0969 %",
        ),
        (
            Check("cost (on)", Outcome.REGRESSED, "", 4_202_356, 4_202_663, "count", limit=4204457),
            "+0.01 % | 0.05 % | 0.00731 % more instructions in all, but operators grew by more "
            "than the limit of 0.05 %",
        ),
        (
            Check("latency (on) against 1.4", Outcome.IMPROVED, "", 10e6, 8e6, "ns", limit=0.02),
            "-20.0 % | 2 % | 20 % faster than 1.4, limit 2 %",
        ),
        (
            Check("speedup", Outcome.REGRESSED, "", 2.0, 1.7, "ratio", (1.6, 1.8), limit=1.8),
            "-15.0 % | 1.80x | speedup 2.00x -> 1.70x, limit 1.80x",
        ),
        (
            Check("share of CONV", Outcome.REGRESSED, "", 0.4, 0.5, "share", None, limit=0.45),
            "+10.0 points | +5 points | share of CONV +10.0 points, limit +5 points",
        ),
        (
            Check("peak memory (on)", Outcome.REGRESSED, "", 50e6, 60e6, "bytes", limit=55e6),
            "+20.0 % | 10 % | 20 % more memory, limit 10 %",
        ),
        (
            Check("peak memory (on)", Outcome.REGRESSED, "", None, 60e6, "bytes", limit=55e6),
            "- | 55.00 MB | peak memory (on) 60.00 MB, limit 55.00 MB",
        ),
        (
            Check("evidence", Outcome.INVALID, "No kernel ran. Look.", new=0, unit="count"),
            "- |  | evidence INVALID: No kernel ran",
        ),
    ],
)
def test_a_check_in_a_few_words(check: Check, told: str) -> None:
    """Its change, its limit and its effect."""
    assert f"{change_text(check)} | {limit_text(check)} | {effect(check)}" == told


def test_the_interval_is_that_of_the_change() -> None:
    assert interval_text(SLOWER) == "[+10.2, +12.9]"
    speedup = Check("speedup", Outcome.PASS, "", 2.0, 1.9, "ratio", (1.8, 2.0))
    assert interval_text(speedup) == "[-10.0, +0.0]"
    assert interval_text(OPERATORS) == ""


def test_a_verdict_rests_on_the_worst_check_that_says_most() -> None:
    off = replace(SLOWER, metric="latency (off)")
    assert deciding([OPERATORS, COST, off, SLOWER]) is SLOWER
    assert deciding([replace(OPERATORS, verdict=Outcome.PASS), COST]) is COST
    invalid = Check("evidence", Outcome.INVALID, "")
    assert deciding([SLOWER, invalid]) is invalid
    assert deciding([]) is None


def test_the_headline_is_the_largest_effect_with_the_place_that_is_known() -> None:
    cost = Check("cost (on)", Outcome.REGRESSED, "", 3.9e6, 108.7e6, "count", limit=3.902e6)
    off = replace(cost, metric="cost (off)", new=12e6)
    flip = replace(OPERATORS, where="`x.flip(-1)` at net.py:8")
    assert headline([flip, off, cost]) == ("28x more instructions", flip.where)
    wrong = Check(
        "outputs against off", Outcome.FAILED, "", new=0.5, unit="share",
        details=("output 0 (float32, on): largest error 3",),
    )  # fmt: skip
    assert headline([flip, cost, wrong])[0] == "wrong outputs against off: largest error 3"
    # What is only suspected does not stand before what is certain.
    suspected = replace(SLOWER, verdict=Outcome.INVALID)
    assert deciding([suspected, flip]) is flip
    assert headline([COST]) == ("cost (on) 1.000 Minst -> 1.000 Minst, limit 0.05 %", "")


def test_cases_are_counted_and_failing_ones_come_first(tmp_path: Path) -> None:
    first, second, third = (read_record(folder) for folder in toy_run(tmp_path))
    passed = replace(first, checks=(COST,))
    failed = replace(second, checks=(COST, SLOWER))
    records = [passed, third, failed]
    counts = {"failed": 1, "warned": 0, "passed": 1, "not checked": 1}
    assert count_cases(records) == counts
    assert [record.id for record in worst_first(records)] == [failed.id, passed.id, third.id]
    worse = replace(first, checks=(replace(SLOWER, new=20e6),))
    assert worst_first([failed, worse]) == [worse, failed]


LIMITS = default_limits()


def program(*, transposes: int, transpose_ns: int = 100_000) -> Profile:
    operators = [(CONV_ON, 2_000_000), *[(TRANSPOSE, transpose_ns)] * transposes]
    return profile_of(operators)


def timed(profile: Profile, milliseconds: float) -> CaseResult:
    return measured(
        profiles={Arm.ON: profile},
        structures={Arm.ON: structure_of(profile)},
        shares={Arm.ON: shares_of(profile)},
        medians_ns={Arm.ON: medians(milliseconds)},
        loads_ns={},
        peak_bytes={},
        kernels={},
    )


@pytest.fixture(scope="module")
def slowed() -> str:
    """The text of a program that got an extra pair of transposes."""
    before, after = timed(program(transposes=2), 2.2), timed(program(transposes=4), 2.4)
    known = None
    for number in range(3):
        known, _ = baselines.update(known, dataclasses.replace(before, session=str(number)))
    assert known is not None
    checks = check_all(after, known, LIMITS)
    pairs = [(program(transposes=2), program(transposes=4))] * TRACED_PAIRS
    growth = growth_of(pairs, "the baseline")
    return failure_text(after, checks, arguments=["it's; rm.py"], growth=growth)


def text_of(*checks: Check, **facts: Any) -> str:
    """The text of these checks; without any, of a regression."""
    checks = checks or (Check("x", Outcome.REGRESSED, ""),)
    return failure_text(measured(model="toy"), checks, **facts)


def test_the_text_is_enough_to_start_fixing(slowed: str) -> None:
    # pytest's own summary shows the first line alone.
    assert slowed.startswith(
        "9.09 % slower, limit 2 %; 1 more check failed\ntoy_cnn-fp16 on linux: REGRESSED\n"
    )
    for told in (
        "latency (on): REGRESSED  2.200 ms -> 2.400 ms, [+",
        "%, limit 2 %",
        "operators (on): REGRESSED  3 -> 5",
        "Operators added (+) or removed (-) since the baseline:",
        f"+2 {TRANSPOSE} (DATA_MOVEMENT, transpose, delegated)",
        "Operators that take longer since the baseline (traced runs):",
        f"{TRANSPOSE}  200.0 us -> 400.0 us, +200.0 us (+100.0 %)",
        "other checks: ",
    ):
        assert told in slowed
    assert shlex.split(slowed.splitlines()[-1]) == ["Reproduce:", "pytest", "it's; rm.py"]
    # What did not grow is not named as having grown, and what passed is only counted.
    assert CONV_ON not in slowed
    assert "program size" not in slowed
    assert max(len(line) for line in slowed.splitlines()) <= WIDTH


def test_structure_alone_names_the_operators() -> None:
    now = emulated(structures={Arm.ON: structure({CONV_ON: 4, TRANSPOSE: 4})})
    text = failure_text(now, check_all(now, baseline(), LIMITS))
    assert f"+2 {TRANSPOSE}" in text
    assert "longer" not in text


def check_on(arm: str, new: float, *details: str, **facts: Any) -> Check:
    """That there are more operators."""
    given = (f"operators ({arm})", Outcome.REGRESSED, f"More. {judging.UPDATE_HINT}", 3, new)
    return Check(*given, "count", None, 3, details, **facts)


def test_what_both_arms_say_is_said_once() -> None:
    alike = [
        check_on("on", 5, "+2 Add", cause="2 Add added", where="at net.py:3"),
        check_on("off", 5, "+2 Add", cause="2 Add added", where="at net.py:3"),
        Check("kernels (on)", Outcome.REGRESSED, "x", 1, 2, "count", None, 1, ("+ kai",)),
        Check("kernels (off)", Outcome.REGRESSED, "x", 1, 3, "count", None, 1, ("+ kai",)),
        Check("mine", Outcome.FAILED, "It is odd."),
    ]
    assert (
        text_of(*alike)
        == """\
operators (on) 3 -> 5: 2 Add added: at net.py:3; 2 more checks failed
toy-fp16 on linux: REGRESSED

  operators (on): REGRESSED  3 -> 5
    More.
      +2 Add
  operators (off): REGRESSED  3 -> 5
  kernels (on): REGRESSED  1 -> 2
  kernels (off): REGRESSED  1 -> 3
  mine: FAILED  It is odd.

With -v also the details of: kernels. If that is intended, accept it with --update-baselines.
Reproduce: pytest"""
    )
    whole = text_of(*alike, check_on("off", 6, cause="3 Clamp added"), whole=True)
    assert whole.count("      + kai") == 1
    assert "    In the model: 3 Clamp added" in whole


def test_the_largest_growths_between_two_sides_are_listed() -> None:
    names = [f"Kernel {number} (NC, F32)" for number in range(MOST_LINES + 3)]
    before, after = (profile_of([(name, time) for name in names]) for time in (10_000, 20_000))
    text = text_of(growth=growth_of([(before, after)] * TRACED_PAIRS, "executorch 1.5.0"))
    operators = text.partition("Operators that take longer since executorch 1.5.0 (traced")[2]
    assert operators.count("+10.0 us (+100.0 %)") == MOST_LINES
    assert "    and 3 more\n" in operators
    pairs = [(program(transposes=0), program(transposes=1))] * TRACED_PAIRS
    text = text_of(growth=growth_of(pairs, "the baseline"))
    assert "+100.0 us (new)" in text
    # The exact answer comes first.
    assert text.index(f"    +1 {TRANSPOSE} (DATA_") < text.index("Operators that take longer")


def test_what_is_not_significant_is_not_named() -> None:
    """Neither what got faster, nor what took longer in all pairs but one, nor a single pair, nor
    what took longer in every pair, but by less than the processes of one side differ.
    """
    slower = program(transposes=2), program(transposes=2, transpose_ns=300_000)
    for pairs in (
        [slower[::-1]] * TRACED_PAIRS,
        [*[slower] * (TRACED_PAIRS - 1), slower[::-1]],
        [slower],
        [
            (program(transposes=2, transpose_ns=time), program(transposes=2, transpose_ns=time + 9))
            for time in range(100_000, 100_000 + 10 * TRACED_PAIRS, 10)
        ],
    ):
        growth = growth_of(pairs, "the baseline")
        assert (growth.structure, growth.operators) == ((), ())
        text = text_of(growth=growth)
        assert TRANSPOSE not in text
        assert "No operator takes significantly longer since the baseline (traced runs)." in text


def test_long_lists_are_cut_and_counted() -> None:
    text = text_of(Check("x", Outcome.REGRESSED, "y", details=tuple(map(str, range(25)))))
    assert "and 17 more" in text
    assert "\n      24" not in text


def test_hostile_names_neither_break_lines_nor_move_the_cursor() -> None:
    name = "evil\n\x1b[2Jname" + "x" * 300
    check = Check(f"share of {name}", Outcome.INVALID, f"{name} is wrong.", details=(name,))
    text = failure_text(measured(model=name), (check,), arguments=[f"test.py::test[{name}]"])
    assert "\x1b" not in text
    *lines, last = text.splitlines()
    assert all(len(line) <= WIDTH or "x" * 300 in line for line in lines)
    assert last.startswith("Reproduce: pytest ")


CHANGED = (
    BaselineChange("operator Transpose (ND, X32) (on, delegated)", "2", "4"),
    BaselineChange("program size", "10 bytes", "11 bytes"),
    BaselineChange("instructions (on)", "742", "800"),
)
NEWER = BaselineChange("version of executorch", "1.5.0", "1.5.1")
KERNEL = BaselineChange("kernel libxnnpack.so+0x18fe30 (on)", "none", "runs")
UPDATES = [
    *(Update(f"net-{n}", f"/b/{n}.json", (*CHANGED[: 1 + n % 2], NEWER), False) for n in range(41)),
    Update("toy", "/b/toy.json", CHANGED, new=True),
    Update("odd", "/b/odd.json", (KERNEL,), new=False),
    Update("old", "/b/old.json", (), new=False),
]


def test_what_was_stored_is_few_lines_and_with_v_every_value() -> None:
    lines = update_lines(UPDATES, "/b", width=120)
    assert lines == [
        "baselines: 1 new, 42 changed, 1 unchanged, in /b",
        "  new: toy",
        "  changed: net-0, net-1, net-2, net-3, net-4, net-5 and 36 more",
        "  41 cases: operator Transpose (ND, X32) (on, delegated)",
        "  41 cases: version of executorch",
        "  20 cases: program size",
        "  1 case: kernel libxnnpack.so+0x18fe30 (on)",
        "  Every value, old and new, is shown with -v.",
        "  Commit the files.",
    ]
    every = update_lines(UPDATES[-3:], "/b", verbosity=1, width=120)
    assert "  toy: new (/b/toy.json)" in every
    assert "    instructions (on): 742 → 800" in every
    assert "Commit" not in " ".join(update_lines(UPDATES[-1:], "/b"))
    assert update_lines([], "/b") == []


REGRESSED = Check(
    "latency (on)", Outcome.REGRESSED, "11.5 % slower.", 10e6, 11.15e6, "ns", (1.102, 1.129), 0.02,
    where="`x.flip(-1)` at net.py:8",
)  # fmt: skip
SAME = Check("latency (on)", Outcome.PASS, "The same.", 10e6, 10e6, "ns", (0.99, 1.01), 0.02)


def told(records: Sequence[CaseRecord]) -> Any:
    return json.loads(comment_json(records))


def test_the_worst_case_comes_first(tmp_path: Path) -> None:
    found = [read_record(folder) for folder in toy_run(tmp_path)]
    found = [replace(found[0], checks=(SAME,)), replace(found[1], checks=(REGRESSED,)), found[2]]
    document = told(found)
    assert document["counts"] == {"failed": 1, "warned": 0, "passed": 1, "not checked": 1}
    assert document["worst"] == {
        "effect": "11.5 % slower, limit 2 %", "place": "x.flip(-1) at net.py:8", "case": "toy-fp32"
    }  # fmt: skip
    assert document["rows"][0] == {
        "case": "toy-fp32", "check": "latency (on)", "baseline": "10.000 ms", "now": "11.150 ms",
        "change": "+11.5 %", "interval": "[+10.2, +12.9]", "limit": "2 %", "verdict": "REGRESSED",
        "state": "failed",
    }  # fmt: skip
    assert [row["state"] for row in document["rows"][1:]] == ["passed", "unknown"]
    assert document["failures"] == [
        {
            "case": "toy-fp32", "check": "latency", "place": "x.flip(-1) at net.py:8",
            "message": "11.5 % slower.",
        }
    ]  # fmt: skip


def test_what_passed_needs_no_more_words(tmp_path: Path) -> None:
    found = [replace(read_record(folder), checks=(SAME,)) for folder in toy_run(tmp_path)]
    document = told(found)
    assert document["counts"]["passed"] == len(found)
    assert (document["worst"], document["failures"]) == (None, [])


def test_an_emulated_run_speaks_of_cost_and_not_of_time(tmp_path: Path) -> None:
    cost = Check("cost (on)", Outcome.PASS, "The same.", 742_000, 742_000, "count", None, 742_371)
    found = [
        replace(read_record(folder), checks=(cost,)) for folder in toy_run(tmp_path, emulated=True)
    ]
    document = told(found)
    row = document["rows"][0]
    assert (row["baseline"], row["change"], row["limit"]) == ("0.742 Minst", "0.00 %", "0.05 %")
    assert " ms" not in json.dumps(document)
    assert document["emulated"] is True


def test_many_cases_stay_a_small_document(tmp_path: Path) -> None:
    one = read_record(write_case(tmp_path, "net", "fp16", stored_dumps("toy_fp16")))
    document = told(
        [
            replace(one, checks=(replace(REGRESSED, metric=f"latency {number}"),))
            for number in range(30)
        ]
    )
    assert len(document["rows"]) == MOST_CASES
    assert (len(document["failures"]), document["more_failures"]) == (5, 25)
    assert told([])["rows"] == []
