"""One thing is named in the singular, any other number in the plural."""

from __future__ import annotations

from pytest_sme2.system.wording import count, several


def test_a_noun_agrees_with_its_number() -> None:
    found = [count(number, "operator") for number in range(3)]
    assert found == ["0 operators", "1 operator", "2 operators"]
    assert [several(number, "process") for number in (1, 3)] == ["process", "processes"]
