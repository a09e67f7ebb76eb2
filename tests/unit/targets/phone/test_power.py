"""The settings of every power mode."""

from __future__ import annotations

from pytest_sme2.targets.phone.power import (
    POWER_COMMANDS,
    SETTINGS,
)
from pytest_sme2.targets.settings import POWER_MODES


def test_every_power_mode_has_its_commands() -> None:
    assert set(POWER_COMMANDS) == set(POWER_MODES)
    changed = {
        command[3] for commands in POWER_COMMANDS.values() for command in commands
        if command[0] == "settings"
    }  # fmt: skip
    assert changed == set(SETTINGS)
