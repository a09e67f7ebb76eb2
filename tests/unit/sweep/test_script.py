"""The script of a difference."""

from __future__ import annotations

import pytest

from pytest_sme2.results import Arm
from tools.sweep.programs import DATA_TYPES, PRODUCT, Layer, RandomProgram, draw
from tools.sweep.running import Difference
from tools.sweep.script import script


def difference(program: RandomProgram) -> Difference:
    return Difference(program, "on is not off", "strict:256", Arm.ON, "largest error 0.5")


@pytest.mark.parametrize("data_type", DATA_TYPES)
def test_it_is_python_for_every_data_type(data_type: str) -> None:
    for number in range(20):
        text = script(difference(draw(0, number, data_type)), "difference_0_0", "1.5.1")
        compile(text, "difference_0_0.py", "exec")


def test_it_says_what_was_seen_and_how_to_see_it() -> None:
    program = RandomProgram(7, "fp32", (2, 3, 4), (Layer(PRODUCT), Layer("ReLU")))
    text = script(difference(program), "difference_3_0", "1.5.1")
    assert '"""XNNPACK with SME2 on: on is not off.' in text
    assert "Fp32, input 2x3x4: product with itself, ReLU." in text
    assert "sme2 run difference_3_0.pte --device emulated --cpu strict:256" in text
    assert "torch.manual_seed(7)" in text
    assert "    Product(),\n    torch.nn.ReLU(),\n" in text
