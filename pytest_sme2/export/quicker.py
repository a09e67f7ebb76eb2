"""Keeps torch and ExecuTorch from doing the same work again and again while they lower a model.

Each function changes their classes for the rest of this process, which only exports. None changes
a program: a test compares the bytes of programs that are made with and without them.
"""

from __future__ import annotations

import contextlib
import functools
from typing import Any

_DECOMPOSED = "_sme2_decomposed"


@functools.cache
def lower_quicker() -> None:
    """Apply them, once; one that does not fit the installed versions is left out."""
    for change in (remember_results, decompose_once):
        with contextlib.suppress(ImportError, AttributeError):
            change()


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
