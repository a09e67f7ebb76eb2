"""How a model is exported: its data type and, optionally, its input size.

What splits XNNPACK's delegate, and how to write it so that it does not. Facts, no torch.

``sme2 advise`` reads this table; a variant such as ``fp16+silu`` applies it. Each row was seen with
ExecuTorch 1.5: ``tests/unit/export/test_rewrites.py`` exports before and after.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from pytest_sme2.errors import UsageError
from pytest_sme2.system.wording import split_list

PRECISIONS = ("fp32", "fp16", "bf16", "int8", "int8_dynamic", "int4", "int4_channel")
NO_PASSES = "no_passes"

_VARIANT = re.compile(
    r"(?P<precision>[a-z0-9_]+)(?P<rewrites>(?:\+[a-z0-9_]+)*)(?:@(?P<size>[1-9][0-9]{0,4}))?"
)


@dataclass(frozen=True)
class Variant:
    """How a model is exported: its precision and, optionally, its input size and rewrites."""

    precision: str
    size: int | None = None
    rewrites: tuple[str, ...] = ()
    """Names of rewrites that are applied to the model first."""
    passes: bool = True
    """Whether ExecuTorch's recommended passes for XNNPACK are used."""

    def __str__(self) -> str:
        size = "" if self.size is None else f"@{self.size}"
        without = () if self.passes else (NO_PASSES,)
        return "+".join((self.precision, *self.rewrites, *without)) + size


def parse_variant(value: str) -> Variant:
    """``fp16``, ``fp16@256``, with rewrites ``fp16+silu@256``, or ``fp16+no_passes``."""
    match = _VARIANT.fullmatch(value)
    precision = match["precision"] if match else value
    if match is None or precision not in PRECISIONS:
        raise UsageError(
            f"{value!r} is not a variant. Choose one of: {', '.join(PRECISIONS)}; "
            "optionally with an input size, as in fp16@256."
        )
    words = match["rewrites"].split("+")[1:]
    if not {NO_PASSES, *NAMES}.issuperset(words) or len(set(words)) < len(words):
        raise UsageError(
            f"{value!r} is not a variant: after + stand rewrites, each once, and {NO_PASSES} to "
            f"lower without ExecuTorch's recommended passes. The rewrites are: {', '.join(NAMES)}."
        )
    rewrites = tuple(word for word in words if word != NO_PASSES)
    size = int(match["size"]) if match["size"] else None
    return Variant(precision, size, rewrites, passes=NO_PASSES not in words)


def file_part(value: str) -> str:
    """A variant as it stands in the name of a file."""
    # Only now: the help of a command names precisions, and comes without all values.
    from pytest_sme2.results.run import AS_EXPORTED

    return AS_EXPORTED.replace(" ", "-") if value == AS_EXPORTED else str(parse_variant(value))


def precision_of(value: str) -> str:
    """The precision of a variant; empty for a program whose precision is unknown."""
    match = _VARIANT.fullmatch(value)
    return match["precision"] if match and match["precision"] in PRECISIONS else ""


def parse_variants(value: str) -> tuple[Variant, ...]:
    return tuple(parse_variant(word) for word in split_list(value))


@dataclass(frozen=True)
class Rewrite:
    """One way to write the same thing."""

    name: str
    written: frozenset[str]
    """The operators of the model that it replaces."""
    what: str
    why: str
    """Why the operator leaves the delegate, a clause."""
    remedy: str
    """What to write instead, a clause."""


# What is told is what is tried.
_SOFTPLUS = "torch.relu(x) + torch.log(torch.exp(-torch.abs(x)) + 1)"
WRITTEN = {
    "softplus": _SOFTPLUS,
    "mish": f"x * torch.tanh({_SOFTPLUS})",
    "log_sigmoid": "torch.log(torch.sigmoid(x))",
    "silu": "x * torch.sigmoid(x)",
    "gelu": "0.5 * x * (1 + torch.tanh(0.7978846 * (x + 0.044715 * x * x * x)))",
    "hardsigmoid": "torch.clamp(x + 3, 0, 6) * (1 / 6)",
    "log1p": "torch.log(x + 1)",
    "expm1": "torch.exp(x) - 1",
}
_WIDE = "PyTorch computes it in fp32, so two conversions stand around it"
MOST_TAPS = 25
"""XNNPACK's largest kernel for depthwise convolutions takes as many weights a channel."""
REWRITES: tuple[Rewrite, ...] = (
    *(
        Rewrite(name, frozenset({f"aten.{name}"}), what, why, f"write `{WRITTEN[name]}`")
        for name, what, why in (
            ("silu", "SiLU", _WIDE),
            ("gelu", "GELU", "XNNPACK takes it in fp32 alone"),
            ("hardsigmoid", "hardsigmoid", _WIDE),
        )
    ),
    Rewrite(
        "sdpa",
        frozenset({"aten.scaled_dot_product_attention"}),
        "scaled_dot_product_attention",
        "it becomes a dozen operators that look for masked rows",
        "write `torch.bmm(torch.softmax(torch.bmm(q * d**-0.5, k.transpose(1, 2)), -1), v)` on "
        "`q.flatten(0, 1)` and so on, a mask of zeros and -1e4 added before the softmax; a causal "
        'one is kept with `register_buffer` (`attn_implementation="eager"` of Hugging Face removes '
        "a part of it)",
    ),
    Rewrite(
        "chunk",
        frozenset({"aten.chunk", "aten.split", "aten.split_with_sizes", "aten.glu"}),
        "chunk, split or GLU",
        "XNNPACK takes slices, but not this",
        "write slices: `x[:, :n]` and `x[:, n:]`; GLU is `x[:, :n] * torch.sigmoid(x[:, n:])`",
    ),
    Rewrite(
        "layer_norm",
        frozenset({"aten.layer_norm", "aten.native_layer_norm"}),
        "LayerNorm",
        "XNNPACK has none",
        "write `c = x - functional.linear(x, m)` and `c * torch.rsqrt(functional.linear(c * c, m) "
        "+ eps) * weight + bias`, where `m`, kept with `register_buffer`, is `torch.full((1, n), "
        "1 / n)`: XNNPACK takes a mean of images alone",
    ),
    Rewrite(
        "group_norm",
        frozenset({"aten.group_norm", "aten.native_group_norm", "aten.instance_norm"}),
        "GroupNorm or InstanceNorm",
        "XNNPACK has none",
        "write the means of an image and of its square as `conv2d(x.mean((2, 3), keepdim=True), "
        "m)`, where `m` averages the channels of each group and is kept with `register_buffer`; "
        "then `x * scale + shift`, exact where the mean is not far above the spread",
    ),
    Rewrite(
        "transposed",
        frozenset({"aten.conv_transpose2d"}),
        "a transposed convolution",
        "XNNPACK has an SME2 kernel for it in int8 alone",
        "write a convolution with `stride * stride` times the channels, then "
        "`torch.pixel_shuffle(x, stride)`",
    ),
    Rewrite(
        "conv1d",
        frozenset({"aten.conv1d"}),
        "Conv1d",
        "XNNPACK has convolutions of images alone, so data is laid out anew around each",
        "keep four dimensions from the first to the last: `nn.Conv2d(n, m, (1, k))` on "
        "`x.unsqueeze(2)`, all between on images of height 1, and `squeeze(2)` after the last",
    ),
    Rewrite(
        "pow",
        frozenset({"aten.pow"}),
        "a power",
        "XNNPACK takes squares alone, and ExecuTorch's own kernel is slow",
        "write the product, `x * x * x`, and `torch.sqrt(x)` for an exponent of 0.5",
    ),
    Rewrite(
        "select",
        frozenset({"aten.select"}),
        "an index such as `x[:, 0]`",
        "XNNPACK takes slices, but not this",
        "write a slice and drop the dimension: `x[:, 0:1].flatten(0, 1)`",
    ),
    Rewrite(
        "unsqueeze",
        frozenset({"aten.unsqueeze"}),
        "a new dimension such as `x[:, None]`",
        "XNNPACK takes it as the last dimension alone",
        "write a reshape: `x.reshape(n, 1, m)`",
    ),
    Rewrite(
        "expand",
        frozenset({"aten.expand", "aten.expand_as"}),
        "expand",
        "XNNPACK repeats values only within arithmetic",
        "multiply by ones: `x * torch.ones(n, m)`, kept with `register_buffer`",
    ),
    Rewrite(
        "mean",
        frozenset({"aten.mean"}),
        "a mean",
        "XNNPACK takes a mean of images alone, and only with `keepdim=True`",
        "write that of images as `x.mean((2, 3), keepdim=True).flatten(1)`, and one over the last "
        "dimension as a linear layer whose weights are all 1/n",
    ),
    Rewrite(
        "conversion",
        frozenset({"aten.to", "aten._to_copy"}),
        "a conversion between data types",
        "XNNPACK takes none",
        "stay in one data type where its range allows it: in fp16, an RMSNorm without "
        "`.to(torch.float32)` needs values whose squares stay below 65,504",
    ),
    Rewrite(
        "depthwise",
        frozenset(),
        f"with more than {MOST_TAPS} weights a channel",
        "XNNPACK has no kernel of that size and multiplies each channel by itself, as a matrix",
        "write a sum of narrower ones, which have one: 3x7, 3x7 and 1x7 in place of 7x7",
    ),
    Rewrite(
        "channel",
        frozenset(),
        "a convolution of one channel",
        "XNNPACK has no matrix kernel for it",
        "give it a second channel of zeros: `functional.pad(x, (0, 0, 0, 0, 0, 1))`, and weights "
        "of zero for that",
    ),
    Rewrite(
        "sigmoid",
        frozenset({"aten.sigmoid"}),
        "Sigmoid",
        "XNNPACK's tanh takes fewer instructions",
        "halve weight and bias of a batch norm before SiLU, and write `h * torch.tanh(h) + h`",
    ),
    Rewrite(
        "form",
        frozenset(),
        "an operator that XNNPACK does not take",
        "it splits the delegate, so data moves in and out",
        "express it with operators that XNNPACK takes, or do it outside of the model",
    ),
    Rewrite(
        "constant",
        frozenset(),
        "work that does not depend on the input",
        "it is done again in every inference",
        "compute it once in `__init__`, and keep it with `register_buffer`",
    ),
)

NAMES = tuple(rewrite.name for rewrite in REWRITES)
FOLDING, GENERAL, DEPTHWISE, CHANNEL = "constant", "form", "depthwise", "channel"
SIGMOID = "sigmoid"

# What nothing here rewrites, but a person can.
RECURRENT = Rewrite(
    GENERAL,
    frozenset({"aten.lstm", "aten.gru"}),
    "an LSTM or GRU",
    "each of its steps splits the gates, and XNNPACK does not take that",
    "write the steps out, with a slice for each gate: `gates[:, :n]`, `gates[:, n : 2 * n]` …",
)
NEAREST = Rewrite(
    "",
    frozenset({"aten.upsample_nearest2d"}),
    "nearest upsampling",
    "XNNPACK resizes images bilinearly alone",
    "leave it where a bilinear resize will not do: repeating each pixel by a product with ones "
    "took more instructions",
)
COMPUTED = Rewrite(
    FOLDING,
    frozenset({"aten.conv2d", "aten.convolution"}),
    "a convolution",
    "XNNPACK takes those alone whose weights are constant",
    "keep the weights constant: what scales them in `forward` can scale the input or the output",
)


def rewrite_named(name: str) -> Rewrite:
    return REWRITES[NAMES.index(name)]


def rewrite_for(written: str, *, constant: bool) -> Rewrite | None:
    """The rewrite that removes an operator of the model; None where none is known."""
    for rewrite in (*REWRITES, RECURRENT, NEAREST, COMPUTED):
        if rewrite.name == FOLDING if constant else written in rewrite.written:
            return rewrite
    return None
