"""A rewrite written into a model's file: the file answers what it answered before."""

from __future__ import annotations

import re
from typing import Any

import pytest

from pytest_sme2.session.trials import edited, unified_diff

torch = pytest.importorskip("torch")

FILE = '''\
"""A model."""

import torch
import torch.nn.functional as F
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.module = {module}

    def forward(self, value):
        return {code}


class Model:
    def get_eager_model(self):
        return Net()
'''


def written(code: str, module: str = "nn.Identity()") -> str:
    return FILE.format(code=code, module=module)


def answer(source: str) -> Any:
    names: dict[str, Any] = {}
    torch.manual_seed(0)
    exec(source, names)
    model = names["Model"]().get_eager_model()
    return model(torch.randn(2, 4, 6, 8))


CODE = {
    "silu": "F.silu(F.silu(value + 1)) + torch.nn.functional.silu(value).sum()",
    "gelu": "F.gelu(value, approximate='tanh') ",
    "sdpa": "F.scaled_dot_product_attention(value, value, value, is_causal=True)",
    "chunk": "torch.stack([*value.chunk(2, dim=-1), *torch.split(value, [4, 4], 3)])",
    "layer_norm": "F.layer_norm(value, (8,), torch.arange(8.0), None, 1e-3)",
    "pow": "torch.pow(value, 3) + value.pow(2)",
    "unsqueeze": "value.unsqueeze(-1) + torch.unsqueeze(value, 4)",
    "group_norm": "F.group_norm(value, 2, torch.arange(4.0), None, 1e-3)",
    "hardsigmoid": "F.hardsigmoid(value)",
    "transposed": "F.conv_transpose2d(value, torch.ones(4, 3, 5, 5), None, 3, padding=1)",
    "expand": "value[:1].expand(5, -1, 6, 8)",
    "mean": "value.mean((-1, 2)) + value.mean(-1, keepdim=True).mean((2, 3))",
}


OWN = {"super", "nn.Identity", "Net", "__init__", ".__init__", "get_eager_model", "forward"}
OWN |= {"torch.arange", "torch.ones", "torch.stack", ".sum", "nn.Module"}


@pytest.mark.parametrize("name", CODE)
def test_what_a_model_calls_is_replaced_and_answers_the_same(name: str) -> None:
    source = written(CODE[name])
    after = edited(source, [name])
    assert after is not None
    called = set(re.findall(r"[\w.]+(?=\()", after.partition("class Net")[2]))
    assert not called & set(re.findall(r"[\w.]+(?=\()", source)) - OWN, "all are replaced"
    torch.testing.assert_close(answer(after), answer(source), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("name", "module"),
    [
        ("silu", "nn.SiLU(inplace=False)"),
        ("gelu", "torch.nn.GELU('tanh')"),
        ("layer_norm", "nn.LayerNorm(8, eps=1e-3)"),
        ("group_norm", "nn.GroupNorm(2, 4)"),
        ("hardsigmoid", "nn.Hardsigmoid()"),
        ("transposed", "nn.ConvTranspose2d(4, 3, 4, stride=2, padding=1)"),
    ],
)
def test_a_module_is_replaced_by_one_with_the_same_weights(name: str, module: str) -> None:
    source = written("self.module(value)", module)
    here = edited(source, [name])
    # Made by a library, it is replaced in the finished model.
    library = re.sub(r"(?:torch\.)?nn\.(\w+)(?=\(.*\)$)", r"getattr(nn, '\1')", source, flags=re.M)
    there = edited(library, [name])
    assert here is not None
    assert there is not None
    assert ["_rewritten(Net())" in text for text in (here, there)] == [False, True]
    for before, after in ((source, here), (library, there)):
        torch.testing.assert_close(answer(after), answer(before), rtol=1e-4, atol=1e-5)


def test_one_line_stays_one_line() -> None:
    source = written("F.silu(value) * 2")
    after = edited(source, ["silu"])
    assert after == written("(value * torch.sigmoid(value)) * 2")
    changed = [
        line for line in unified_diff(source, after, "m.py").splitlines() if "sigmoid" in line
    ]
    assert changed == ["+        return (value * torch.sigmoid(value)) * 2"]


@pytest.mark.parametrize("name", ["sdpa", "conversion", "constant", "expand"])
def test_what_another_file_calls_has_no_place_here(name: str) -> None:
    assert edited(written("self.module(value)"), [name]) is None
    assert edited(written("F.silu(value)"), ["silu", name]) is None, "all or nothing"
