"""Which check a verdict rests on, how a change is written, what an update of baselines says."""

from __future__ import annotations

import dataclasses
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pytest_sme2.profile.operators import structure_of
from pytest_sme2.report.versus_baseline import (
    MOST_LINES,
    WIDTH,
    Update,
    change_text,
    count_cases,
    deciding,
    effect,
    failure_text,
    headline,
    interval_text,
    limit_text,
    summary,
    unaccepted,
    update_lines,
    worst_first,
)
from pytest_sme2.results import (
    Arm,
    BaselineChange,
    CaseResult,
    Check,
    Outcome,
    Profile,
    Verdict,
)
from pytest_sme2.session.case_result import shares_of
from pytest_sme2.session.run_directory import read_record
from pytest_sme2.verdict import baselines, judging
from pytest_sme2.verdict.growth import TRACED_PAIRS, growth_of, growth_since
from pytest_sme2.verdict.limits import default_limits
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
from tests.support.records import toy_run

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


def test_more_failures_are_counted() -> None:
    assert summary([COST, SLOWER]) == "11.5 % slower, limit 2 %"
    assert summary([OPERATORS, SLOWER]).endswith("; 1 more check failed")
    assert summary([]) == ""


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
    growth = growth_since(known, after)
    return failure_text(judging.verdict(after, checks), arguments=["it's; rm.py"], growth=growth)


def text_of(*checks: Check, **facts: Any) -> str:
    """The text of these checks; without any, of a regression."""
    outcome = checks[0].verdict if checks else Outcome.REGRESSED
    return failure_text(Verdict("toy", "fp16", "linux", outcome, checks), **facts)


def test_the_text_is_enough_to_start_fixing(slowed: str) -> None:
    # pytest's own summary shows the first line alone.
    assert slowed.startswith(
        "9.09 % slower, limit 2 %; 2 more checks failed\ntoy_cnn-fp16 on linux: REGRESSED\n"
    )
    assert "latency (on): REGRESSED  2.200 ms -> 2.400 ms, [+" in slowed
    assert "limit +2 %" in slowed
    assert "operators (on): REGRESSED  3 -> 5" in slowed
    assert f"+2 {TRANSPOSE} (DATA_MOVEMENT, transpose, delegated)" in slowed
    assert "Operators added (+) or removed (-) since the baseline:" in slowed
    assert "Categories that take longer since the baseline (traced runs):" in slowed
    assert "DATA_MOVEMENT  200.0 us -> 400.0 us, +200.0 us (+100.0 %)" in slowed
    assert f"{TRANSPOSE}  200.0 us -> 400.0 us, +200.0 us (+100.0 %)" in slowed
    assert shlex.split(slowed.splitlines()[-1]) == ["Reproduce:", "pytest", "it's; rm.py"]
    # What did not grow is not named as having grown.
    assert slowed.count(CONV_ON) == 0


def test_it_fits_and_what_passed_is_only_counted(slowed: str) -> None:
    assert max(len(line) for line in slowed.splitlines()) <= WIDTH
    assert "other checks: " in slowed
    assert "program size" not in slowed


def test_structure_alone_names_the_operators() -> None:
    now = emulated(structures={Arm.ON: structure({CONV_ON: 4, TRANSPOSE: 4})})
    verdict = judging.verdict(now, check_all(now, baseline(), LIMITS))
    text = failure_text(verdict, growth=growth_since(baseline(), now))
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

  operators (on, off): REGRESSED  3 -> 5, limit 3
    More.
      +2 Add
  kernels: REGRESSED  on 1 -> 2, limit 1; off 1 -> 3, limit 1
  mine: FAILED  It is odd.

With -v also the details of: kernels. If that is intended, accept it with --update-baselines.
Reproduce: pytest"""
    )
    assert "      + kai" in text_of(*alike, whole=True)


def test_an_arm_that_differs_says_so() -> None:
    differ = (check_on("on", 5, cause="2 Add added"), check_on("off", 6, cause="3 Clamp added"))
    text = text_of(*differ)
    assert (
        "operators (on): REGRESSED  3 -> 5, limit 3\n  operators (off): REGRESSED  3 -> 6" in text
    )
    assert "In the model (SME2 off): 3 Clamp added" in text


def test_what_another_data_type_told_is_not_told_again() -> None:
    told: dict[tuple[str, tuple[str, ...]], str] = {}

    def text(model: str, variant: str, *lines: str, **facts: Any) -> str:
        check = check_on("on", 5, *lines)
        verdict = Verdict(model, variant, "linux", Outcome.REGRESSED, (check,))
        return failure_text(verdict, told=told, **facts)

    lines = ("+70,000: 7 Add added at net.py:3", "-30: outside of operators")
    other = ("+9,000: 7 Add added at net.py:3", "-41: outside of operators")
    assert lines[0] in text("net", "fp32", *lines)
    assert lines[0] in text("net", "fp32", *lines), "the same case may be told twice"
    again = text("net", "fp16", *other)
    assert "The same operators as in net-fp32, told there." in again
    assert other[0] not in again
    for shown in (text("net", "fp16", *other, whole=True), text("two", "fp16", *other)):
        assert other[0] in shown
    assert "8 Mul" in text("net", "int8", "+9: 8 Mul added at net.py:3")


def test_growth_between_two_measured_sides() -> None:
    before, after = program(transposes=2), program(transposes=2, transpose_ns=300_000)
    text = text_of(growth=growth_of([(before, after)] * TRACED_PAIRS, "executorch 1.5.0"))
    assert "Operators that take longer since executorch 1.5.0 (traced runs):" in text
    assert f"{TRANSPOSE}  200.0 us -> 600.0 us, +400.0 us (+200.0 %)" in text


def test_what_is_new_is_called_new() -> None:
    pairs = [(program(transposes=0), program(transposes=1))] * TRACED_PAIRS
    text = text_of(growth=growth_of(pairs, "the baseline"))
    assert "+100.0 us (new)" in text
    assert f"    +1 {TRANSPOSE} (DATA_MOVEMENT, transpose, delegated)" in text
    # The exact answer comes first.
    assert text.index("Operators added (+)") < text.index("Operators that take longer")


def test_only_the_largest_growths_are_listed() -> None:
    names = [f"Kernel {number} (NC, F32)" for number in range(MOST_LINES + 3)]
    before, after = (profile_of([(name, time) for name in names]) for time in (10_000, 20_000))
    text = text_of(growth=growth_of([(before, after)] * TRACED_PAIRS, "x"))
    operators = text.partition("Operators that take longer")[2]
    assert operators.count("+10.0 us (+100.0 %)") == MOST_LINES
    assert "    and 3 more\n" in operators


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
        assert (growth.structure, growth.categories, growth.operators) == ((), (), ())
        text = text_of(growth=growth)
        assert TRANSPOSE not in text
        assert "No operator takes significantly longer since the baseline (traced runs)." in text


def test_operator_within_what_sessions_differ_by_is_not_named() -> None:
    known, _ = baselines.update(None, timed(program(transposes=2), 2))
    within = growth_since(known, timed(program(transposes=2, transpose_ns=109_000), 2))
    beyond = growth_since(known, timed(program(transposes=2, transpose_ns=115_000), 2))
    assert within.operators == ()
    assert [change.name for change in beyond.operators] == [TRANSPOSE]


def test_growth_needs_two_timed_sides() -> None:
    assert growth_since(baseline(), measured()) is None
    before = timed(program(transposes=1), 2)
    known, _ = baselines.update(None, before)
    assert growth_since(known, emulated(profiles=before.profiles)) is None
    assert growth_since(known, before) is not None


def test_long_lists_are_cut_and_counted() -> None:
    text = text_of(Check("x", Outcome.REGRESSED, "y", details=tuple(map(str, range(25)))))
    assert "and 17 more" in text
    assert "\n      24" not in text


def test_hostile_names_neither_break_lines_nor_move_the_cursor() -> None:
    name = "evil\n\x1b[2Jname" + "x" * 300
    check = Check(f"share of {name}", Outcome.INVALID, f"{name} is wrong.", details=(name,))
    verdict = Verdict(name, "fp16", "linux", Outcome.INVALID, (check,))
    text = failure_text(verdict, arguments=[f"test.py::test[{name}]"])
    assert "\x1b" not in text
    *lines, last = text.splitlines()
    assert all(len(line) <= WIDTH or "x" * 300 in line for line in lines)
    assert last.startswith("Reproduce: pytest ")


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (
            (1e6, 2e6, "ns", (1.1, 1.2), 0.5),
            "1.000 ms -> 2.000 ms, [+10.0 %, +20.0 %], limit +50 %",
        ),
        (
            (1e6, 2e6, "bytes", (1e5, 2e5), 1.5e6),
            "1.00 MB -> 2.00 MB, [0.10 MB, 0.20 MB], limit 1.50 MB",
        ),
        ((1e6, 2e6, "count", (1.1, 1.2), 0.5), "1,000,000 -> 2,000,000, [1.1, 1.2], limit 0.5"),
        ((1e6, 2e6, "ns", None, 1e-4), "1.000 ms -> 2.000 ms, limit +0.01 %"),
        ((2e-4, 3e-4, "share", None, 1e-4), "0.02 % -> 0.03 %, limit 0.01 %"),
        ((0.3, 0.4, "share", None, 0.35), "30.0 % -> 40.0 %, limit 35 %"),
        ((None, 1.5, "ratio", (1.4, 1.6), 2.0), "1.50x, [1.40x, 1.60x], limit 2.00x"),
    ],
)
def test_values_carry_their_units(values: tuple[Any, ...], expected: str) -> None:
    text = text_of(Check("x", Outcome.REGRESSED, "y", *values))
    assert f"x: REGRESSED  {expected}\n" in text


NEW = tuple(
    BaselineChange(what, "none", "1")
    for what in (
        "SME2 coverage",
        *(f"operator {number} (on, delegated)" for number in range(100)),
        *(f"kernel {number} (off)" for number in range(100)),
        "instructions (on)",
        "instructions (off)",
        "program size",
        "version of torch",
    )
)
CHANGED = (
    BaselineChange("operator Transpose (ND, X32) (on, delegated)", "2", "4"),
    BaselineChange("program size", "10 bytes", "11 bytes"),
    BaselineChange("instructions (on)", "742", "800"),
    BaselineChange("SME2 coverage", "6 of 6", "5 of 6"),
)


def update(case: str, changes: tuple[BaselineChange, ...], **facts: object) -> Update:
    return Update(case, f"/b/{case}.json", changes, facts.pop("new", False), **facts)  # type: ignore[arg-type]


def test_many_new_values_are_few_lines() -> None:
    updates = [update(f"toy-{number}", NEW, new=True) for number in range(9)]
    lines = update_lines([*updates, update("old", ())], "/b")
    assert lines[0] == "baselines: 9 new, 1 unchanged, in /b"
    assert lines[1].startswith("  new: toy-0, toy-1, ")
    assert lines[1].endswith(" and 3 more")
    assert len("\n".join(lines).splitlines()) <= 4


def test_a_change_names_the_figures_and_counts_the_rest() -> None:
    lines = update_lines([update("toy", CHANGED)], "/b", width=120)
    assert lines[1] == (
        "  toy: program size 10 bytes → 11 bytes; instructions (on) 742 → 800; "
        "SME2 coverage 6 of 6 → 5 of 6; 1 operator"
    )


NEWER = BaselineChange("version of executorch", "1.5.0", "1.5.1")


def test_kinds_of_change_that_cases_share_are_counted() -> None:
    updates = [
        update(f"net-{number}", (*CHANGED[: 1 + number % 2], NEWER)) for number in range(41)
    ] + [update("other", (BaselineChange("kernel kai_x (on)", "runs", "none"),))]
    lines = update_lines(updates, "/b", width=120)
    assert lines[0] == "baselines: 42 changed, in /b"
    assert lines[1:4] == [
        "  41 cases: +2 Transpose (ND, X32) (on, delegated)",
        "  41 cases: executorch 1.5.0 → 1.5.1",
        "  20 cases: other program size",
    ]
    assert "kai_x" not in lines[4]


@pytest.mark.parametrize(
    ("kernels", "kinds"),
    [
        (("kai_y (off)",), "runs kai_y (off)"),
        (("-kai_x (on)",), "no longer runs kai_x (on)"),
        (
            ("libxnnpack.so+0x18fe30 (on)", "libxnnpack.so+0x18fe34 (on)"),
            "other kernels without a name (on)",
        ),
    ],
)
def test_kernels_that_come_or_go_are_a_kind_of_change(kernels: tuple[str, ...], kinds: str) -> None:
    changes = tuple(
        BaselineChange(f"kernel {name.removeprefix('-')}", *(("none", "runs")[:: 1 - 2 * gone]))
        for name in kernels
        for gone in [name.startswith("-")]
    )
    lines = update_lines([update(f"net-{n}", changes) for n in range(4)], "/b")
    assert lines[1] == f"  4 cases: {kinds}"
    assert not any("+0x" in line for line in lines)


@pytest.mark.parametrize(
    ("changes", "patterns", "left"),
    [
        (CHANGED[:2], ("operator Transpose*", "program size"), ()),
        (CHANGED, ("operator Transpose*", "program size"), CHANGED[2:]),
        # By the kind that the summary counts.
        (CHANGED[:1], ("+2 Transpose*",), ()),
        (CHANGED[:1], ("+2 Transpose (ND, X32) (on, delegated)",), ()),
        (CHANGED[:1], ("+1 Transpose*",), CHANGED[:1]),
        ((NEWER,), ("+2 Transpose*",), (NEWER,)),
    ],
)
def test_changes_are_accepted_by_pattern(
    changes: tuple[BaselineChange, ...],
    patterns: tuple[str, ...],
    left: tuple[BaselineChange, ...],
) -> None:
    assert unaccepted(changes, patterns) == left


def test_what_was_not_stored_is_named() -> None:
    updates = [update("toy", CHANGED, stored=False), update("net", CHANGED[:1])]
    lines = update_lines(updates, "/b")
    assert lines[0] == "baselines: 1 changed, 1 not stored, in /b"
    assert "  not stored: toy" in lines
    assert lines[-1].endswith("Commit the files.")
    (nothing,) = [line for line in update_lines(updates[:1], "/b") if "with -v" in line]
    assert "Commit" not in nothing
    detailed = update_lines(updates, "/b", verbosity=1)
    assert "toy: changes that were not stored in /b/toy.json" in detailed
    assert "net: baseline written to /b/net.json" in detailed


def test_a_first_baseline_that_was_not_stored_is_not_new() -> None:
    lines = update_lines([update("toy", NEW, new=True, stored=False), update("old", ())], "/b")
    assert lines == [
        "baselines: 1 not stored, 1 unchanged, in /b",
        "  not stored: toy",
        "  Every value, old and new, is shown with -v.",
    ]


def test_verbose_shows_every_value() -> None:
    lines = update_lines(
        [update("toy", CHANGED, doubts=("Noisy.",)), update("old", ())], "/b", verbosity=1
    )
    assert lines[0] == "toy: baseline written to /b/toy.json"
    assert "  program size: 10 bytes → 11 bytes" in lines
    assert "  warning: Noisy." in lines
    assert lines[-1] == "old: the baseline stays as it is (/b/old.json)"


def test_doubts_are_said_once_and_counted() -> None:
    lines = update_lines([update("toy", CHANGED, doubts=("Noisy.", "Busy."))], "/b")
    assert "  warning: toy: Noisy. (1 more warning with -v)" in lines
    assert update_lines([], "/b") == []


def test_kernels_without_a_name_are_only_counted() -> None:
    kernels = ("kernel libxnnpack.so+0x106ee0 (on)", "kernel libxnnpack.so+0xe03d0 (off)")
    changes = (*CHANGED, *(BaselineChange(kernel, "none", "runs") for kernel in kernels))
    lines = update_lines([update("toy", changes)], "/b", verbosity=1)
    assert "  2 kernels without a name: each is in the file" in lines
    assert not [line for line in lines if "+0x" in line]
