"""What phones say of their settings and cores, read."""

from __future__ import annotations

import pytest

from pytest_sme2.errors import TargetError, UsageError
from pytest_sme2.targets.phone.power import (
    POWER_COMMANDS,
    SETTINGS,
    pick_cores,
)
from pytest_sme2.targets.settings import POWER_MODES


def test_every_power_mode_has_its_commands() -> None:
    assert set(POWER_COMMANDS) == set(POWER_MODES)
    changed = {
        command[3] for commands in POWER_COMMANDS.values() for command in commands
        if command[0] == "settings"
    }  # fmt: skip
    assert changed == set(SETTINGS)


FREQUENCIES = {0: 2_000_000, 1: 2_000_000, 2: 3_000_000, 3: 3_000_000, 4: 3_600_000}


def test_big_and_little_are_the_fastest_and_the_slowest() -> None:
    assert pick_cores("big", FREQUENCIES) == (4,)
    assert pick_cores("little", FREQUENCIES) == (0, 1)
    assert pick_cores("big", {0: 5, 1: 5}) == (0, 1)
    assert pick_cores((2, 3), FREQUENCIES) == (2, 3)


def test_cores_that_are_not_there() -> None:
    with pytest.raises(UsageError, match=r"no core 8, 9\. It has 0, 1, 2, 3, 4"):
        pick_cores((2, 8, 9), FREQUENCIES)
    with pytest.raises(TargetError, match="does not report the speed"):
        pick_cores("big", {})
