"""Keeps torch and ExecuTorch from doing the same work again and again while they lower a model.

Each function changes one of their classes for the rest of this process, which only exports. None
changes a program: a test compares the bytes of programs that are made with and without them.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from typing import Any

_DECOMPOSED = "_sme2_decomposed"


@functools.cache
def lower_quicker() -> None:
    """Apply all of them, once; one that does not fit the installed versions is left out."""
    for change in (
        compile_graphs_when_called,
        list_operators_once,
        remember_signatures,
        check_types_once,
        decompose_when_needed,
    ):
        with contextlib.suppress(ImportError, AttributeError):
            change()


def compile_graphs_when_called() -> None:
    """Make a graph's Python code when it is called or read.

    Torch writes and compiles it after every pass, and nearly no graph is ever called: passes
    interpret its nodes.
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


def remember_signatures() -> None:
    """Make the maps from inputs to weights once, not at every question about one input.

    Torch makes them at each call, from all inputs: quadratic in the number of weights.
    """
    from torch.export import graph_signature

    changes = 0

    def count_change(self: Any, name: str, value: Any) -> None:
        nonlocal changes
        changes += 1
        object.__setattr__(self, name, value)

    def remembered(make: Callable[[Any], Any]) -> property:
        known: dict[int, tuple[int, list[Any], int, Any]] = {}

        def read(self: Any) -> Any:
            inputs = self.input_specs
            state = (changes, len(inputs))
            found = known.get(id(self))
            # The list is held, so that another signature at the same address has another one.
            if found and found[1] is inputs and (found[0], found[2]) == state:
                return found[3]
            made = make(self)
            known[id(self)] = (changes, inputs, len(inputs), made)
            return made

        return property(read)

    signature: Any = graph_signature.ExportGraphSignature
    for part in (graph_signature.InputSpec, graph_signature.TensorArgument):
        part.__setattr__ = count_change
    for name in ("inputs_to_parameters", "inputs_to_buffers"):
        setattr(signature, name, remembered(getattr(signature, name).fget))


def check_types_once() -> None:
    """Check only operators with types of tensors that were not checked before.

    ExecuTorch executes the whole graph after each pass to see which types each operator gets. Its
    nodes say so, too, and nearly all are as they were after the pass before.
    """
    from executorch.exir.verification import verifier

    check = verifier._check_tensor_args_matching_op_allowed_dtype
    checked: set[tuple[Any, ...]] = set()

    def types(value: Any) -> Any:
        if isinstance(value, list | tuple):
            return tuple(types(one) for one in value)
        if isinstance(value, dict):
            return tuple((name, types(one)) for name, one in value.items())
        return getattr(value, "dtype", None)

    def of_argument(value: Any) -> Any:
        if isinstance(value, list | tuple):
            return tuple(of_argument(one) for one in value)
        return types(value.meta.get("val")) if hasattr(value, "meta") else None

    def check_new(graph: Any) -> None:
        seen = {
            (
                node.target,
                of_argument(node.args),
                tuple((name, of_argument(one)) for name, one in node.kwargs.items()),
                types(node.meta.get("val")),
            )
            for node in graph.graph.nodes
            if node.op == "call_function"
        }
        if not seen <= checked:
            check(graph)
            checked.update(seen)

    verifier._check_tensor_args_matching_op_allowed_dtype = check_new


def decompose_when_needed() -> None:
    """Decompose a program that was decomposed before only if it has an operator to decompose.

    Each time, torch traces the whole program again. ExecuTorch asks for it three times, and the
    third time mostly finds nothing.
    """
    from executorch.exir.graph_module import contains_any_call_fn_target_op
    from torch.export import ExportedProgram

    decompose: Any = ExportedProgram.run_decompositions

    def run_decompositions(self: Any, table: Any = None, **options: Any) -> Any:
        before = vars(self).get(_DECOMPOSED)
        needed = (
            before is not self.graph_module
            or table is None
            or options
            or contains_any_call_fn_target_op(self.graph_module, table)
        )
        if not needed:
            return self
        result = decompose(self, table, **options)
        vars(result)[_DECOMPOSED] = result.graph_module
        return result

    ExportedProgram.run_decompositions = run_decompositions
