"""A share of ``python -m benchmarks.attacks`` for every day, and the rest at night."""

from __future__ import annotations

import itertools
import re
from pathlib import Path
from random import Random

import pytest

from benchmarks.attacks.__main__ import ATTACKS, FEWEST
from benchmarks.attacks.stage import PRETENDED, Attack
from benchmarks.harness import ROOT

DAILY = 8
"""So many of each group, the first ones, run every day."""
OF_REAL_PROGRAMS = 2
"""So many where each exports a program and runs it on the emulator."""


def name(attack: Attack) -> str:
    return f"{attack.group}: {attack.what}"


@pytest.mark.parametrize(
    "attack",
    [
        pytest.param(
            attack,
            id=name(attack),
            marks=()
            if index < (DAILY if attack.stage is PRETENDED else OF_REAL_PROGRAMS)
            else pytest.mark.nightly,
        )
        for _, group in itertools.groupby(ATTACKS, lambda attack: attack.group)
        for index, attack in enumerate(group)
    ],
)
def test_it_ends_as_it_must(attack: Attack, tmp_path: Path) -> None:
    attack.attempt(Random(), tmp_path)


def test_each_attack_is_one_of_its_own() -> None:
    assert len({name(attack) for attack in ATTACKS}) == len(ATTACKS)
    assert sum(attack.code != 0 for attack in ATTACKS) >= FEWEST


def test_the_tests_that_the_page_about_security_names_exist() -> None:
    page = (ROOT / "SECURITY.md").read_text("utf-8")
    named = re.findall(r"`(tests/[a-z_/0-9]+\.py)::(test_\w+)`", page)
    assert len(named) >= 12
    for path, test in named:
        assert f"\ndef {test}(" in (ROOT / path).read_text("utf-8"), test
    told = re.findall(r"attacks: ((?:`[^`]+`(?:, )?)+)", page)
    groups = {group for row in told for group in re.findall("`([^`]+)`", row)}
    assert groups
    assert groups <= {attack.group for attack in ATTACKS}
