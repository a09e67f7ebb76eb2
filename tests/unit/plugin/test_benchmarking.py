"""Which arms get a benchmark of their own."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("pytest_benchmark")

from pytest_sme2.errors import TargetError
from pytest_sme2.plugin.benchmarking import benchmarked_arms
from pytest_sme2.results.run import Arm, Capabilities


def session(device: str, *, sme2: bool = False, emulated: bool = False) -> Any:
    chosen = SimpleNamespace(capabilities=lambda: Capabilities(timing=True, sme2=sme2))
    return SimpleNamespace(
        emulated=emulated,
        settings=SimpleNamespace(device=device),
        bench=SimpleNamespace(chosen=chosen),
    )


def test_both_arms_where_sme2_can_be_switched() -> None:
    assert benchmarked_arms(session("mac", sme2=True)) == (Arm.ON, Arm.OFF)
    # A phone is not opened while tests are collected.
    assert benchmarked_arms(session("android")) == (Arm.ON, Arm.OFF)


def test_one_arm_elsewhere() -> None:
    assert benchmarked_arms(session("linux")) == ()
    assert benchmarked_arms(session("auto", sme2=True, emulated=True)) == ()


def test_a_device_that_cannot_be_chosen_is_left_to_the_first_test() -> None:
    class Absent:
        @property
        def chosen(self) -> object:
            raise TargetError("there is none")

    broken = session("mac", sme2=True)
    broken.bench = Absent()
    assert benchmarked_arms(broken) == ()
