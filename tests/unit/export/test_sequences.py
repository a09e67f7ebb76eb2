"""Models with a state: what they say of it, and that looking at them does not change it."""

from __future__ import annotations

from typing import Any

import pytest

from pytest_sme2.errors import ModelError
from pytest_sme2.export.sequences import (
    Generation,
    answer_of,
    last_step,
    prompt_tokens,
    read_generation,
    token_count,
)

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


def test_the_answer_leaves_no_trace() -> None:
    network = Sum()
    for _ in range(2):
        assert answer_of(network, (torch.ones(2),), {}).tolist() == [1, 1]
    assert network.total.tolist() == [0, 0]


class Counted(Stateless):
    tokens = 3


def test_a_model_may_say_how_many_tokens_it_takes() -> None:
    assert token_count(Stateless(), "net") is None
    assert token_count(Counted(), "net") == 3


@pytest.mark.parametrize("tokens", [0, -1, 1.5, "8", True])
def test_a_number_of_tokens_that_is_none_is_refused(tokens: object) -> None:
    model = Counted()
    model.tokens = tokens  # type: ignore[assignment]
    with pytest.raises(ModelError, match=r"'net': tokens is .* a number from 1 on"):
        token_count(model, "net")


class Window(torch.nn.Module):
    """Gives its cache back with the newest tokens in it, for as long as it has room."""

    def forward(self, tokens: Any, cache: Any) -> Any:
        return tokens.sum() + cache.sum(), torch.cat((cache, tokens), 1)[:, tokens.shape[1] :]


class Decoder(Stateless):
    def __init__(self, **changes: Any) -> None:
        token, cache = torch.ones(1, 1), torch.zeros(1, 4)
        said = {"prompt": (torch.ones(1, 3), cache), "steps": [(token, None)], "fed_back": {1: 1}}
        self.example = (token, cache)
        self.said = Generation(**{**said, **changes})

    def get_generation(self) -> Any:
        return self.said


def read(model: Any) -> Any:
    return read_generation(model, "net", model.example, {})


def test_a_generation_feeds_back_what_it_says() -> None:
    model = Decoder(steps=[(torch.ones(1, 1), None), (torch.ones(1, 1), None)])
    said = read(model)
    assert prompt_tokens(said) == 3
    answer, cache = last_step(Window(), said, "net", model.example)
    assert answer == 1 + 4
    assert cache.tolist() == [[1, 1, 1, 1]]
    assert read_generation(Stateless(), "net", (), {}) is None
    with pytest.raises(ModelError, match="only for models without get_example_kwarg_inputs"):
        read_generation(model, "net", model.example, {"mask": None})


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"steps": []}, "must return a Generation with a prompt and at least one step"),
        ({"prompt": (torch.ones(1, 3),)}, "gives 1 inputs in its prompt, and the model takes 2"),
        ({"steps": [(torch.ones(1, 2), None)]}, r"input 0 of step 1 is torch.float32 \[1, 2\]"),
        ({"fed_back": {}}, "input 1 of step 1 is None"),
        ({"cache": 3}, "a prompt of 3 and 1 new tokens do not fit a cache of 3"),
        ({"fed_back": {1: 0}}, r"output 0 cannot be fed back as input 1: after the prompt it is"),
        ({"fed_back": {1: 2}}, "output 2 cannot be fed back as input 1: .* it is None"),
    ],
)
def test_a_generation_that_cannot_be_run_is_refused(changes: dict[str, Any], said: str) -> None:
    model = Decoder(**changes)
    with pytest.raises(ModelError, match=said):
        last_step(Window(), read(model), "net", model.example)


def test_a_cache_that_is_too_short_is_named_with_the_context() -> None:
    class Short(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("places", torch.zeros(4))

        def forward(self, tokens: Any, place: Any) -> Any:
            self.places[place] = tokens[0]
            return self.places.sum()

    steps = [(torch.ones(1, 1), torch.tensor([place])) for place in range(3, 6)]
    model = Decoder(prompt=(torch.ones(1, 3), torch.arange(3)), steps=steps, fed_back={})
    model.example = steps[0]
    with pytest.raises(ModelError, match=r"at a context of 5 tokens \(step 2 of 3\): .* too short"):
        last_step(Short(), read(model), "net", model.example)
    with pytest.raises(ModelError, match="two methods would not share the cache"):
        last_step(Short(), read(model), "net", model.example, "prefill")
