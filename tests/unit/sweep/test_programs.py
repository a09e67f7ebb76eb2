"""Random programs: drawn from a seed, always buildable, and made smaller."""

from __future__ import annotations

import pytest

from pytest_sme2.results import Arm
from tools.sweep.programs import (
    CONVOLUTION,
    DATA_TYPES,
    LINEAR,
    MOST_MACS,
    PRODUCT,
    TRANSPOSED,
    Layer,
    RandomProgram,
    draw,
    multiply_accumulates,
    shapes,
    shrink,
    smaller,
)
from tools.sweep.running import Difference
from tools.sweep.script import script

DRAWN = [draw(0, number, DATA_TYPES[number % len(DATA_TYPES)]) for number in range(300)]


def test_the_same_seed_draws_the_same_programs_and_another_one_others() -> None:
    assert [draw(0, number, "fp32") for number in range(20)] == [
        draw(0, number, "fp32") for number in range(20)
    ]
    assert draw(0, 1, "fp32") != draw(1, 1, "fp32")


def test_every_program_can_be_built_and_is_small() -> None:
    for program in DRAWN:
        assert shapes(program) is not None
        assert 0 < multiply_accumulates(program) <= MOST_MACS


def test_all_kinds_of_layers_and_awkward_sizes_come_up() -> None:
    layers = [layer for program in DRAWN for layer in program.layers]
    assert {LINEAR, CONVOLUTION, TRANSPOSED, PRODUCT} <= {layer.kind for layer in layers}
    assert any(layer.groups > 1 for layer in layers)
    assert any(layer.stride == 2 for layer in layers)
    assert any(layer.dilation == 2 for layer in layers)
    assert any(program.shape[0] == 1 and len(program.shape) == 2 for program in DRAWN)
    assert any(size % 4 for program in DRAWN for size in program.shape)


def test_shapes_are_those_of_torch() -> None:
    image = RandomProgram(
        0,
        "fp32",
        (1, 4, 9, 7),
        (
            Layer(CONVOLUTION, 8, (3, 3), stride=2, padding=1),
            Layer("ReLU"),
            Layer(TRANSPOSED, 2, (3, 3), stride=2, padding=1),
        ),
    )
    assert shapes(image) == ((1, 4, 9, 7), (1, 8, 5, 4), (1, 8, 5, 4), (1, 2, 9, 7))
    assert multiply_accumulates(image) == 20 * 9 * 4 * 8 + 20 * 9 * 8 * 2
    rows = RandomProgram(0, "fp32", (2, 5, 3), (Layer(PRODUCT), Layer(LINEAR, 7)))
    assert shapes(rows) == ((2, 5, 3), (2, 5, 5), (2, 5, 7))
    assert multiply_accumulates(rows) == 2 * 5 * 5 * 3 + 2 * 5 * 5 * 7


def test_what_cannot_be_built_has_no_shapes() -> None:
    assert shapes(RandomProgram(0, "fp32", (1, 3, 2, 2), (Layer(CONVOLUTION, 4, (5, 5)),))) is None
    assert (
        shapes(RandomProgram(0, "fp32", (1, 3, 8, 8), (Layer(CONVOLUTION, 4, groups=2),))) is None
    )
    assert shapes(RandomProgram(0, "int4 per group", (4, 33), (Layer(LINEAR, 4),))) is None


def test_smaller_programs_can_be_built_and_differ() -> None:
    for program in DRAWN[:40]:
        for candidate in smaller(program):
            assert candidate != program
            assert shapes(candidate) is not None


def test_shrinking_keeps_what_matters_and_drops_the_rest() -> None:
    """As if grouped convolutions with an odd number of outputs in a group were wrong."""

    def is_wrong(program: RandomProgram) -> bool:
        return any(
            layer.kind == CONVOLUTION and layer.groups > 1 and layer.outputs // layer.groups % 2
            for layer in program.layers
        )

    found = next(program for program in DRAWN if is_wrong(program) and len(program.layers) > 2)
    least = shrink(found, lambda tried: next(filter(is_wrong, tried), None))
    assert is_wrong(least)
    (layer,) = least.layers
    assert layer.kernel == (1, 1)
    assert not layer.bias
    assert least.shape[2:] == (1, 1)


def test_a_program_describes_itself() -> None:
    program = RandomProgram(
        0, "fp16", (1, 4, 9, 7), (Layer(CONVOLUTION, 8, (3, 3), stride=2), Layer("ReLU"))
    )
    assert str(program) == "fp16, input 1x4x9x7: convolution 3x3 to 8 stride 2, ReLU"


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
