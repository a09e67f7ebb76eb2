"""Random programs: what they are, how one is drawn from a seed, and which ones are smaller.

Pure: nothing here needs torch. ``networks.py`` builds them, ``script.py`` writes them down.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

# A layer of these has weights; the others are activations, and products of two activations.
LINEAR, CONVOLUTION, TRANSPOSED = "linear", "convolution", "transposed convolution"
PRODUCT = "product with itself"
ACTIVATIONS = ("ReLU", "Hardswish", "Sigmoid", "GELU")

# bf16 is left out: ExecuTorch 1.5 runs it on portable kernels, as the kernel matrix shows.
PRECISIONS = {
    "fp32": "fp32",
    "fp16": "fp16",
    "int8 per channel": "int8",
    "int8 per tensor": "int8",
    "dynamic int8": "int8_dynamic",
    "int4 per channel": "int4_channel",
    "int4 per group": "int4",
}
DATA_TYPES = tuple(PRECISIONS)
# Their linear layers alone are quantized, so images would test fp32 once more.
_OF_LINEAR = ("dynamic int8", "int4 per channel", "int4 per group")
GROUP = 32

# Around the sizes of vectors and tiles, where tails are.
_SIZES = (
    *(1, 1, 2, 3, 4, 5, 7, 8, 9, 12, 15, 16, 17, 24, 31, 32, 33, 47, 48, 49, 63, 64, 65, 80, 96),
    *(127, 128, 129),
)
_SIDES = (1, 2, 3, 4, 5, 7, 8, 9, 11, 14, 16, 17)
# Emulated NEON takes about a second for as many.
MOST_MACS = 2_000_000
_MOST_LAYERS = 3
# A single row has kernels of its own, and chance alone would hardly ever draw it.
_ONE_ROW_IN = 4


@dataclass(frozen=True)
class Layer:
    """One layer. Its inputs are what the layer before gives."""

    kind: str
    outputs: int = 0
    """Features or channels; 0 where they are those of the input."""
    kernel: tuple[int, int] = (1, 1)
    stride: int = 1
    padding: int = 0
    dilation: int = 1
    groups: int = 1
    bias: bool = True


@dataclass(frozen=True)
class RandomProgram:
    """A chain of layers with random weights."""

    seed: int
    """Of its weights and its input."""
    data_type: str
    shape: tuple[int, ...]
    """Of the input: rows and features, with or without a batch, or an image."""
    layers: tuple[Layer, ...]

    def __str__(self) -> str:
        layers = ", ".join(_described(layer) for layer in self.layers)
        return f"{self.data_type}, input {'x'.join(map(str, self.shape))}: {layers}"


def _described(layer: Layer) -> str:
    if layer.kind in ACTIVATIONS or layer.kind == PRODUCT:
        return layer.kind
    if layer.kind == LINEAR:
        return f"linear to {layer.outputs}"
    words = [f"{layer.kind} {layer.kernel[0]}x{layer.kernel[1]} to {layer.outputs}"]
    usual = Layer(layer.kind)
    for name in ("stride", "padding", "dilation", "groups"):
        if getattr(layer, name) != getattr(usual, name):
            words.append(f"{name} {getattr(layer, name)}")
    return " ".join(words)


def shapes(program: RandomProgram) -> tuple[tuple[int, ...], ...] | None:
    """The input's shape and that behind every layer; None where a layer cannot take its input."""
    found = [program.shape]
    for layer in program.layers:
        behind = _behind(layer, found[-1])
        if behind is None or (
            layer.kind == LINEAR and program.data_type == "int4 per group" and found[-1][-1] % GROUP
        ):
            return None
        found.append(behind)
    return tuple(found)


def _behind(layer: Layer, shape: tuple[int, ...]) -> tuple[int, ...] | None:
    if layer.kind in ACTIVATIONS:
        return shape
    if layer.kind == PRODUCT:
        return (*shape[:2], shape[1]) if len(shape) == 3 else None
    if layer.kind == LINEAR:
        return (*shape[:-1], layer.outputs) if len(shape) < 4 else None
    if len(shape) != 4 or shape[1] % layer.groups or layer.outputs % layer.groups:
        return None
    sides = [_side(layer, number, side) for number, side in enumerate(shape[2:])]
    return (shape[0], layer.outputs, *sides) if min(sides) > 0 else None


def _side(layer: Layer, number: int, side: int) -> int:
    reach = layer.dilation * (layer.kernel[number] - 1)
    if layer.kind == TRANSPOSED:
        return (side - 1) * layer.stride - 2 * layer.padding + reach + 1
    return (side + 2 * layer.padding - reach - 1) // layer.stride + 1


def multiply_accumulates(program: RandomProgram) -> int:
    known = shapes(program)
    if known is None:
        return 0
    total = 0
    for layer, before, behind in zip(program.layers, known, known[1:], strict=False):
        if layer.kind in (PRODUCT, LINEAR):
            total += math.prod(behind) * before[-1]
        elif layer.kind not in ACTIVATIONS:
            pixels = math.prod((before if layer.kind == TRANSPOSED else behind)[2:])
            taps = layer.kernel[0] * layer.kernel[1]
            total += before[0] * pixels * taps * before[1] * layer.outputs // layer.groups
    return total


def draw(seed: int, number: int, data_type: str) -> RandomProgram:
    """The program of this number; the same for the same seed, in any version of Python."""
    chance = random.Random(f"{seed}/{number}")  # noqa: S311 - a program, not a secret
    while True:
        rows = data_type in _OF_LINEAR or chance.random() < 0.35
        program = (_rows if rows else _image)(chance, number, data_type)
        if 0 < multiply_accumulates(program) <= MOST_MACS:
            return program


def _rows(chance: random.Random, number: int, data_type: str) -> RandomProgram:
    def features() -> int:
        size = chance.choice(_SIZES)
        return size + -size % GROUP if data_type == "int4 per group" else size

    batched = chance.random() < 0.3
    shape = ((chance.choice((1, 2, 3, 4)),) if batched else ()) + (chance.choice(_SIZES),)
    if number % _ONE_ROW_IN == _ONE_ROW_IN - 1:
        shape = (1,) * len(shape)
    layers: list[Layer] = []
    if batched and chance.random() < 0.4:
        layers.append(Layer(PRODUCT))
    for _ in range(chance.randint(0 if layers else 1, _MOST_LAYERS)):
        layers.append(Layer(LINEAR, features(), bias=chance.random() < 0.7))
        layers += _activation(chance)
    return RandomProgram(number, data_type, (*shape, features()), tuple(layers))


def _image(chance: random.Random, number: int, data_type: str) -> RandomProgram:
    shape = (1, chance.choice(_SIZES), chance.choice(_SIDES), chance.choice(_SIDES))
    channels, layers = shape[1], []
    for _ in range(chance.randint(1, _MOST_LAYERS)):
        layer = _convolution(chance, channels)
        layers += [layer, *_activation(chance)]
        channels = layer.outputs
    return RandomProgram(number, data_type, shape, tuple(layers))


def _convolution(chance: random.Random, channels: int) -> Layer:
    kind = TRANSPOSED if chance.random() < 0.15 else CONVOLUTION
    side = chance.choice((1, 1, 2, 3, 3, 3, 5, 7))
    kernel = (side, side) if chance.random() < 0.8 else (side, chance.choice((1, 2, 3)))
    groups = 1
    if chance.random() < 0.4:
        groups = chance.choice([size for size in range(1, channels + 1) if not channels % size])
    outputs = groups * chance.choice([size for size in _SIZES if size * groups <= 160] or [1])
    return Layer(
        kind,
        outputs,
        kernel,
        stride=chance.choice((1, 1, 2)),
        padding=chance.choice((0, min(kernel) // 2)),
        dilation=chance.choice((1, 1, 1, 2)) if kind == CONVOLUTION else 1,
        groups=groups,
        bias=chance.random() < 0.7,
    )


def _activation(chance: random.Random) -> list[Layer]:
    return [Layer(chance.choice(ACTIVATIONS))] if chance.random() < 0.4 else []


def smaller(program: RandomProgram) -> Iterator[RandomProgram]:
    """Programs with less in them, the boldest first; each is one that can be built."""
    for candidate in _simpler(program):
        if candidate != program and multiply_accumulates(candidate):
            yield candidate


def shrink(
    program: RandomProgram,
    first_that_differs: Callable[[list[RandomProgram]], RandomProgram | None],
    rounds: int = 20,
) -> RandomProgram:
    """The smallest program that still differs; all candidates of a round are tried at once."""
    for _ in range(rounds):
        better = first_that_differs(list(smaller(program)))
        if better is None:
            break
        program = better
    return program


def _simpler(program: RandomProgram) -> Iterator[RandomProgram]:
    layers = program.layers
    for index in range(len(layers)):
        yield replace(program, layers=layers[:index] + layers[index + 1 :])
    if len(program.shape) == 3:
        yield replace(program, shape=program.shape[1:])
    for index, layer in enumerate(layers):
        for changed in _simpler_layers(layer):
            yield replace(program, layers=(*layers[:index], changed, *layers[index + 1 :]))
    for index, size in enumerate(program.shape):
        for less in _less(size):
            shape = (*program.shape[:index], less, *program.shape[index + 1 :])
            yield replace(program, shape=shape)


def _simpler_layers(layer: Layer) -> Iterator[Layer]:
    usual = Layer(layer.kind, bias=False)
    for name in ("groups", "kernel", "stride", "padding", "dilation", "bias"):
        yield replace(layer, **{name: getattr(usual, name)})
    for less in _less(layer.outputs):
        yield replace(layer, outputs=less)


def _less(size: int) -> Iterator[int]:
    yield from dict.fromkeys(number for number in (1, size // 2, size - 1) if 0 < number < size)
