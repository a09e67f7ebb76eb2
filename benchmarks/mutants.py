"""One small change at a time to a module's syntax tree: which changes there are. Pure.

Annotations, docstrings, imports, decorators and the wording of messages are left alone: they change
nothing that a program does. What is done with a mutant is in mutation.py.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator
from dataclasses import dataclass

_COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
_ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Mult,
    ast.Pow: ast.Mult,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.BitXor: ast.BitOr,
}
_CALLS = {"min": "max", "max": "min", "any": "all", "all": "any"}


@dataclass(frozen=True)
class Mutant:
    """A change that can be made to a module."""

    module: str
    """The file, relative to the project."""
    function: str
    """Where it is, as in ``Class.method``; empty at the module's own level."""
    line: int
    text: str
    """That line, without the space around it."""
    statement: tuple[int, int]
    """The first and the last line of the statement it is in."""
    rule: str
    before: str
    after: str
    in_body: bool
    """Whether only the code of a function changes: no default, no constant, no class."""
    node: int
    """The changed node's number in ``ast.walk``, and which of its changes it is."""
    choice: int

    @property
    def key(self) -> tuple[str, ...]:
        """What stays when lines move."""
        return (self.module, self.function, self.text, self.before, self.after)


def mutants(module: str, source: str, *, wording: bool) -> list[Mutant]:
    """Every change to a module. ``wording``: text with spaces is data there, not a message."""
    tree = ast.parse(source)
    skipped = _skipped(tree)
    places = _places(tree)
    lines = source.splitlines()
    found = []
    for number, node in enumerate(ast.walk(tree)):
        if node in skipped or not isinstance(node, ast.expr | ast.stmt):
            continue
        function, statement = places[node]
        for choice, (rule, replacement) in enumerate(_changes(node, wording=wording)):
            span = statement.lineno, statement.end_lineno or statement.lineno
            if isinstance(statement, ast.If | ast.For | ast.While | ast.With | ast.FunctionDef):
                # Of a compound statement only its head counts: its body has lines of its own.
                span = span[0], statement.body[0].lineno - 1
            if span[1] < span[0]:
                span = span[0], span[0]
            found.append(
                Mutant(
                    module,
                    function,
                    node.lineno,
                    lines[node.lineno - 1].strip(),
                    span,
                    rule,
                    _text(node),
                    _text(replacement),
                    bool(function) and not isinstance(statement, ast.FunctionDef | ast.ClassDef),
                    number,
                    choice,
                )
            )
    return found


def mutate(source: str, mutant: Mutant, *, wording: bool) -> ast.Module:
    """The module's tree with the change made."""
    tree = ast.parse(source)
    node = list(ast.walk(tree))[mutant.node]
    assert isinstance(node, ast.expr | ast.stmt)
    _, replacement = list(_changes(node, wording=wording))[mutant.choice]
    changed = _Replacement(node, replacement).visit(tree)
    assert isinstance(changed, ast.Module)
    return ast.fix_missing_locations(changed)


class _Replacement(ast.NodeTransformer):
    def __init__(self, node: ast.AST, replacement: ast.AST) -> None:
        self.node = node
        self.replacement = replacement

    def visit(self, node: ast.AST) -> ast.AST:
        if node is self.node:
            return ast.copy_location(self.replacement, node)
        visited = self.generic_visit(node)
        assert isinstance(visited, ast.AST)
        return visited


def _text(node: ast.AST) -> str:
    """The node as code; of a compound statement its first line."""
    return ast.unparse(node).splitlines()[0]


def _skipped(tree: ast.Module) -> set[ast.AST]:
    """The nodes that no mutant changes, with all below them."""
    roots: list[ast.AST | None] = []
    for node in ast.walk(tree):
        match node:
            case ast.AnnAssign():
                roots.append(node.annotation)
            case ast.arg():
                roots.append(node.annotation)
            case ast.FunctionDef():
                roots += [node.returns, *node.decorator_list]
            case ast.ClassDef():
                roots += [*node.bases, *node.decorator_list]
            case ast.Expr(value=ast.Constant()):
                roots.append(node)
            case ast.Assign(targets=[ast.Name(id="__all__")]):
                roots.append(node)
            case ast.JoinedStr():
                roots += [value for value in node.values if isinstance(value, ast.Constant)]
            case ast.FormattedValue():
                roots.append(node.format_spec)
            case ast.Subscript(value=ast.Name(id="NDArray" | "dict" | "tuple" | "list")):
                # The name of a type.
                roots.append(node)
            case ast.Call(func=ast.Name(id="TypeVar" | "NewType")):
                roots.append(node)
    return {below for root in roots if root is not None for below in ast.walk(root)}


def _places(tree: ast.Module) -> dict[ast.AST, tuple[str, ast.stmt]]:
    """Every node's function and statement."""
    places: dict[ast.AST, tuple[str, ast.stmt]] = {}

    def note(node: ast.AST, function: str, statement: ast.stmt | None) -> None:
        if isinstance(node, ast.stmt):
            statement = node
        if statement is not None:
            places[node] = (function, statement)
        inner = function
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            inner = f"{function}.{node.name}".lstrip(".")
        for child in ast.iter_child_nodes(node):
            note(child, inner, statement)

    note(tree, "", None)
    return places


def _changes(node: ast.expr | ast.stmt, *, wording: bool) -> Iterator[tuple[str, ast.AST]]:
    match node:
        case ast.Compare(ops=[operator]) if type(operator) in _COMPARISONS:
            yield "comparison", _with(node, ops=[_COMPARISONS[type(operator)]()])
        case ast.BoolOp():
            other = ast.Or() if isinstance(node.op, ast.And) else ast.And()
            yield "and/or", _with(node, op=other)
        case ast.BinOp() if type(node.op) in _ARITHMETIC:
            yield "arithmetic", _with(node, op=_ARITHMETIC[type(node.op)]())
        case ast.AugAssign() if type(node.op) in _ARITHMETIC:
            yield "arithmetic", _with(node, op=_ARITHMETIC[type(node.op)]())
        case ast.UnaryOp(op=ast.Not() | ast.USub() | ast.Invert()):
            yield "sign", copy.deepcopy(node.operand)
        case ast.Constant():
            yield from _constants(node, wording=wording)
        case ast.If() | ast.IfExp():
            yield "never", _with(node, test=ast.Constant(False))
        case ast.Return(value=ast.expr()) if not _is_none(node.value):
            yield "nothing returned", ast.Return(ast.Constant(None))
        case ast.Call(func=ast.Name(id=name)) if name in _CALLS:
            yield "call", _with(node, func=ast.Name(_CALLS[name], ast.Load()))
        case ast.Expr(value=ast.Call()) | ast.Raise():
            yield "left out", ast.Pass()
        case ast.Break():
            yield "loop", ast.Continue()
        case ast.Continue():
            yield "loop", ast.Break()
        case ast.ListComp() | ast.SetComp() | ast.GeneratorExp() | ast.DictComp():
            for number, generator in enumerate(node.generators):
                if generator.ifs:
                    changed = copy.deepcopy(node)
                    changed.generators[number].ifs = []
                    yield "no filter", changed


def _constants(node: ast.Constant, *, wording: bool) -> Iterator[tuple[str, ast.AST]]:
    value = node.value
    if isinstance(value, bool):
        yield "constant", ast.Constant(not value)
    elif isinstance(value, int):
        yield "constant", ast.Constant(value + 1)
    elif isinstance(value, float):
        yield "constant", ast.Constant(value * 2 if value else 1.0)
    elif isinstance(value, bytes):
        yield "constant", ast.Constant(b"XX" + value)
    elif isinstance(value, str) and (wording or not any(map(str.isspace, value))):
        yield "constant", ast.Constant("XX" + value)


def _is_none(node: ast.expr | None) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def _with(node: ast.expr | ast.stmt, **fields: object) -> ast.AST:
    changed = copy.deepcopy(node)
    for name, value in fields.items():
        setattr(changed, name, value)
    return changed
