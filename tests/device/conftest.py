"""Fixtures of the device tests: real adb servers and adbd devices in a sandbox."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pytest_sme2.errors import TargetError
from pytest_sme2.fake_phone.lab import FakeLab, FakePhone


@pytest.fixture(scope="module")
def lab() -> Iterator[FakeLab]:
    """A lab of one's own; phones are added by the tests."""
    try:
        made = FakeLab()
    except TargetError as error:
        pytest.skip(f"no fake phone here: {error}")
    with made:
        yield made


@pytest.fixture
def phone(lab: FakeLab) -> FakePhone:
    """A phone nobody has touched."""
    return lab.add()
