"""Models with a state: what they say of it, and that looking at them does not change it."""

from __future__ import annotations

from typing import Any

import pytest

from pytest_sme2.errors import ModelError
from pytest_sme2.export.sequences import check_alike, earlier_inputs, last_answer, token_count

torch: Any = pytest.importorskip("torch")


class Sum(torch.nn.Module):
    """Answers with the sum of all that it was ever given."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("total", torch.zeros(2))

    def forward(self, values: Any) -> Any:
        self.total.add_(values)
        return self.total.clone()


class Stateless:
    def get_eager_model(self) -> Any: ...
    def get_example_inputs(self) -> Any: ...


class Stateful(Stateless):
    tokens = 3

    def get_earlier_inputs(self) -> Any:
        return [[torch.ones(2)], (torch.ones(2),)]


def test_the_answer_is_that_after_the_earlier_steps_and_leaves_no_trace() -> None:
    network = Sum()
    steps = earlier_inputs(Stateful())
    for _ in range(2):
        assert last_answer(network, steps, (torch.ones(2),), {}).tolist() == [3, 3]
    assert network.total.tolist() == [0, 0]


def test_a_model_without_a_state_has_no_earlier_steps_and_no_tokens() -> None:
    assert earlier_inputs(Stateless()) == []
    assert token_count(Stateless(), "net") is None
    assert token_count(Stateful(), "net") == 3


@pytest.mark.parametrize("tokens", [0, -1, 1.5, "8", True])
def test_a_number_of_tokens_that_is_none_is_refused(tokens: object) -> None:
    model = Stateful()
    model.tokens = tokens  # type: ignore[assignment]
    with pytest.raises(ModelError, match=r"'net': tokens is .* a number from 1 on"):
        token_count(model, "net")


def test_steps_must_be_alike() -> None:
    check_alike([[torch.ones(2)], [torch.zeros(2)]], "net")
    with pytest.raises(ModelError, match=r"step 1 of get_earlier_inputs\(\).*They must be alike"):
        check_alike([[torch.ones(2)], [torch.ones(3)], [torch.ones(2)]], "net")
