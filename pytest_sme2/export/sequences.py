"""Models with a state, such as a key/value cache, and whole generations.

Part of the child process; torch is given to it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pytest_sme2.errors import ModelError
from pytest_sme2.export.registry import Model
from pytest_sme2.results.run import FORWARD


def token_count(model: Model, name: str) -> int | None:
    """How many tokens the measured inference takes, where the model says so."""
    tokens = getattr(model, "tokens", None)
    if tokens is not None and (type(tokens) is not int or tokens < 1):
        raise ModelError(f"Model {name!r}: tokens is {tokens!r}. It must be a number from 1 on.")
    return tokens


def answer_of(network: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
    """What the model answers; its state stays as it was."""
    with _same_state(network):
        return network(*arguments, **keywords)


@contextlib.contextmanager
def _same_state(network: Any) -> Iterator[dict[str, Any]]:
    """Gives the buffers as they are, and brings them back to that."""
    before = {name: buffer.clone() for name, buffer in network.named_buffers()}
    try:
        yield before
    finally:
        for name, buffer in network.named_buffers():
            if bool((buffer != before[name]).any()):
                buffer.detach().copy_(before[name])
                # Else the buffer would depend on weights that are trained, and torch lowers no
                # such graph.
                network.requires_grad_(False)


def raw_values(tensor: Any, torch: Any) -> bytes:
    """The raw values, in row-major order."""
    flat = tensor.detach().cpu().contiguous().reshape(-1)
    data: bytes = flat.view(torch.uint8).numpy().tobytes()
    return data


def write_tensors(
    folder: Path, what: str, steps: Sequence[Sequence[Any]], torch: Any, without: Iterable[int] = ()
) -> None:
    """A file for each tensor of a step, with its values in all steps; none where there is none."""
    for index in set(range(len(steps[0]) if steps else 0)) - set(without):
        values = b"".join(raw_values(step[index], torch) for step in steps)
        (folder / f"{what}_{index}.bin").write_bytes(values)


def tensor_spec(tensor: Any) -> dict[str, Any]:
    return {"dtype": str(tensor.dtype).removeprefix("torch."), "shape": list(tensor.shape)}


@dataclass(frozen=True)
class Generation:
    """What the ``get_generation()`` of a language model returns.

    One process runs all of it: the prompt, then one token a step. The cache is the model's own
    state (buffers), or outputs that are inputs of the next step.
    """

    prompt: Sequence[Any]
    """The inputs of the prompt; the first has the tokens, ``[1, tokens]`` or ``[1, tokens, …]``."""
    steps: Sequence[Sequence[Any]]
    """The inputs of each later step, shaped as ``get_example_inputs()``; None if it is fed back."""
    fed_back: Mapping[int, int] = field(default_factory=dict)
    """By input of a step, the output of the step before that it is."""
    cache: int | None = None
    """How many tokens the cache can hold; None where the model itself fails beyond that."""


def read_generation(
    model: Model, name: str, example: Sequence[Any], keywords: Mapping[str, Any]
) -> Generation | None:
    """What the model says, if it does and it can be run."""
    make = getattr(model, "get_generation", None)
    if make is None:
        return None
    said = make()
    head = f"Model {name!r}: get_generation()"
    if keywords:
        raise ModelError(f"{head} is only for models without get_example_kwarg_inputs().")
    if not isinstance(said, Generation) or not said.prompt or not said.steps:
        raise ModelError(f"{head} must return a Generation with a prompt and at least one step.")
    if len(said.prompt) != len(example):
        raise ModelError(
            f"{head} gives {len(said.prompt)} inputs in its prompt, and the model takes "
            f"{len(example)}. Give all of them, a fed back one as it is at first."
        )
    for number, step in enumerate(said.steps, 1):
        for index, tensor in enumerate(example):
            given = step[index] if index < len(step) else None
            if index in said.fed_back and given is None:
                continue
            if len(step) != len(example) or not _alike(given, tensor):
                raise ModelError(
                    f"{head}: input {index} of step {number} is {_spec(given)}, and that of "
                    f"get_example_inputs() is {_spec(tensor)}. They must be alike; None is for an "
                    "input that fed_back names."
                )
    tokens = prompt_tokens(said)
    if said.cache is not None and tokens + len(said.steps) > said.cache:
        raise ModelError(
            f"{head}: a prompt of {tokens} and {len(said.steps)} new tokens do not fit a cache of "
            f"{said.cache}. Make the cache longer, or the generation shorter."
        )
    return said


def prompt_tokens(said: Generation) -> int:
    shape = said.prompt[0].shape
    return int(shape[1] if len(shape) > 1 else shape[0])


def _alike(found: Any, expected: Any) -> bool:
    if found is None:
        return False
    return bool(found.dtype == expected.dtype and found.shape == expected.shape)


def _spec(tensor: Any) -> str:
    return "None" if tensor is None else f"{tensor.dtype} {list(tensor.shape)}"


def last_step(
    network: Any, said: Generation, name: str, example: Sequence[Any], prefill: str = FORWARD
) -> Any:
    """What the model answers in the last step; an error where it cannot generate so far."""
    from torch.utils._pytree import tree_leaves

    with _same_state(network) as before:
        answer = network(*said.prompt)
        buffers = dict(network.named_buffers())
        if prefill != FORWARD and any(bool((buffers[one] != before[one]).any()) for one in before):
            raise ModelError(
                f"Model {name!r} keeps its cache in its buffers, and its prompt has another shape "
                "than its steps: two methods would not share the cache. Give "
                "get_dynamic_shapes(), or feed the cache back."
            )
        for number, step in enumerate(said.steps, 1):
            leaves, inputs = tree_leaves(answer), list(step)
            for place, output in said.fed_back.items():
                found = leaves[output] if 0 <= output < len(leaves) else None
                if not 0 <= place < len(inputs) or not _alike(found, example[place]):
                    raise ModelError(
                        f"Model {name!r}: output {output} cannot be fed back as input {place}: "
                        f"after {'the prompt' if number == 1 else f'step {number - 1}'} it is "
                        f"{_spec(found)}, and the input takes "
                        f"{_spec(example[place]) if 0 <= place < len(inputs) else 'nothing'}."
                    )
                inputs[place] = found
            try:
                answer = network(*inputs)
            except (IndexError, RuntimeError) as error:
                raise ModelError(
                    f"Model {name!r} fails at a context of {prompt_tokens(said) + number} tokens "
                    f"(step {number} of {len(said.steps)}): {error}. Is its cache too short?"
                ) from error
        return answer


def method_of_prompt(
    model: Model, said: Generation | None, example: tuple[Any, ...]
) -> tuple[Any, str]:
    """The shapes that a language model takes, and the method for its prompt.

    One that takes several has one method, as in ExecuTorch's recipe; else the prompt has its own.
    """
    if said is None:
        return None, FORWARD
    make = getattr(model, "get_dynamic_shapes", None)
    if make is not None:
        return make(), FORWARD
    alike = all(one.shape == other.shape for one, other in zip(said.prompt, example, strict=True))
    return None, FORWARD if alike else "prefill"


def describe_generation(said: Generation, prefill: str, inputs: list[Any]) -> dict[str, Any]:
    return {
        "prompt_tokens": prompt_tokens(said),
        "new_tokens": len(said.steps),
        "prompt": [tensor_spec(tensor) for tensor in said.prompt],
        "fed_back": [said.fed_back.get(index) for index in range(len(inputs))],
        "prefill": prefill,
    }


def write_generation(folder: Path, said: Generation, last: list[Any], torch: Any) -> None:
    """The inputs, and ``last``: the answer to the last step."""
    write_tensors(folder, "generated", [last], torch)
    write_tensors(folder, "prompt", [said.prompt], torch)
    write_tensors(folder, "next", said.steps, torch, without=said.fed_back)
