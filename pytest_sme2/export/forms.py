"""Other forms of what a model computes, found by what an operator does and not by its name.

Runs in the child process that exports. An operator that XNNPACK does not take is tried on numbers:
if it only moves data, slices do the same; if it is linear along one dimension, a product with a
constant does. The captured graph is then captured again with these in place.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import torch
from executorch.backends.xnnpack.partition.config import ALL_PARTITIONER_CONFIGS
from torch.nn import functional
from torch.utils._pytree import tree_leaves, tree_map, tree_unflatten

from pytest_sme2.export.rewriting import OWN, REPLACED, fold_constants, name_of
from pytest_sme2.export.variant import (
    CHANNEL,
    DEPTHWISE,
    GENERAL,
    MOST_TAPS,
    SIGMOID,
    WRITTEN,
    rewrite_for,
)

_ROUNDS = 3
# More slices than that take more than a product.
_MOST_SLICES = 16
# Of numbers that an operator is tried on.
_MOST_NUMBERS = 1 << 26
_TAKEN = {config.target_name: config for config in ALL_PARTITIONER_CONFIGS}
_IMAGES = "conv1d"
# These are products already, or change no number.
_LEFT = ("linear", "conv", "matmul", "bmm", "addmm", "mul", "div", "to", "_to_copy", "reshape",
         "view", "flatten", "contiguous", "clone", "dropout")  # fmt: skip
_OF_SHAPES = ("zeros_like", "ones_like", "full_like", "new_zeros", "new_ones", "new_full")
_RECURRENT = ("lstm", "gru")
# They answer with parts of what goes in.
_PARTS = ("split", "split_with_sizes", "chunk", "unbind")
_DIMENSIONS = ("dim", "dims", "dim0", "dim1", "start_dim", "end_dim")
_POWERS = {0.5: "torch.sqrt(x)", 2: "x * x", 3: "x * x * x", 4: "x * x * (x * x)"}
_Form = Callable[..., Any]
_Rule = tuple[str, Callable[["_Graph", Any], "_Found"]]


def with_forms(
    program: Any,
    arguments: tuple[Any, ...],
    keywords: dict[str, Any],
    names: Iterable[str],
    shapes: Any = None,
) -> tuple[Any, list[str]]:
    """The program with other forms of what these rewrites are for, and what was written how."""
    told: list[str] = []
    if shapes is not None:
        # By name or in their order.
        shapes = (tuple(shapes.values() if isinstance(shapes, dict) else shapes),)
    elif GENERAL in names:
        program = _steps_written_out(program)
    # What takes the place of an operator may have other forms itself.
    for _ in range(_ROUNDS):
        graph = _Graph(program, names, fixed=shapes is None)
        if not graph.forms and not graph.images:
            break
        told += [text for text in graph.told if text not in told]
        with torch.fx.traceback.preserve_node_meta():
            program = torch.export.export(
                _Network(graph), arguments, keywords, dynamic_shapes=shapes
            )
    return fold_constants(program, names), told


def _steps_written_out(program: Any) -> Any:
    """The program with each step of an LSTM or GRU as operators of its own."""
    found = {node.target for node in program.graph.nodes if name_of(node) in _RECURRENT}
    if not found:
        return program
    known = torch.export.default_decompositions()
    program = program.run_decompositions({target: known[target] for target in found})
    for node in filter(_is_recurrent, program.graph.nodes):
        node.meta["custom"] = {OWN: True}
    return program


def _is_recurrent(node: Any) -> bool:
    return "torch.nn.modules.rnn" in str(node.meta.get("nn_module_stack"))


class _Network(torch.nn.Module):  # type: ignore[misc]  # torch has no types here
    def __init__(self, graph: _Graph) -> None:
        super().__init__()
        self.inner = graph.module
        self._graph = [graph]

    def forward(self, *arguments: Any, **keywords: Any) -> Any:
        (graph,) = self._graph
        given = tree_leaves((arguments, keywords))
        answers = graph.run(*given, enable_io_processing=False)
        return tree_unflatten(tree_leaves(answers), self.inner._out_spec)


class _Graph(torch.fx.Interpreter):  # type: ignore[misc]
    """A captured graph, what is constant in it, and the form that each node gets."""

    def __init__(self, program: Any, names: Iterable[str], *, fixed: bool = True) -> None:
        super().__init__(program.module(check_guards=False), garbage_collect_values=False)
        self.program = program
        self.names = frozenset(names)
        self.constants: dict[Any, Any] = {}
        self.forms: dict[Any, _Form] = {}
        self.images: set[Any] = set()
        """Nodes with sequences that stay images of height 1."""
        self.told: list[str] = []
        self._known: dict[Any, Any] = {}
        # What is folded from weights is copied later, which torch refuses while it has a gradient.
        self.module.requires_grad_(False)
        torch.manual_seed(0)
        with torch.no_grad():
            for node in self.module.graph.nodes:
                if fixed:
                    self._look_at(node)
                elif node.op == "call_function":
                    # Numbers are tried for the shapes of the example alone.
                    self._find(node, _RULES[:1])

    def run_node(self, node: Any) -> Any:
        rewritten = node in self.images or node in self.forms
        own = torch.fx.traceback.annotate({OWN: True}) if rewritten else contextlib.nullcontext()
        with torch.fx.traceback.set_current_meta(node), own:
            if node in self.images:
                image = self._lifted(node, self._image)
                self._known[node] = image
                return tree_map(_sequence, image)
            if name_of(node) in _PARTS and self.forms.keys() >= node.users.keys():
                return None
            if node in self.forms:
                return self.forms[node](*(self.env[one] for one in self.computed(node)))
            return super().run_node(node)

    def run(self, *arguments: Any, **options: Any) -> Any:
        self._known.clear()
        return super().run(*arguments, **options)

    def _image(self, node: Any) -> Any:
        return self._known[node] if node in self._known else _as_image(self.env[node])

    def _look_at(self, node: Any) -> None:
        if node.op == "get_attr":
            self.constants[node] = self.fetch_attr(node.target)
        elif node.op == "call_function" and all(n in self.constants for n in node.all_input_nodes):
            self.constants[node] = self._called(node, self.constants.__getitem__)
        elif node.op == "call_function" and name_of(node).endswith(_OF_SHAPES):
            # What goes in gives its shape alone.
            self.constants[node] = self._called(node, _numbers)
        elif node.op == "call_function" and _IMAGES in self.names and self._carries(node):
            self.images.add(node)
        elif node.op == "call_function":
            self._find(node, _RULES)

    def _called(self, node: Any, value_of: Callable[[Any], Any]) -> Any:
        arguments, keywords = torch.fx.node.map_arg((node.args, node.kwargs), value_of)
        return node.target(*arguments, **keywords)

    def _find(self, node: Any, rules: Sequence[_Rule]) -> None:
        general = GENERAL if _is_recurrent(node) else _rewrite_of(_whole(node)) or GENERAL
        for name, look in rules:
            found = look(self, node) if (name or general) in self.names else None
            if found is not None:
                text, self.forms[node] = found
                self.told += [text] * bool(text and text not in self.told)
                return

    def computed(self, node: Any) -> list[Any]:
        return [one for one in _whole(node).all_input_nodes if one not in self.constants]

    def kept(self, value: Any) -> Callable[[], Any]:
        """A constant of the new program."""
        name = f"constant_{len(dict(self.module.named_buffers()))}"
        self.module.register_buffer(name, value)
        return lambda: getattr(self.module, name)

    def tried(self, node: Any, *values: Any) -> Any:
        """What an operator makes of these, in place of what is computed; None if it fails."""
        given = {
            one: tree_map(_double, self.constants.get(one)) for one in _whole(node).all_input_nodes
        }
        given |= dict(zip(self.computed(node), values, strict=True))
        with contextlib.suppress(Exception):
            answer = self._called(_whole(node), given.__getitem__)
            return answer if _whole(node) is node else answer[node.args[1]]

    def taken(self, node: Any) -> bool:
        """Whether XNNPACK takes it as it is."""
        name, overload = name_of(node), getattr(node.target, "_overloadname", "default")
        if name == "unsqueeze":
            return False  # it is asked for the place of a new dimension only as it is lowered
        if name == "pad" and (len(node.args) < 3 or node.args[2] == "constant"):
            return True
        for key in (f"{name}.{overload}", f"{name}_copy.{overload}"):
            if key in _TAKEN:
                with contextlib.suppress(Exception):
                    return bool(_TAKEN[key]().check_constraints(node, self.program))
                return True
        return False

    # Sequences as images.

    def _carries(self, node: Any) -> bool:
        """Whether the operator does to images of height 1 what it does to sequences."""
        values = tree_leaves(node.meta.get("val"))
        if not values or not all(
            isinstance(one, torch.Tensor) and one.dim() == 3 for one in values
        ):
            return False
        begins = name_of(node) == "conv1d"
        if not begins and not (self.images.intersection(node.all_input_nodes) and _leads(node)):
            return False
        given = {
            one: self.constants[one] if one in self.constants else _numbers(one)
            for one in node.all_input_nodes
        }
        with contextlib.suppress(Exception):
            before = self._called(node, given.__getitem__)
            after = self._lifted(node, lambda one: tree_map(_as_image, given[one]))
            return all(
                _alike(image, _as_image(sequence))
                for image, sequence in zip(tree_leaves(after), tree_leaves(before), strict=True)
            )
        return False

    def _lifted(self, node: Any, image_of: Callable[[Any], Any]) -> Any:
        """The call on images: its dimensions move on, its sizes are those of two dimensions."""
        target, name = node.target, name_of(node)
        if "1d" in name:
            packet = getattr(torch.ops.aten, name.replace("1d", "2d"))
            target = getattr(packet, node.target._overloadname)
        schema = getattr(target, "_schema", None)
        named = [] if schema is None else [one.name for one in schema.arguments]
        given = {**dict(enumerate(node.args)), **node.kwargs}
        for key, value in given.items():
            word = named[key] if isinstance(key, int) and named else key
            given[key] = _lifted_argument(word, value, flat="1d" in name)
        given = torch.fx.node.map_arg(given, image_of)
        arguments = [value for key, value in given.items() if isinstance(key, int)]
        return target(*arguments, **{k: v for k, v in given.items() if isinstance(k, str)})


def _lifted_argument(word: Any, value: Any, *, flat: bool) -> Any:
    def moved(dimension: int) -> int:
        dimension %= 3
        return dimension + (dimension == 2)

    if word in _DIMENSIONS and value is not None:
        return [moved(one) for one in value] if isinstance(value, list | tuple) else moved(value)
    if word == "pad" and len(value) > 2:
        return [*value[:2], 0, 0, *value[2:]]
    if flat and isinstance(value, list | tuple) and len(value) == 1:
        return [0 if word == "padding" else 1, *value]
    return value


def _as_image(value: Any) -> Any:
    """XNNPACK takes a reshape, and no new dimension."""
    if not isinstance(value, torch.Tensor) or value.dim() not in (2, 3):
        return value
    *first, last = value.shape
    return value.reshape(*first, 1, last)


def _sequence(image: Any) -> Any:
    return image.reshape(*image.shape[:2], image.shape[3])


def _leads(node: Any) -> bool:
    """Whether a convolution or a pool of sequences is to come; after the last nothing is gained."""
    left, seen = [node], set()
    while left:
        one = left.pop()
        if "1d" in name_of(one):
            return True
        left += [user for user in one.users if user not in seen]
        seen.update(one.users)
    return False


def _whole(node: Any) -> Any:
    """What answers with several parts stands for each of them."""
    part = name_of(node) == "getitem" and name_of(node.args[0]) in _PARTS
    return node.args[0] if part else node


def _rewrite_of(node: Any) -> str:
    row = rewrite_for(f"aten.{name_of(node).removesuffix('_')}", constant=False)
    return row.name if row else ""


def _numbers(node: Any) -> Any:
    def one(value: Any) -> Any:
        if not value.is_floating_point():
            return torch.zeros(value.shape, dtype=value.dtype)
        return torch.randn(value.shape).to(value.dtype)

    return tree_map(one, node.meta["val"])


def _double(value: Any) -> Any:
    floating = isinstance(value, torch.Tensor) and value.is_floating_point()
    return value.double() if floating else value


def _alike(one: Any, other: Any) -> bool:
    if one is None or one.shape != other.shape:
        return False
    near = 1e-2 if one.dtype == torch.float16 else 1e-4
    return bool(torch.allclose(one.double(), other.double(), near, near))


# What one operator becomes: how that is written, and what computes it from the computed values.

_Found = tuple[str, _Form] | None


def _named(graph: _Graph, node: Any) -> _Found:
    """An operator that PyTorch has a name for, where that fits."""
    function = REPLACED.get(name_of(node))
    if function is None:
        return None

    def form(value_of: Callable[[Any], Any]) -> Any:
        arguments, keywords = torch.fx.node.map_arg((node.args, node.kwargs), value_of)
        return function(*arguments, **keywords)

    with node.meta["val"].fake_mode:
        fits = form(lambda one: one.meta["val"]) is not None
    return ("", lambda *_: form(graph.env.__getitem__)) if fits else None


def _of_one(graph: _Graph, node: Any) -> _Found:
    """An operator of one computed value that XNNPACK does not take."""
    inputs, value = graph.computed(node), node.meta.get("val")
    if len(inputs) != 1 or not isinstance(value, torch.Tensor) or not value.is_floating_point():
        return None
    before = inputs[0].meta["val"]
    floating = isinstance(before, torch.Tensor) and before.is_floating_point()
    if not floating or name_of(node).startswith(_LEFT) or graph.taken(node) or not before.dim():
        return None
    looks = (_written, _moved, _turned, _averaged, _multiplied)
    return next(filter(None, (look(graph, node, before) for look in looks)), None)


def _written(graph: _Graph, node: Any, before: Any) -> _Found:
    """A function of each number, from functions that XNNPACK has."""
    name, given = name_of(node).removesuffix("_"), node.args[1:]
    code = _POWERS.get(given[0]) if name == "pow" else None if given else WRITTEN.get(name)
    if code is None:
        return None
    return f"{_title(node, before.shape)} as `{code}`", _typed(code)


def _typed(code: str, **constants: Callable[[], Any]) -> _Form:
    """What is told is what is tried."""

    def form(x: Any, y: Any = None) -> Any:
        given = {name: value() for name, value in constants.items()}
        known = {"torch": torch, "functional": functional, "x": x, "y": y, **given}
        exec(code if code.startswith("x = ") else f"x = {code}", known)  # noqa: S102
        return known["x"]

    return form


def _moved(graph: _Graph, node: Any, before: Any) -> _Found:
    """An operator that only moves data, along each dimension by itself, as slices."""
    if before.numel() > _MOST_NUMBERS:
        return None
    shape, values = before.shape, torch.randn(before.shape).double()
    places = graph.tried(node, torch.arange(before.numel()).double().reshape(shape))
    if places is None or not 0 <= float(places.min()) <= float(places.max()) < before.numel():
        return None
    found, places = graph.tried(node, values), places.long()
    if not torch.equal(found, values.flatten()[places]):
        return None
    size = tuple(found.shape)
    if torch.equal(places.flatten(), torch.arange(before.numel())):
        same = f"x{_reshaped(size)}"
        told = f"{_title(node, shape)} as `{same}`"
        return None if size == tuple(shape) else (told, _typed(same))
    runs = next((runs for wide in _widened(places, len(shape)) if (runs := _runs(wide, shape))), [])
    cuts = {d: cut for d, cut in enumerate(runs) if cut != [(0, shape[d])]}
    repeats = any(len(set(cut)) < len(cut) for cut in cuts.values())
    if not cuts or repeats or sum(map(len, cuts.values())) > _MOST_SLICES:
        return None

    steps = []
    for d, cut in cuts.items():
        parts = [f"x[{':, ' * d}{start}:{start + length}]" for start, length in cut]
        steps.append(parts[0] if len(parts) == 1 else f"torch.cat([{', '.join(parts)}], {d})")
    moved = [sum(part for _, part in cuts.get(d, [(0, n)])) for d, n in enumerate(shape)]
    steps[-1] += _reshaped(size) * (moved != list(size))
    code = "; ".join(f"x = {step}" for step in steps)
    return f"{_title(node, shape)} as `{code}`", _typed(code)


def _widened(places: Any, rank: int) -> Iterator[Any]:
    """With a dimension of 1 where one was dropped."""
    if places.dim() == rank:
        yield places
    elif places.dim() == rank - 1:
        yield from (places.unsqueeze(dimension) for dimension in range(rank))


def _runs(places: Any, shape: Any) -> list[list[tuple[int, int]]]:
    """By dimension the slices, each as its start and length; empty where one depends on two."""
    found: list[list[tuple[int, int]]] = []
    stride = places.new_tensor(1)
    for dimension in reversed(range(len(shape))):
        index = (places // stride % shape[dimension]).movedim(dimension, 0).flatten(1)
        stride = stride * shape[dimension]
        if not bool((index == index[:, :1]).all()):
            return []
        runs: list[tuple[int, int]] = []
        for place in index[:, 0].tolist():
            if runs and place == sum(runs[-1]):
                runs[-1] = (runs[-1][0], runs[-1][1] + 1)
            else:
                runs.append((place, 1))
        found.insert(0, runs)
    return found


def _multiplied(graph: _Graph, node: Any, before: Any) -> _Found:
    """An operator that is linear along one dimension, as a product with a constant."""
    shape, size = tuple(before.shape), tuple(node.meta["val"].shape)
    one, other = torch.randn(shape).double(), torch.randn(shape).double()
    parts = [graph.tried(node, value) for value in (one, other, one + other)]
    if parts[0] is None or not torch.allclose(parts[0] + parts[1], parts[2]):
        return None
    for dimension in reversed(range(len(shape))):
        matrix = _matrix(graph, node, dimension, shape)
        # What scales each value by itself is no product of matrices.
        if matrix is None or _is_diagonal(matrix):
            continue
        wide = [*shape[:dimension], matrix.shape[0], *shape[dimension + 1 :]]
        moved = functional.linear(one.movedim(dimension, -1), matrix).movedim(-1, dimension)
        if list(moved.shape) != wide or not torch.allclose(moved.reshape(size), parts[0]):
            continue
        # A weight that is computed from another one is none to XNNPACK.
        image = dimension == 1 and len(shape) == 4 and _is_beside_images(node)
        kept = graph.kept((matrix[:, :, None, None] if image else matrix).to(before.dtype))

        turn = f".transpose({dimension}, -1)" * (dimension != len(shape) - 1)
        code = "functional.conv2d(x, m)" if image else f"functional.linear(x{turn}, m){turn}"
        code += _reshaped(size) * (wide != list(size))
        told = (
            f"{_title(node, shape)} as `{code}`, where the columns of `m`, kept with "
            f"`register_buffer`, are what it makes of the {shape[dimension]} unit vectors"
        )
        return told, _typed(code, m=kept)
    return None


def _is_beside_images(node: Any) -> bool:
    """Whether what goes in or comes out is laid out as images are."""
    beside = [*node.all_input_nodes, *node.users]
    return any(
        name_of(one).startswith(("conv", "batch_norm", "max_pool", "avg_")) for one in beside
    )


def _matrix(graph: _Graph, node: Any, dimension: int, shape: tuple[int, ...]) -> Any:
    """What it makes of each unit vector along the dimension; None where that is too much work."""
    length = shape[dimension]
    if length < 2 or length * math.prod(shape) > _MOST_NUMBERS:
        return None
    rest = node.meta["val"].numel() * length / math.prod(shape)
    columns = []
    for place in range(length):
        unit = torch.zeros(shape).double()
        unit.select(dimension, place).fill_(1)
        answer = graph.tried(node, unit)
        try:
            whole = answer.reshape(*shape[:dimension], int(rest), *shape[dimension + 1 :])
        except RuntimeError:
            return None
        columns.append(whole.movedim(dimension, 0).reshape(int(rest), -1)[:, 0])
    return torch.stack(columns, dim=1)


def _is_diagonal(matrix: Any) -> bool:
    rows, columns = matrix.shape
    return bool(rows == columns and torch.equal(matrix, torch.diag(matrix.diagonal())))


def _turned(graph: _Graph, node: Any, before: Any) -> _Found:
    """What XNNPACK takes along the last dimension alone, along that one."""
    name = name_of(node)
    place = node.args[1] if len(node.args) > 1 else node.kwargs.get("dim")
    known = f"_{name}.default" in _TAKEN or f"{name}.dim" in _TAKEN
    if not known or not isinstance(place, int) or place % before.dim() == before.dim() - 1:
        return None
    code = f"x.transpose({place}, -1).{name}(-1).transpose({place}, -1)"
    if not _does(graph, node, code, _numbers(graph.computed(node)[0])):
        return None
    return f"{_title(node, before.shape)} as `{code}`", _typed(code)


def _does(graph: _Graph, node: Any, code: str, values: Any) -> bool:
    """Whether the code answers as the operator does."""
    with contextlib.suppress(Exception):
        return _alike(graph.tried(node, values), _typed(code)(values))
    return False


def _averaged(graph: _Graph, node: Any, before: Any) -> _Found:
    """A sum or mean over two inner dimensions, as that of an image."""
    places = node.args[1] if len(node.args) > 1 else None
    if before.dim() != 4 or not isinstance(places, list | tuple) or len(places) != 2:
        return None
    size = node.meta["val"].shape
    inner = [place % 4 for place in places]
    order = [*(place for place in range(4) if place not in inner), *inner]
    ones = graph.tried(node, torch.ones(before.shape).double())
    factor = 1.0 if ones is None else float(ones.flatten()[0])
    code = (
        "x" + f".permute{tuple(order)}" * (order != sorted(order)) + ".mean((2, 3), keepdim=True)"
    )
    code = (f"({code} * {factor!r})" if factor != 1 else code) + _reshaped(size)
    if not _does(graph, node, code, torch.randn(before.shape).double()):
        return None
    return f"{_title(node, before.shape)} as `{code}`", _typed(code)


def _batched(graph: _Graph, node: Any) -> _Found:
    """A product of two computed matrices: XNNPACK takes it with a batch alone."""
    computed = graph.computed(node)
    if name_of(node) not in ("matmul", "mm", "__matmul__") or computed != list(node.args):
        return None
    left, right = (one.meta["val"].shape for one in computed)
    if len(right) != 2 or len(left) < 2:
        return None
    first = f"x{_reshaped((1, left[:-1].numel(), left[-1]))}"
    code = f"torch.bmm({first}, y{_reshaped((1, *right))}){_reshaped(node.meta['val'].shape)}"
    return f"`x @ y` of {_shape(left)} and {_shape(right)} as `{code}`", _typed(code)


def _convolution(graph: _Graph, node: Any) -> Any:
    """The arguments of a convolution of images with constant weights; None for anything else."""
    if node.target is not torch.ops.aten.conv2d.default or len(graph.computed(node)) != 1:
        return None
    names = [one.name for one in node.target._schema.arguments]
    given: dict[str, Any] = {
        "bias": None,
        "stride": [1, 1],
        "padding": [0, 0],
        "dilation": [1, 1],
        "groups": 1,
    }
    given |= dict(zip(names, node.args, strict=False)) | dict(node.kwargs)
    for name in ("stride", "padding", "dilation"):
        given[name] = list(given[name]) * (3 - len(given[name]))
    return given


def _narrowed(graph: _Graph, node: Any) -> _Found:
    """A depthwise convolution of more weights than a kernel has, as the sum of narrower ones."""
    given = _convolution(graph, node)
    if given is None or given["groups"] < 2:
        return None
    channels, inner, height, width = given["weight"].meta["val"].shape
    rows = MOST_TAPS // width
    if given["groups"] != channels or inner != 1 or height * width <= MOST_TAPS or not rows:
        return None
    (step, across), (above, beside), (apart, _) = (
        given[name] for name in ("stride", "padding", "dilation")
    )
    tall = (node.meta["val"].shape[2] - 1) * step + 1

    def form(value: Any) -> Any:
        weight, bias = (graph.env.get(given[name]) for name in ("weight", "bias"))
        value, total = functional.pad(value, (0, 0, above, above)) if above else value, None
        for start in range(0, height, rows):
            part = weight[:, :, start : start + rows]
            seen = value.narrow(2, start * apart, tall + (part.shape[2] - 1) * apart)
            one = functional.conv2d(
                seen, part, None if start else bias, (step, across), (0, beside),
                given["dilation"], channels,
            )  # fmt: skip
            total = one if total is None else total + one
        return total

    sizes = " and ".join(f"{min(rows, height - n)}x{width}" for n in range(0, height, rows))
    return (
        f"the depthwise convolution of {height}x{width} as the sum of {sizes}: each takes its rows "
        f"of the weights, and of `functional.pad(x, (0, 0, {above}, {above}))` from its first row "
        "on as many as it needs",
        form,
    )


def _halved(graph: _Graph, node: Any) -> _Found:
    """SiLU after a batch norm by tanh: `x * 0.5` would be laid out anew, half the weights not."""
    norm = node.args[0] if name_of(node).startswith("silu") else None
    if norm is None or name_of(norm) != "batch_norm" or not norm.args[1] or len(norm.users) > 1:
        return None

    def form(*_: Any) -> Any:
        value, weight, bias, *rest = torch.fx.node.map_arg(norm.args, graph.env.__getitem__)
        half = norm.target(value, weight * 0.5, bias * 0.5, *rest)
        return half * torch.tanh(half) + half

    return (
        f"{_title(node, node.meta['val'].shape)} as `h * torch.tanh(h) + h`, with half the weight "
        "and bias of the batch norm before it",
        form,
    )


def _paired(graph: _Graph, node: Any) -> _Found:
    """A convolution of one channel, with a second one of zeros."""
    given = _convolution(graph, node)
    if given is None or given["groups"] != 1 or given["weight"].meta["val"].shape[1] != 1:
        return None

    def form(value: Any) -> Any:
        weight, bias = (graph.env.get(given[name]) for name in ("weight", "bias"))
        second = functional.pad(value, (0, 0, 0, 0, 0, 1))
        weight = torch.cat([weight, torch.zeros_like(weight)], dim=1)
        steps = (given[name] for name in ("stride", "padding", "dilation"))
        return functional.conv2d(second, weight, bias, *steps)

    return (
        "one channel as two: `functional.pad(x, (0, 0, 0, 0, 0, 1))`, and for the weights `w` of "
        "the convolution `torch.cat([w, torch.zeros_like(w)], 1)`",
        form,
    )


def _title(node: Any, shape: Any) -> str:
    return f"`{name_of(_whole(node))}` of {_shape(shape)}"


def _reshaped(size: Any) -> str:
    return f".reshape({', '.join(map(str, size))})"


def _shape(shape: Any) -> str:
    return "x".join(map(str, shape))


_RULES: tuple[_Rule, ...] = (
    ("", _named),
    (DEPTHWISE, _narrowed),
    (CHANNEL, _paired),
    (SIGMOID, _halved),
    ("", _batched),
    ("", _of_one),
)
