"""A share of ``python -m benchmarks.attacks`` for every day, and the rest at night."""

from __future__ import annotations

import itertools

import pytest

from benchmarks.attacks.__main__ import FEWEST
from benchmarks.attacks.rows import ATTACKS
from benchmarks.attacks.stage import Attack, last_lines, tried

DAILY = 8
"""So many of each group, the first ones, run every day."""


def name(attack: Attack) -> str:
    return f"{attack.group}: {attack.what}"


@pytest.mark.parametrize(
    "attack",
    [
        pytest.param(attack, id=name(attack), marks=() if index < DAILY else pytest.mark.nightly)
        for _, group in itertools.groupby(ATTACKS, lambda attack: attack.group)
        for index, attack in enumerate(group)
    ],
)
def test_it_ends_as_it_must(attack: Attack) -> None:
    ending, problem = tried(attack)
    assert not problem, last_lines(ending)


def test_each_attack_is_one_of_its_own() -> None:
    assert len({name(attack) for attack in ATTACKS}) == len(ATTACKS)
    assert sum(attack.code != 0 for attack in ATTACKS) >= FEWEST
