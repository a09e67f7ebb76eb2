"""Searching by latency: what is asked of the pairs, and what is made of their answers."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytest_sme2.bisect import bisecting
from pytest_sme2.bisect.bisecting import (
    FIGURES,
    Bisecting,
    Bisection,
    missing_figures,
    worse_figure,
)
from pytest_sme2.bisect.probing import decided, halfway, is_slower, looks_needed, same_as_good
from pytest_sme2.bisect.row import Border, Release
from pytest_sme2.cli.commands.bisect import document, lines
from pytest_sme2.errors import ModelError, RunError, TargetError, UsageError
from pytest_sme2.results import Arm, CaseResult, Check, Limits, Outcome, Structure
from pytest_sme2.system.pip import Pin
from pytest_sme2.verdict.judging import metric_against
from tests.support import gate_examples

SURE = 0.02
"""How well the played pairs know a ratio."""


@dataclass
class PlayedRow:
    """Versions of a package; how slow each is, or what goes wrong with it."""

    ratios: Sequence[float | Exception | Outcome]
    noun = "version"
    backwards: bool = False
    asked: list[tuple[int, float]] = field(default_factory=list)

    @property
    def changes(self) -> list[Release]:
        return [Release(Pin("torch", f"2.{number}")) for number in range(len(self.ratios))]

    def commands(self, border: Border, run: str) -> list[str]:
        return [f"See it run: {run}"]


@dataclass
class PlayedChange:
    row: PlayedRow
    number: int

    @property
    def identity(self) -> tuple[str, ...]:
        return (str(self.row.ratios[self.number]),)

    def measured(self) -> CaseResult:
        ratio = self.row.ratios[self.number]
        if isinstance(ratio, Exception):
            raise ratio
        return replace(gate_examples.emulated(), pte_sha256=str(ratio))

    def good_side(self, name: str) -> Any:
        return SimpleNamespace(name=name, limits=Limits())

    def compared(self, good: Any, threshold: float, family: int) -> tuple[CaseResult, Check]:
        measured, ratio = self.measured(), self.row.ratios[self.number]
        self.row.asked.append((self.number, threshold))
        metric = metric_against("latency", good.name)
        if isinstance(ratio, Outcome):
            return measured, Check(metric, ratio, "Too noisy.", old=1e6, new=1e6)
        assert isinstance(ratio, float)
        verdict = Outcome.REGRESSED if ratio - SURE > 1 + threshold else Outcome.PASS
        interval = (ratio - SURE, ratio + SURE)
        return measured, Check(metric, verdict, "", old=1e6, new=ratio * 1e6, interval=interval)


@pytest.fixture
def search(monkeypatch: pytest.MonkeyPatch) -> Any:
    @contextmanager
    def show_change(row: PlayedRow, number: int, out: Path, say: Any) -> Iterator[PlayedChange]:
        yield PlayedChange(row, number)

    monkeypatch.setattr(bisecting, "show_change", show_change)

    def run(*ratios: float | Exception | Outcome) -> tuple[Bisection, PlayedRow]:
        row = PlayedRow(ratios)
        return Bisecting(row, Path("unused"), lambda line: None).by_latency(), row  # type: ignore[arg-type]

    return run


def test_a_step_is_found_and_a_small_one_before_it_is_not_taken_for_it(search: Any) -> None:
    found, row = search(1.0, 1.01, 1.05, 1.05, 1.5, 1.51)
    assert found.culprit.border == Border(3, 4)
    # The bad end by what is tolerated; the others by half of what it is sure to have.
    assert row.asked[0] == (5, Limits().max_regression)
    assert all(threshold == pytest.approx(0.245) for _, threshold in row.asked[1:])


def test_what_runs_the_same_program_is_not_measured_again(search: Any) -> None:
    found, row = search(*[1.0] * 40, *[2.0] * 24)
    assert found.culprit.border == Border(39, 40)
    assert [number for number, _ in row.asked] == [63]
    printed = "\n".join(lines(found, "m-fp32", "latency", "sme2 run m"))
    assert printed.startswith("torch==2.40 made m-fp32 worse: latency with SME2 on 1.000 ms -> 2.")
    assert "(+98.0 % to +102.0 %, against torch==2.0)" in printed
    assert "torch==2.39" in printed
    assert "the same" in printed
    assert printed.endswith("See it run: sme2 run m")
    row.backwards = True
    first, *_ = lines(found, "m-fp32", "latency", "sme2 run m")
    assert first.startswith("m-fp32 is worse up to torch==2.40, and fine from torch==2.39 on: ")


@pytest.mark.parametrize("unsure", [Outcome.INCONCLUSIVE, Outcome.SUSPECTED, Outcome.INVALID])
def test_pairs_that_cannot_tell_make_a_change_neither_good_nor_bad(
    search: Any, unsure: Outcome
) -> None:
    found, _ = search(1.0, 1.001, unsure, ModelError("it\nfails"), 1.5)
    assert (found.culprit.border, found.culprit.border.doubtful) == (Border(1, 4), 2)
    printed = "\n".join(lines(found, "m-fp32", "latency", "sme2 run m"))
    assert "2 versions between could not be judged" in printed
    assert "cannot tell: Too noisy." in printed
    assert "cannot be measured: it" in printed
    verdicts = [probe["figures"].get("latency") for probe in document(found)["probes"]]  # type: ignore[attr-defined]
    assert [v and v["verdict"] for v in verdicts] == [
        *(None, "PASS", str(unsure)),
        *(None, "REGRESSED"),
    ]


def test_nothing_is_worse_where_the_bad_end_is_not_slower(search: Any) -> None:
    found, row = search(1.0, 3.0, 1.001)
    assert found.culprit is None
    assert len(row.asked) == 1
    told = lines(found, "m-fp32", "latency", "sme2 run m")
    assert told[0] == "m-fp32: nothing is worse at torch==2.2 than at torch==2.0 (latency)."


def test_an_end_that_cannot_be_told_ends_the_search(search: Any) -> None:
    with pytest.raises(RunError, match=r"2\.2 is slower than torch==2\.0\. Too noisy\."):
        search(1.0, 1.5, Outcome.INCONCLUSIVE)
    with pytest.raises(UsageError, match=r"2\.0, which --good names, .*Name a version that can"):
        search(ModelError("It fails."), 1.5)
    with pytest.raises(UsageError, match=r"2\.1, which --bad names, cannot be measured: It fails"):
        search(1.0, ModelError("It fails."))


def test_a_lost_device_ends_the_search(search: Any) -> None:
    with pytest.raises(TargetError, match="gone"):
        search(1.0, TargetError("The phone is gone."), 1.5)


def check(verdict: Outcome, interval: tuple[float, float] | None = None) -> Check:
    return Check("latency against a", verdict, "", interval=interval)


@pytest.mark.parametrize("verdict", list(Outcome))
def test_only_what_is_sure_is_good_or_bad(verdict: Outcome) -> None:
    sure = {Outcome.REGRESSED: True, Outcome.PASS: False, Outcome.IMPROVED: False}
    assert is_slower(check(verdict)) is sure.get(verdict)


def test_the_border_lies_halfway_to_what_the_bad_end_is_sure_to_have() -> None:
    assert halfway(check(Outcome.REGRESSED, (1.5, 1.7)), 0.02) == pytest.approx(0.25)
    # Never below what is tolerated, and that alone where nothing is sure.
    assert halfway(check(Outcome.REGRESSED, (1.03, 1.7)), 0.02) == 0.02
    assert halfway(check(Outcome.REGRESSED, (0.5, 1.7)), 0.02) == 0.02
    assert halfway(check(Outcome.REGRESSED), 0.02) == 0.02


def test_the_same_program_is_good_without_pairs() -> None:
    assert is_slower(same_as_good("a")) is False


@pytest.mark.parametrize(("changes", "looks"), [(2, 1), (3, 2), (9, 4), (64, 7), (65, 7)])
def test_how_many_verdicts_a_search_gives(changes: int, looks: int) -> None:
    assert looks_needed(changes) == looks
    assert looks <= 1 + math.ceil(math.log2(changes))


def test_earlier_pairs_count_if_they_decided_the_same_question() -> None:
    told = [
        replace(check(verdict), limit=limit)
        for verdict in (Outcome.INCONCLUSIVE, Outcome.PASS)
        for limit in (0.1, 0.2)
    ]
    assert decided(told, "a", 0.2) is told[3]
    assert decided(told, "a", 0.3) is None
    assert decided(told, "b", 0.2) is None
    assert decided(told[:2], "a", 0.2) is None


SIZE = next(figure for figure in FIGURES if figure.name == "size")


def case(*, operators: int = 3, size: int | None = 1000) -> CaseResult:
    made = gate_examples.emulated()
    entry = replace(made.structures[Arm.ON].operators[0], count=operators)
    return replace(made, structures={Arm.ON: Structure((entry,))}, pte_bytes=size, costs={})


def test_the_first_figure_that_is_worse_is_taken() -> None:
    found = worse_figure(case(), case(operators=5, size=2000), None)
    assert found is not None
    assert found.name == "operators"
    asked = worse_figure(case(), case(operators=5, size=2000), "size")
    assert asked is SIZE


def test_nothing_is_worse_where_it_only_got_better() -> None:
    assert worse_figure(case(), case(), None) is None
    assert worse_figure(case(operators=5), case(operators=3, size=900), None) is None
    # A hundredth of the size says nothing.
    assert worse_figure(case(), case(size=1009), None) is None
    assert worse_figure(case(size=None), case(), "size") is None


def test_a_commit_is_bad_if_it_is_nearer_to_the_bad_end() -> None:
    good, bad = case(size=1000), case(size=2000)
    judged = [SIZE.is_bad(good, bad, case(size=size)) for size in (900, 1400, 1500, 3000)]
    assert judged == [False, False, True, True]
    assert SIZE.is_bad(good, bad, case(size=None)) is None


def test_an_unknown_figure_is_refused() -> None:
    with pytest.raises(UsageError, match="Choose one of: cost, coverage, operators, size"):
        worse_figure(case(), case(), "speed")


def test_what_one_end_does_not_have_is_named() -> None:
    assert missing_figures(case(), case(size=None), "size") == ["size"]
    assert missing_figures(case(), case(), "size") == []
    # No instructions were counted, and nothing was profiled.
    assert {"cost", "size"} <= set(missing_figures(case(size=None), case(), None))
