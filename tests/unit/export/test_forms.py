"""What an operator does decides what takes its place, and the answers stay."""

from __future__ import annotations

import pytest

from pytest_sme2.export.variant import NAMES
from tests.support.needs import needs_export

pytestmark = [needs_export, pytest.mark.filterwarnings("ignore")]
torch = pytest.importorskip("torch")
F = torch.nn.functional

IMAGE, PLACES = (2, 4, 6, 8), torch.tensor([0, 2, 1, 1])
TURNED = "functional.linear(x.transpose({0}, -1), m).transpose({0}, -1)"
PAD, WIDE = (2, 1, 1, 1), torch.ones(4, 1, 7, 7)
STATISTICS = [torch.linspace(0.5, 1.5, 4)] * 4
# By what is written: what takes its place.
FORMS = {
    "x.sum((1, 2))": "(x.permute(0, 3, 1, 2).mean((2, 3), keepdim=True) * 24.0).reshape(2, 8)",
    "torch.cumsum(x, 2)": TURNED.format(2),
    "x.cumsum(-1)": "functional.linear(x, m)",
    "x.sum(2, keepdim=True)": TURNED.format(2),
    "x.mean(1)": TURNED.format(1),
    "x.mean((2, 3))": "`mean` of 2x4x6x8 as `x.mean((2, 3), keepdim=True).reshape(2, 4)`",
    "F.max_pool2d(x, 2).mean(1)": "functional.conv2d(x, m)",
    "torch.zeros_like(x).index_add(1, PLACES, x * x)": TURNED.format(1),
    "F.pad(x, PAD, mode='reflect')": "torch.cat([x[:, :, :, 2:3], x[:, :, :, 1:2], ",
    "torch.roll(x, 3, 3)": "`x = torch.cat([x[:, :, :, 5:8], x[:, :, :, 0:5]], 3)`",
    "x.flip(1)": "torch.cat([x[:, 3:4], x[:, 2:3], x[:, 1:2], x[:, 0:1]], 1)",
    "x[:, :, PLACES[:3]]": "torch.cat([x[:, :, 0:1], x[:, :, 2:3], x[:, :, 1:2]], 2)",
    "x[:, :, PLACES]": TURNED.format(2),
    "x[:, 1]": "`select` of 2x4x6x8 as `x = x[:, 1:2].reshape(2, 6, 8)`",
    "x[:, None]": "`unsqueeze` of 2x4x6x8 as `x.reshape(2, 1, 4, 6, 8)`",
    "torch.softmax(x, 1)": "`x.transpose(1, -1).softmax(-1).transpose(1, -1)`",
    "x[0, 0] @ x[0, 1].T": "torch.bmm(x.reshape(1, 6, 8), y.reshape(1, 8, 6)).reshape(6, 6)",
    "x[0] @ x[0, 1].T": "torch.bmm(x.reshape(1, 24, 8), y.reshape(1, 8, 6)).reshape(4, 6, 6)",
    "F.softplus(x)": "as `torch.relu(x) + torch.log(torch.exp(-torch.abs(x)) + 1)`",
    "F.mish(x)": "as `x * torch.tanh(torch.relu(x) + torch.log(torch.exp(-torch.abs(x)) + 1))`",
    "F.logsigmoid(x)": "as `torch.log(torch.sigmoid(x))`",
    "(x * x).log1p()": "`log1p` of 2x4x6x8 as `torch.log(x + 1)`",
    "F.silu(x)": "as `x * torch.sigmoid(x)`",
    "F.silu(x + 1, inplace=True)": "as `x * torch.sigmoid(x)`",
    "F.hardsigmoid(x)": "as `torch.clamp(x + 3, 0, 6) * (1 / 6)`",
    "torch.pow(x, 3)": "as `x * x * x`",
    "x.expm1()": "as `torch.exp(x) - 1`",
    "x.unbind(1)[2]": "`unbind` of 2x4x6x8 as `x = x[:, 2:3].reshape(2, 6, 8)`",
    "torch.split(x, 3, 3)[1]": "`split` of 2x4x6x8 as `x = x[:, :, :, 3:6]`",
    "F.conv2d(x, WIDE, padding=3, groups=4)": "the sum of 3x7 and 3x7 and 1x7",
    "F.conv2d(x, WIDE[:, :, :6], stride=2, padding=4, dilation=2, groups=4)": "3x7 and 3x7",
    "F.silu(F.batch_norm(x, *STATISTICS))": "as `h * torch.tanh(h) + h`, with half the",
    "F.conv2d(x[:, :1], WIDE[:, :, :3, :3], padding=1)": "one channel as two",
}
LEFT = (
    "F.pad(x, PAD)",
    "x.mean((2, 3), keepdim=True)",
    "torch.softmax(x, 3)",
    "x.reshape(2, -1)",
    "x.amax(1)",
    "F.gelu(x)",
    "torch.pow(x, 2)",
    "torch.pow(x * x, 1.5)",
    "F.batch_norm(x, torch.zeros(4), torch.ones(4))",
    "x * x",
    "x @ torch.ones(8, 3)",
    "F.conv2d(x, WIDE[:, :, :3, :3], groups=4)",
)


def rewritten(code, *shape, names=NAMES, layer=None, near=1e-4):
    """What was written how, and the worst error of the answers."""
    from pytest_sme2.export.forms import with_forms

    class Net(torch.nn.Module):  # type: ignore[name-defined]
        def __init__(self):
            super().__init__()
            self.layer = layer

        def forward(self, x):
            return eval(code, {**globals(), "x": x, "layer": self.layer})

    torch.manual_seed(0)
    given = (torch.randn(shape),)
    program = torch.export.export(Net(), given)
    after, told = with_forms(program, given, {}, names)
    other = (torch.randn(shape),)
    torch.testing.assert_close(after.module()(*other), Net()(*other), rtol=near, atol=near)
    return told, [str(node.target) for node in after.graph.nodes]


@pytest.mark.parametrize("code", [*FORMS, *LEFT])
def test_an_operator_becomes_what_does_the_same(code: str) -> None:
    told, _ = rewritten(code, *IMAGE)
    assert (FORMS[code] in " ".join(told)) if code in FORMS else not told


@pytest.mark.parametrize(
    "code",
    [
        code
        for code, text in FORMS.items()
        if text.endswith("`") and "+ 1" not in code and "log1p" not in code
    ],
)
def test_what_is_told_does_the_same_when_it_is_typed_in(code: str) -> None:
    told, _ = rewritten(code, *IMAGE)
    text = next(text for text in told if FORMS[code] in text)
    typed, given = text.split("`")[3], {**globals(), "x": torch.randn(IMAGE)}
    expected, written = eval(code, given), dict(given)
    exec(typed if " = " in typed else f"x = {typed}", written)
    torch.testing.assert_close(written["x"].reshape(expected.shape), expected)


def test_what_is_taken_in_fp32_alone_is_written_in_fp16() -> None:
    (told,), _ = rewritten("F.gelu(x.half()).float()", *IMAGE, names=("gelu",), near=1e-2)
    assert told.startswith("`gelu` of 2x4x6x8 as `0.5 * x * (1 + torch.tanh(")


KERNEL = "torch.ones(4, 3, 3, 3).to(x.dtype)"
# By rewrite: what it replaces, and what it leaves as it is.
NAMED = {
    "sdpa": ("F.scaled_dot_product_attention(x, x, x)",
             "F.scaled_dot_product_attention(x[0], x[0], x[0])"),
    "chunk": ("F.glu(x, 2)", ""),
    "layer_norm": ("F.layer_norm(x, (8,))", "F.layer_norm(x, (6, 8))"),
    "group_norm": ("F.group_norm(x, 2) + F.instance_norm(x, weight=x[0, :, 0, 0])", ""),
    "transposed": (f"F.conv_transpose2d(x, {KERNEL}, stride=2, padding=1)",
                   f"F.conv_transpose2d(x, {KERNEL}, groups=2, stride=2)"),
    "expand": ("x[:, :1].expand_as(x)", ""),
}  # fmt: skip


@pytest.mark.parametrize("type_", ["float", "half"])
@pytest.mark.parametrize("name", NAMED)
def test_an_operator_with_a_name_is_replaced_where_that_fits(name: str, type_: str) -> None:
    near = 1e-3 if type_ == "float" else 2e-2
    for fits, code in zip((True, False), NAMED[name], strict=True):
        if code:
            code = f"(lambda x: {code})(x.{type_}())"
            (_, before), (_, after) = (
                rewritten(code, *IMAGE, names=names, near=near) for names in ((), (name,))
            )
            assert (before != after) is fits


MASKED = (
    "F.scaled_dot_product_attention(x, x, x, torch.arange(6)[None] >= torch.arange(6)[:, None])"
)


@pytest.mark.parametrize(
    "code",
    [MASKED, "F.scaled_dot_product_attention(x, x, x, is_causal=True)", "F.layer_norm(x, (8,))"],
)
def test_a_rewrite_folds_what_it_made_itself(code: str) -> None:
    """What the model computes in vain is another piece of advice."""
    constant = {
        "aten.arange.default",
        "aten.ge.Tensor",
        "aten.full.default",
        "aten.where.Scalar",
    }
    _, after = rewritten(code, *IMAGE, names=("sdpa", "layer_norm"), near=1e-3)
    assert constant.intersection(after) == (
        constant - {"aten.full.default"} if code == MASKED else set()
    )
    _, after = rewritten(code, *IMAGE, names=("sdpa", "layer_norm", "constant"), near=1e-3)
    assert not constant.intersection(after)


@pytest.mark.parametrize("kind", ["LSTM", "GRU"])
def test_the_steps_of_a_recurrent_layer_are_written_out(kind: str) -> None:
    layer = getattr(torch.nn, kind)(8, 4, batch_first=True, bidirectional=True).eval()
    told, operators = rewritten("layer(x)[0]", 1, 5, 8, names=("form",), layer=layer)
    assert "0:4]`" in " ".join(told)
    assert not any("split" in name for name in operators)


SEQUENCE = """(lambda conv, pad: F.adaptive_avg_pool1d(conv(F.max_pool1d(
    torch.cat([F.glu(conv(pad(x)), 1), conv(pad(x), 2)[:, 3:] * 2], 1)
    .transpose(1, 2).relu().transpose(1, 2)[:, :, :6], 2), 3), 1))(
    lambda v, groups=1: F.conv1d(v, torch.linspace(-1, 1, 108).reshape(6, -1, 3)[:, :6 // groups],
    padding=1, groups=groups), lambda v: F.pad(v, (2, 0)))"""


def test_a_sequence_stays_an_image_from_the_first_convolution_to_the_last() -> None:
    told, operators = rewritten(SEQUENCE, 2, 6, 8, names=("conv1d",))
    assert told == []
    assert not any("1d" in name for name in operators)
    assert sum("conv2d" in name for name in operators) == 3


def test_nothing_is_written_for_what_nobody_asked() -> None:
    assert rewritten("x.cumsum(1)", *IMAGE, names=("silu", "mean"))[0] == []
    assert rewritten("x.mean(1)", *IMAGE, names=("mean",))[0] != []


IN_VAIN = {
    "x.cumsum(3) @ torch.ones(8, 3)": [],
    "F.conv2d(F.pad(x, (2, 0)), WIDE[:, :, :1, :3], groups=4)[..., -1:]": ["88% of the multiply"],
}


@pytest.mark.parametrize("code", IN_VAIN)
def test_what_no_output_needs_is_told(code: str) -> None:
    from pytest_sme2.export.rewriting import unused

    class Net(torch.nn.Module):  # type: ignore[name-defined]
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(WIDE[:, :, :1, :3])

        def forward(self, x, other):
            return eval(
                code.replace("WIDE[:, :, :1, :3]", "self.weight"), {**globals(), **locals()}
            )

    given = torch.randn(IMAGE), torch.zeros(1)
    told = unused(torch.export.export(Net(), given), given, {})
    wanted = ["input 1 is never read", *IN_VAIN[code]]
    assert [text[: len(start)] for text, start in zip(told, wanted, strict=True)] == wanted
