"""This version against another one, in the same run: `pytest --against executorch==1.5.0`."""

import pytest

from pytest_sme2 import Gate


@pytest.mark.structure
@pytest.mark.timing
def test_it_is_not_slower_than_what_it_is_held_against(sme2_gate: Gate) -> None:
    sme2_gate.check_against()
