"""Keeps torch and ExecuTorch from doing the same work again and again while they lower a model.

Each function changes their classes for the rest of this process, which only exports. None changes
a program: a test compares the bytes of programs that are made with and without them.
"""

from __future__ import annotations

import contextlib
import functools
import operator
from collections.abc import Callable
from typing import Any

_REPLAYED = "_sme2_replayed"
_DECOMPOSED = "_sme2_decomposed"


class _Replayed(list[Any]):
    """The nodes of a graph that was interpreted. A copy of the graph has other nodes."""

    def __deepcopy__(self, copied: dict[int, Any]) -> _Replayed:
        return _Replayed()


@functools.cache
def lower_quicker() -> None:
    """Apply all of them, once; one that does not fit the installed versions is left out."""
    for change in (
        share_node_sources,
        compile_graphs_when_called,
        list_operators_once,
        replay_changed_graphs,
        check_types_once,
        remember_results,
        decompose_once,
    ):
        with contextlib.suppress(ImportError, AttributeError):
            change()


def share_node_sources() -> None:
    """Let graphs share the history of a node: each pass copies it, and nothing ever changes one."""
    from torch.fx.traceback import NodeSource

    NodeSource.__deepcopy__ = lambda source, _copied: source


def compile_graphs_when_called() -> None:
    """Make a graph's Python code when it is called or read, which nearly none is.

    Torch writes and compiles it after every pass, but passes interpret its nodes.
    """
    from torch.fx import graph_module

    module: Any = graph_module.GraphModule
    recompile, code = module.recompile, module.code.fget
    reduce, text = module.__reduce__, module.__str__

    class Code:
        """What ``recompile`` returns; reading an attribute makes the real one."""

        def __init__(self, graph: Any) -> None:
            self._graph = graph

        def __getattr__(self, name: str) -> Any:
            return getattr(recompile(self._graph), name)

    def forward(self: Any, *arguments: Any, **keywords: Any) -> Any:
        recompile(self)
        return self(*arguments, **keywords)

    def mark(self: Any) -> Code:
        codegen = self._graph._codegen
        if isinstance(codegen, graph_module._PyTreeCodeGen):
            self._in_spec = codegen.pytree_info.in_spec
            self._out_spec = codegen.pytree_info.out_spec
        # Each graph has a class of its own.
        type(self).forward = forward
        self._recompile_submodules()
        return Code(self)

    def compiled(read: Callable[[Any], Any]) -> Callable[[Any], Any]:
        def after_compiling(self: Any) -> Any:
            if type(self).forward is forward:
                recompile(self)
            return read(self)

        return after_compiling

    def describe(self: Any) -> str:
        # ExecuTorch formats whole graphs for debug messages that are not printed.
        return repr(self) if type(self).forward is forward else text(self)

    module.recompile = mark
    module.code = property(compiled(code))
    module.__str__, module.__reduce__ = describe, compiled(reduce)


def list_operators_once() -> None:
    """Ask torch once, not once per namespace, which operators are made of others.

    Each decomposition of a program asks twice, and each answer makes hundreds of Python objects.
    """
    from torch._export import utils
    from torch.export import decomp_utils, exported_program

    collect, look = utils._collect_all_valid_cia_ops, utils._materialize_cpp_cia_ops

    def collect_after_one_look() -> Any:
        look()
        utils._materialize_cpp_cia_ops = lambda: None
        try:
            return collect()
        finally:
            utils._materialize_cpp_cia_ops = look

    for module in (utils, decomp_utils, exported_program):
        module._collect_all_valid_cia_ops = collect_after_one_look


def replay_changed_graphs() -> None:
    """Interpret a graph only if it changed since it was last interpreted.

    Most passes find nothing to do, and end by interpreting the same graph once more.
    """
    from executorch.exir.pass_base import ExportPass, _ExportPassBase
    from torch.fx.passes.infra.pass_base import PassResult

    interpret = _ExportPassBase.call
    steps = {
        name
        for name, value in vars(_ExportPassBase).items() | vars(ExportPass).items()
        if callable(value) and name not in ("__init__", "call")
    }

    def state(graph: Any) -> _Replayed:
        return _Replayed(
            part
            for node in graph.graph.nodes
            for part in (node, node.args, node.kwargs, node.target, node.meta.get("val"))
        )

    def unchanged(graph: Any) -> bool:
        before, now = vars(graph).get(_REPLAYED, ()), state(graph)
        return len(before) == len(now) and all(map(operator.is_, now, before))

    def call(self: Any, graph: Any) -> Any:
        if any(getattr(type(self), name) is not getattr(ExportPass, name) for name in steps):
            return interpret(self, graph)
        if unchanged(graph):
            return PassResult(graph, True)
        result = interpret(self, graph)
        vars(result.graph_module)[_REPLAYED] = state(result.graph_module)
        return result

    _ExportPassBase.call = call


def check_types_once() -> None:
    """Check only operators with types of tensors that were not checked before.

    ExecuTorch executes the whole graph after each pass to see the types; its nodes say so, too.
    """
    from executorch.exir.verification import verifier

    check = verifier._check_tensor_args_matching_op_allowed_dtype
    checked: set[tuple[Any, ...]] = set()

    def types(value: Any) -> Any:
        """The data types of tensors, or of the results of nodes, nested as they are."""
        if isinstance(value, list | tuple):
            return tuple(types(one) for one in value)
        if isinstance(value, dict):
            return tuple((name, types(one)) for name, one in value.items())
        if hasattr(value, "meta"):
            return types(value.meta.get("val"))
        return getattr(value, "dtype", None)

    def check_new(graph: Any) -> None:
        seen = {
            (node.target, types(node.args), types(node.kwargs), types(node))
            for node in graph.graph.nodes
            if node.op == "call_function"
        }
        if not seen <= checked:
            check(graph)
            checked.update(seen)

    verifier._check_tensor_args_matching_op_allowed_dtype = check_new


def remember_results() -> None:
    """Take over the result of an operator whose arguments are those that it was made from.

    A pass executes each operator, with tensors without values, to learn the shape of its result.
    Most operators are as they were before the pass, and so are their results.
    """
    import torch
    from executorch.exir.pass_base import _ExportPassBase
    from torch import Tensor
    from torch._subclasses.fake_tensor import FakeTensor, extract_tensor_metadata
    from torch.nn import Module

    plain = (bool, int, float, str, torch.dtype, torch.device, torch.layout, torch.memory_format)
    execute = _ExportPassBase._fx
    made: dict[Any, tuple[Any, Any, Any, Any]] = {}
    """By the result's identity: operator, arguments, result, and what keeps these alive."""

    def identity(value: Any) -> Any:
        """None for what may change without being another object."""
        if isinstance(value, Tensor | Module):
            return id(value)
        if isinstance(value, list | tuple):
            parts = [identity(one) for one in value]
            return None if None in parts else (type(value), *parts)
        if isinstance(value, dict):
            return identity([part for item in value.items() for part in item])
        if value is None or isinstance(value, plain):
            return (type(value), repr(value))
        return expression(value) if isinstance(value, torch.SymInt) else None

    def tensors(value: Any) -> tuple[Any, ...]:
        """The tensors of a result; none if it is of another kind."""
        values = tuple(value) if isinstance(value, list | tuple) else (value,)
        plain_tensors = all(isinstance(one, FakeTensor) and one.constant is None for one in values)
        return values if plain_tensors else ()

    def expression(size: Any) -> Any:
        """A size that may vary as a formula: to compare two such sizes would make a guard."""
        return size.node.expr if isinstance(size, torch.SymInt) else size

    def described(tensor: Any) -> list[Any]:
        known = extract_tensor_metadata(tensor)
        values = [getattr(known, name) for name in known.__slots__]
        return [
            tuple(map(expression, value)) if isinstance(value, tuple) else expression(value)
            for value in values
        ]

    def alike(ones: tuple[Any, ...], others: tuple[Any, ...]) -> bool:
        return len(ones) == len(others) and all(
            one.fake_mode is other.fake_mode and described(one) == described(other)
            for one, other in zip(ones, others, strict=True)
        )

    class Remembering:
        """Stands in for the interpreter of one operator."""

        def __init__(self, interpreter: Any, before: Any) -> None:
            self.interpreter = interpreter
            self.before = tensors(before)

        def __getattr__(self, name: str) -> Any:
            return getattr(self.interpreter, name)

        def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
            arguments = identity((args, kwargs))
            known = made.get(tuple(map(id, self.before)))
            if known and known[0] is target and known[1] == arguments:
                return known[2]
            result = self.interpreter.call_function(target, args, kwargs)
            found = tensors(result)
            # The earlier tensor stays, so that what comes after it stays, too.
            if self.before and alike(found, self.before):
                found = self.before
                result = type(result)(found) if isinstance(result, list | tuple) else found[0]
            if arguments is not None and found:
                made[tuple(map(id, found))] = (target, arguments, result, (args, kwargs))
            return result

    def execute_new(self: Any, kind: str, target: Any, args: Any, kwargs: Any, meta: Any) -> Any:
        interpreter = self.interpreter
        self.interpreter = Remembering(interpreter, meta.data.get("val"))
        try:
            return execute(self, kind, target, args, kwargs, meta)
        finally:
            self.interpreter = interpreter

    _ExportPassBase._fx = execute_new


def decompose_once() -> None:
    """Trace a program once to decompose it, and again only if it has an operator to decompose.

    ExecuTorch asks three times: with no operators, with all but those that the partitioner keeps,
    and with all. The first gets what the second asks for; then these two find nothing, mostly.
    """
    from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
    from executorch.exir.graph_module import contains_any_call_fn_target_op
    from executorch.exir.program import _program
    from torch.export import ExportedProgram

    decompose: Any = ExportedProgram.run_decompositions
    make_table = _program._default_decomposition_table
    keepable = _program._remove_invalid_ops_for_not_decompose

    def run_decompositions(self: Any, table: Any = None, **options: Any) -> Any:
        again = vars(self).get(_DECOMPOSED) is self.graph_module and table is not None
        if again and not (options or contains_any_call_fn_target_op(self.graph_module, table)):
            return self
        result = decompose(self, table, **options)
        vars(result)[_DECOMPOSED] = result.graph_module
        return result

    def decompose_all_but_kept(self: Any, program: Any) -> Any:
        table = make_table()
        for kept in keepable(self.ops_to_not_decompose(program)[0]):
            table.pop(kept, None)
        return program.run_decompositions(table)

    ExportedProgram.run_decompositions = run_decompositions
    XnnpackPartitioner.transform_for_pre_decomposition = decompose_all_but_kept
