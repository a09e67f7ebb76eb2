"""What takes the place of an operator that PyTorch has a name for; constants; work in vain.

Runs in the child process that exports; see ``variant.py`` for what is replaced and why.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch.nn import functional
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves

from pytest_sme2.export.variant import FOLDING

# By these nodes are known that a rewrite made.
OWN = "sme2_own"
# Of the work that no output needs.
_LEAST_UNUSED = 0.05


def name_of(node: Any) -> str:
    target = node.target
    return getattr(target, "_opname", getattr(target, "__name__", str(target)))


def _attention(
    query: Any,
    key: Any,
    value: Any,
    attn_mask: Any = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Any:
    if query.dim() != 4:
        return None
    if enable_gqa:
        times = query.shape[1] // key.shape[1]
        key, value = (_repeated(heads, times) for heads in (key, value))
    if key.shape[:2] != query.shape[:2]:
        return None
    # Scaled first, as the original is: the product stays in the range of fp16.
    query = query * (query.shape[-1] ** -0.5 if scale is None else scale)
    scores = torch.bmm(query.flatten(0, 1), key.flatten(0, 1).transpose(1, 2))
    if is_causal:
        rows, columns = query.shape[2], key.shape[2]
        hidden = torch.full((rows, columns), -1e4, dtype=query.dtype)
        scores = scores + torch.triu(hidden, diagonal=1)
    elif attn_mask is not None:
        mask = attn_mask
        if mask.dtype == torch.bool:
            mask = torch.where(mask, 0.0, -1e4).to(query.dtype)
        if mask.dim() == 4:
            mask = mask.expand(*query.shape[:2], *mask.shape[2:]).flatten(0, 1)
        scores = scores + mask
    answer = torch.bmm(torch.softmax(scores, dim=-1), value.flatten(0, 1))
    return answer.unflatten(0, query.shape[:2])


def _repeated(heads: Any, times: int) -> Any:
    """Each head several times in a row, by concatenation: XNNPACK does not expand."""
    parts = [heads[:, place : place + 1] for place in range(heads.shape[1])]
    return torch.cat([part for part in parts for _ in range(times)], dim=1)


def _glu(value: Any, dim: int = -1) -> Any:
    half = value.shape[dim] // 2
    return value.narrow(dim, 0, half) * torch.sigmoid(value.narrow(dim, half, half))


def _last_mean(value: Any) -> Any:
    """XNNPACK takes a mean of images alone. A linear layer with equal weights is a mean as well."""
    length = value.shape[-1]
    return functional.linear(value, torch.full((1, length), 1 / length, dtype=value.dtype))


def _layer_norm(
    value: Any,
    normalized_shape: Any,
    weight: Any = None,
    bias: Any = None,
    eps: float = 1e-5,
    cudnn: bool = False,
) -> Any:
    if len(normalized_shape) != 1:
        return None
    centred = value - _last_mean(value)
    answer = centred * torch.rsqrt(_last_mean(centred * centred) + eps)
    answer = answer if weight is None else answer * weight
    return answer if bias is None else answer + bias


def _group_norm(
    value: Any,
    num_groups: int,
    weight: Any = None,
    bias: Any = None,
    eps: float = 1e-5,
    cudnn: bool = False,
) -> Any:
    image = value if value.dim() == 4 else value.reshape(*value.shape[:2], 1, -1)
    answer = _normalized(image, num_groups, weight, bias, eps)
    return answer if answer.dim() == value.dim() else answer.reshape(value.shape)


def _normalized(image: Any, groups: int, weight: Any, bias: Any, eps: float) -> Any:
    """An image stays one: means of each channel, of each group by a product with a constant, and
    then one factor and one summand for each channel.
    """
    size = image.shape[1] // groups
    part = torch.full((size, size), 1 / size, dtype=image.dtype)
    mean = torch.block_diag(*[part] * groups)[:, :, None, None]
    middle, square = (
        functional.conv2d(one.mean((2, 3), keepdim=True), mean) for one in (image, image * image)
    )
    scale = torch.rsqrt(torch.relu(square - middle * middle) + eps)
    scale = scale if weight is None else scale * weight.reshape(1, -1, 1, 1)
    shift = -middle * scale
    return image * scale + (shift if bias is None else shift + bias.reshape(1, -1, 1, 1))


def _instance_norm(
    value: Any,
    weight: Any,
    bias: Any,
    mean: Any,
    var: Any,
    own: bool,
    momentum: Any,
    eps: Any,
    *_: Any,
) -> Any:
    return (
        _normalized(value, value.shape[1], weight, bias, eps) if own and value.dim() == 4 else None
    )


def _transposed(
    value: Any,
    weight: Any,
    bias: Any = None,
    stride: Any = 1,
    padding: Any = 0,
    output_padding: Any = 0,
    groups: int = 1,
    dilation: Any = 1,
) -> Any:
    """A convolution for each place within a stride, whose answers are then put side by side."""
    stride, padding, output_padding = (
        (one, one) if isinstance(one, int) else one for one in (stride, padding, output_padding)
    )
    step, size, taps = stride[0], weight.shape[2], -(-weight.shape[2] // stride[0])
    ends = [
        (value.shape[2 + place] - 1) * step - padding[place] + size + output_padding[place]
        for place in range(2)
    ]
    fits = all(end <= (value.shape[2 + n] + taps - 1) * step for n, end in enumerate(ends))
    if groups != 1 or dilation not in (1, (1, 1)) or value.dim() != 4 or not fits:
        return None
    if stride[1] != step or weight.shape[3] != size:
        return None
    left = taps * step - size
    whole = functional.pad(weight, (0, left) * 2) if left else weight
    places = [(row, column) for row in range(step) for column in range(step)]
    # Put together like this, nothing is copied that cannot be folded into a constant.
    parts = [
        whole[:, :, row::step, column::step].flip(2, 3).transpose(0, 1) for row, column in places
    ]
    every = None if bias is None else torch.stack([bias] * len(places), dim=1).flatten()
    kernel = torch.stack(parts, dim=1).flatten(0, 1)
    answer = torch.pixel_shuffle(functional.conv2d(value, kernel, every, padding=taps - 1), step)
    if (*padding, *ends) == (0, 0, *answer.shape[2:]):
        return answer
    return answer[:, :, padding[0] : ends[0], padding[1] : ends[1]]


def _expand(value: Any, shape: Any, **_: Any) -> Any:
    if len(shape) != value.dim() or not value.is_floating_point():
        return None
    shape = [old if new == -1 else new for old, new in zip(value.shape, shape, strict=True)]
    # XNNPACK takes no concatenation of a value with itself, but products that repeat values.
    return value * torch.ones(shape, dtype=value.dtype)


class Narrow(TorchFunctionMode):  # type: ignore[misc]  # torch has no types here
    """While a model is captured: a value stays as it is where fp32 was asked for in place of fp16.

    What is made of it has its data type, which a captured graph has kept.
    """

    def __torch_function__(
        self, function: Any, types: Any, arguments: Any = (), keywords: Any = None
    ) -> Any:
        given = (*arguments[1:], *(keywords or {}).values())
        wide = function is torch.Tensor.float or (
            function is torch.Tensor.to and any(word is torch.float32 for word in given)
        )
        if wide and arguments[0].dtype == torch.float16:
            return arguments[0]
        return function(*arguments, **(keywords or {}))


# Each answers None where it does not fit.
REPLACED: dict[str, Callable[..., Any]] = {
    "scaled_dot_product_attention": _attention,
    "glu": _glu,
    "layer_norm": _layer_norm,
    "group_norm": _group_norm,
    "instance_norm": _instance_norm,
    "conv_transpose2d": _transposed,
    "expand": _expand,
    "expand_as": lambda value, other: _expand(value, other.shape),
}


def fold_constants(program: Any, names: Iterable[str]) -> Any:
    """The program with what no input goes into computed once: what rewrites made themselves, and
    where it is asked for what the model computes as well.
    """
    from executorch.exir.passes import constant_prop_pass as folding

    every = FOLDING in names
    # In-place operators change constants.
    program = program.run_decompositions({}) if every else program
    known: dict[Any, Any] = {}
    for node, value in folding.get_propagated_const_tensor_dict(program, None).items():
        own = node.meta.get("custom", {}).get(OWN) and known.keys() >= set(node.all_input_nodes)
        # What the program answers stays an operator.
        if node.op == "placeholder" or (
            (every or own) and all(user.op != "output" for user in node.users)
        ):
            known[node] = value
    signature = program.graph_signature
    specs = {spec.arg.name: spec for spec in signature.input_specs}
    specs |= folding.create_constant_nodes_and_return_specs(known, program)
    signature.input_specs = [
        specs[node.name] for node in program.graph.find_nodes(op="placeholder")
    ]
    program.graph.eliminate_dead_code()
    return program


def unused(program: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> list[str]:
    """What is computed and changes no output: where no gradient arrives; and what is not read."""
    seen = _Gradients(program.module(check_guards=False), garbage_collect_values=False)
    with torch.enable_grad(), contextlib.suppress(Exception):
        given = [one.detach().clone() for one in tree_leaves((arguments, keywords))]
        for value in filter(torch.is_floating_point, given):
            value.requires_grad_()
        answers = tree_leaves(seen.run(*given, enable_io_processing=False))
        sum((one * torch.randn_like(one)).sum() for one in answers if one.requires_grad).backward()
        return seen.told()
    return []


class _Gradients(torch.fx.Interpreter):  # type: ignore[misc]
    """Keeps the gradients of what is multiplied by weights."""

    def run_node(self, node: Any) -> Any:
        value = super().run_node(node)
        if _is_layer(node) and value.requires_grad:
            value.retain_grad()
        return value

    def told(self) -> list[str]:
        nodes = self.module.graph.nodes
        given = [node for node in nodes if node.op == "placeholder"]
        found = [
            f"input {n} is never read; leave it out"
            for n, node in enumerate(given)
            if not node.users
        ]
        work: dict[Any, float] = {}
        lost: dict[Any, float] = {}
        for node in filter(_is_layer, nodes):
            value, weight = self.env[node], self.env[node.args[1]]
            channels = 1 if name_of(node).startswith("conv") else value.dim() - 1
            work[node] = value.numel() * weight[0].numel()
            read = 0.0 if value.grad is None else (value.grad != 0).any(channels).double().mean()
            lost[node] = work[node] * (1 - float(read))
        share = sum(lost.values()) / max(1.0, sum(work.values()))
        if share >= _LEAST_UNUSED:
            most = max(lost, key=lambda node: lost[node])
            module = [one for one, _ in (most.meta.get("nn_module_stack") or {}).values()][-1:]
            found.append(
                f"{share:.0%} of the multiply-accumulates change no output, most of them in "
                f"{module[0] if module else name_of(most)}: {lost[most] / work[most]:.0%} of the "
                "positions of its answer are never read; compute the others alone"
            )
        return found


def _is_layer(node: Any) -> bool:
    return node.op == "call_function" and name_of(node).startswith(("conv", "linear"))
