"""What a program is made of: exact, the same on every device, and needing no clock."""

import pytest

from pytest_sme2 import Gate

pytestmark = pytest.mark.structure


def test_sme2_is_used_when_on_and_not_when_off(sme2_gate: Gate) -> None:
    sme2_gate.check_evidence()


def test_matrix_operators_stay_on_sme2_kernels(sme2_gate: Gate) -> None:
    sme2_gate.check_coverage()


def test_operators_are_those_of_the_baseline(sme2_gate: Gate) -> None:
    sme2_gate.check_operators()


def test_nothing_falls_out_of_the_delegate(sme2_gate: Gate) -> None:
    sme2_gate.check_delegation()


def test_the_same_kernels_run(sme2_gate: Gate) -> None:
    sme2_gate.check_kernels()


def test_an_inference_does_not_cost_more(sme2_gate: Gate) -> None:
    sme2_gate.check_cost()


def test_the_program_does_not_grow(sme2_gate: Gate) -> None:
    sme2_gate.check_size()
