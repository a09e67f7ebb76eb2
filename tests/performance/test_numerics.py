"""Whether the answers are right: against the eager model, and with SME2 on against off."""

import pytest

from pytest_sme2 import Gate

pytestmark = pytest.mark.numerics


def test_outputs_agree_with_the_eager_model(sme2_gate: Gate) -> None:
    sme2_gate.check_outputs(against="reference")


def test_outputs_agree_with_sme2_on_and_off(sme2_gate: Gate) -> None:
    sme2_gate.check_outputs(against="off")
