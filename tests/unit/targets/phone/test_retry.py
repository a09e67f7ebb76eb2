"""Redoing from the start, and giving up with one clear error."""

from __future__ import annotations

import re

import pytest

from pytest_sme2.errors import ConnectionLostError, RunError, TargetError
from pytest_sme2.targets.phone.leases import redo_when_lost


class Phone:
    """Loses its connection so many times, and needs so many attempts to come back."""

    def __init__(self, losses: int, absent: int = 0) -> None:
        self.losses = losses
        self.absent = absent
        self.measured = 0
        self.recovered = 0
        self.events: list[str] = []

    def measure(self) -> str:
        self.measured += 1
        if self.measured <= self.losses:
            raise ConnectionLostError(f"Lost ({self.measured}).")
        return "result"

    def recover(self) -> None:
        self.recovered += 1
        if self.recovered <= self.absent:
            raise ConnectionLostError("Not there.")


def test_it_is_redone_until_it_is_done() -> None:
    phone = Phone(losses=2)
    told: list[str] = []
    assert redo_when_lost(phone, phone.measure, progress=told.append) == "result"
    assert phone.measured == 3
    assert phone.recovered == 2
    assert told[0] == "Lost (1). Measuring the pair again."
    said = r"was away for \d+ s, and a pair was repeated"
    assert [bool(re.fullmatch(said, event)) for event in phone.events] == [True, True]


def test_after_the_retries_there_is_one_error() -> None:
    phone = Phone(losses=9)
    with pytest.raises(
        TargetError, match=r"Stopped after 3 attempts.*Last: Lost \(3\)\."
    ) as caught:
        redo_when_lost(phone, phone.measure, retries=2)
    assert not isinstance(caught.value, ConnectionLostError)
    assert phone.recovered == 2


def test_a_device_that_takes_a_while_is_waited_for() -> None:
    phone = Phone(losses=1, absent=2)
    assert redo_when_lost(phone, phone.measure) == "result"
    assert phone.recovered == 3


def test_lost_device_is_an_error() -> None:
    phone = Phone(losses=1, absent=99)
    with pytest.raises(
        TargetError, match=r"Lost \(1\)\. It did not come back within 0.1 s: Not there"
    ):
        redo_when_lost(phone, phone.measure, patience_seconds=0.1)


def test_other_errors_are_not_retried() -> None:
    phone = Phone(losses=0)

    def crash() -> None:
        raise RunError("The runner crashed.")

    with pytest.raises(RunError):
        redo_when_lost(phone, crash)
    assert phone.recovered == 0
