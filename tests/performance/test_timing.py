"""How long it takes and how much memory: skipped where the device cannot measure it."""

import pytest

from pytest_sme2 import Gate

pytestmark = pytest.mark.timing


def test_sme2_brings_the_speedup_it_should(sme2_gate: Gate) -> None:
    sme2_gate.check_speedup()


def test_latency_is_that_of_the_baseline(sme2_gate: Gate, sme2_benchmark: None) -> None:
    sme2_gate.check_latency()


def test_time_goes_where_it_should(sme2_gate: Gate) -> None:
    sme2_gate.check_shares()


def test_memory_does_not_grow(sme2_gate: Gate) -> None:
    sme2_gate.check_memory()


def test_loading_does_not_get_slower(sme2_gate: Gate) -> None:
    sme2_gate.check_load()
