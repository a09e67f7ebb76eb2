"""What your own project adds: the checks of the hook `pytest_sme2_checks` in a conftest.py."""

import pytest

from pytest_sme2 import Gate


@pytest.mark.structure
@pytest.mark.timing
@pytest.mark.sme2(custom=True)
def test_the_checks_of_this_project(sme2_gate: Gate) -> None:
    sme2_gate.check_custom()
