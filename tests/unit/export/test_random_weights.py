"""Batch norms of random networks: settled where that means something, left alone elsewhere."""

from __future__ import annotations

from typing import Any

import pytest

from pytest_sme2.export.weights import lifeless, settle_batch_norms

torch: Any = pytest.importorskip("torch")


def test_batch_norms_get_the_statistics_of_the_inputs() -> None:
    torch.manual_seed(0)
    network = torch.nn.Sequential(
        *(torch.nn.Conv2d(3, 8, 3), torch.nn.BatchNorm2d(8)),
        *(torch.nn.AdaptiveAvgPool2d(1), torch.nn.BatchNorm2d(8)),
    ).train()
    image = 5 + 3 * torch.randn(1, 3, 16, 16)
    assert settle_batch_norms(network, image) is network
    assert network.training
    settled = network[1].eval()(network[0](image))
    assert settled.mean((0, 2, 3)).abs().max() < 1e-5
    assert (settled.std((0, 2, 3)) - 1).abs().max() < 1e-3
    # One value a channel: its statistics stay what they were.
    assert network[3].running_var.eq(1).all()
    assert network[3].running_mean.eq(0).all()
    assert not network[1]._forward_pre_hooks


def test_on_a_few_pixels_the_last_digits_do_not_decide_the_answer() -> None:
    torch.manual_seed(0)
    layers: list[Any] = []
    for _ in range(12):
        layers += [torch.nn.Conv2d(32, 32, 3, padding=1), torch.nn.ReLU(), torch.nn.BatchNorm2d(32)]
    deep, small = torch.nn.Sequential(*layers).eval(), torch.randn(1, 32, 2, 2)
    settle_batch_norms(deep, small)
    with torch.no_grad():
        answer, beside = deep(small), deep(small + 1e-6)
    assert 0.1 < answer.std() < 10
    assert (answer - beside).abs().max() < 1e-4


@pytest.mark.parametrize(
    ("least", "greatest", "values", "reason"),
    [
        (-3.95e-14, 2e-14, 1000, "nearly zero (its largest value is 4e-14)"),
        (0.0, 0.0, 1, "nearly zero (its largest value is 0)"),
        (0.998, 1.0, 10, "nearly constant (all values lie between 0.998 and 1)"),
        (1.0, 1.0, 1, ""),
        (-0.1, 0.1, 10, ""),
        (1e-4, 2e-4, 10, ""),
    ],
)
def test_an_output_that_says_nothing(
    least: float, greatest: float, values: int, reason: str
) -> None:
    assert lifeless(least, greatest, values) == reason
