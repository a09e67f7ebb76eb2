"""What pairs with the good change decide."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from pytest_sme2.bisect.probing import decided, halfway, is_slower, looks_needed, same_as_good
from pytest_sme2.results import Check, Outcome


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
