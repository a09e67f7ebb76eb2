"""The benchmark of frontiers: its chip in Python and on a fake phone, and what it makes of them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.frontier import (
    Trial,
    account,
    build,
    chip_of,
    claims,
    on_phone,
    pretended_phone,
    simulate,
)
from pytest_sme2.errors import TargetError
from pytest_sme2.results import PAIR, Arm, Ship
from pytest_sme2.system.qemu import find_qemu
from tests.support.phones import start_lab


def test_more_threads_than_slots_bring_sme2_little():
    one, two = (chip_of(1.0, slots).cells() for slots in (1, 2))
    assert one[Arm.ON, 4] > 0.97 * one[Arm.ON, 2]
    assert two[Arm.ON, 2] < 0.6 * two[Arm.ON, 1]
    assert one[Arm.OFF, 4] < 0.6 * one[Arm.OFF, 2]


@pytest.mark.parametrize(
    ("ratio", "ship"), [(0.7, Ship.REFERENCE), (1.0, Ship.EITHER), (1.4, Ship.CANDIDATE)]
)
@pytest.mark.parametrize("more", [0.004, None])
def test_a_simulated_frontier_says_what_is_true(ratio, ship, more):
    found = simulate((ratio, 1, more, 0.004, 1))
    assert (found.ship, found.covered) == (ship, True)
    assert found.ratio == pytest.approx(ratio)
    assert found.slower == pytest.approx(0.0, abs=0.03)


def test_on_a_fake_phone_each_cell_has_its_own_cores_and_true_time(tmp_path: Path) -> None:
    try:
        emulator = find_qemu().path
    except TargetError as error:
        pytest.skip(str(error))
    chip = chip_of(1.4, 1)
    with start_lab(emulator=emulator) as lab, pretended_phone(lab) as target:
        found = on_phone(target, build(tmp_path / "runner"), chip, tmp_path / "run", budget=0.5)
    assert [(cell.arm, cell.threads) for cell in found.cells] == list(chip.cells())
    assert [cell.cores for cell in found.cells if cell.arm is Arm.ON] == [
        "7 at 3.30 GHz",
        "7 at 3.30 GHz, 4 at 2.80 GHz",
        "7 at 3.30 GHz, 4-6 at 2.80 GHz",
    ]
    # Between full speed and the slow clock; on other cores it would be neither.
    for cell, true in zip(found.cells, chip.cells().values(), strict=True):
        assert all(0.97 < time / true < 1.44 for time in cell.medians_ns)
    assert {found.cells[i].arm for i in (found.candidate, found.reference)} == {*PAIR}


def test_what_is_claimed():
    good = Trial("simulated", 1.4, Ship.CANDIDATE, 0.0, True, 20)
    wrong = replace(good, slower=0.04, covered=False)
    open_ = replace(good, ship=Ship.UNCLEAR, slower=None)
    found = {claim.key: claim for claim in claims([*[good] * 98, wrong, open_])}
    assert found["wrong simulated"].value == 0.01
    assert found["covered simulated"].value == 0.99
    assert found["unclear simulated"].value == 0.01
    assert found["wrong simulated"].met is True
    # A hundred prove less than was promised.
    assert found["frontiers simulated"].met is False
    assert account([good, wrong]) == {"simulated": {"1.40": {"candidate": 2}}}
