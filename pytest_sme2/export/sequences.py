"""Models with a state, such as a key/value cache: what comes before the measured inference.

Part of the child process; torch is given to it.
"""

from __future__ import annotations

from typing import Any

from pytest_sme2.errors import ModelError
from pytest_sme2.export.registry import Model

Steps = list[tuple[Any, ...]]


def earlier_inputs(model: Model) -> Steps:
    """What the model's earlier inferences take, in order; none for a model without a state."""
    given = getattr(model, "get_earlier_inputs", None)
    return [tuple(step) for step in given()] if given else []


def token_count(model: Model, name: str) -> int | None:
    """How many tokens the measured inference takes, where the model says so."""
    tokens = getattr(model, "tokens", None)
    if tokens is not None and (type(tokens) is not int or tokens < 1):
        raise ModelError(f"Model {name!r}: tokens is {tokens!r}. It must be a number from 1 on.")
    return tokens


def check_alike(leaves: list[list[Any]], name: str) -> None:
    """A program takes one shape, so all steps must have that of the last, the measured one."""
    expected = [(tensor.dtype, tuple(tensor.shape)) for tensor in leaves[-1]]
    for number, step in enumerate(leaves):
        found = [(tensor.dtype, tuple(tensor.shape)) for tensor in step]
        if found != expected:
            raise ModelError(
                f"Model {name!r}: step {number} of get_earlier_inputs() has the inputs {found}, "
                f"get_example_inputs() has {expected}. They must be alike."
            )


def last_answer(
    network: Any, steps: Steps, arguments: tuple[Any, ...], keywords: dict[str, Any]
) -> Any:
    """What the model answers after the earlier steps; its state stays as it was."""
    before = {name: buffer.clone() for name, buffer in network.named_buffers()}
    try:
        for step in steps:
            network(*step, **keywords)
        return network(*arguments, **keywords)
    finally:
        for name, buffer in network.named_buffers():
            if bool((buffer != before[name]).any()):
                buffer.detach().copy_(before[name])
                # Else the buffer would depend on weights that are trained, and torch lowers no
                # such graph.
                network.requires_grad_(False)
