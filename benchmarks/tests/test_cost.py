"""The parts of the cost benchmarks that need no emulator."""

from __future__ import annotations

import pytest

from benchmarks import cost


def test_what_counting_takes_is_the_median_of_its_rounds() -> None:
    row = cost._row([(2.0, 3.0), (2.2, 3.2), (2.0, 9.0)])
    assert row == {"uncounted_s": 2.0, "counted_s": 3.2, "ratio": 1.6}
    whole = cost._counting_claims({"a": row, "b": cost._row([(8.0, 8.8)])})[-1]
    assert whole.value == pytest.approx(1.2)


def test_an_unknown_part_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cost.main(["everything"])
    assert "Choose from: same, layers, counting, suite" in capsys.readouterr().err
