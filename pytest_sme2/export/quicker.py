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
