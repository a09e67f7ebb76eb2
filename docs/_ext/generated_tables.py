"""Directives that print the reference from the code, so that no table of it is typed by hand.

``{sme2-options}``, ``{sme2-commands}``, ``{sme2-fixtures}`` and ``{sme2-kernel-matrix}``. What they
print is Markdown, and is parsed as if it stood in the page.
"""

from __future__ import annotations

import argparse
import ast
import inspect
from collections.abc import Iterator
from types import ModuleType
from typing import ClassVar

from docutils import nodes
from docutils.statemachine import StringList
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from pytest_sme2.cli import main as cli
from pytest_sme2.plugin import fixtures
from pytest_sme2.profile.kernel_matrix import shipped_matrix, shipped_versions
from pytest_sme2.results.evidence import Cell, KernelMatrix
from pytest_sme2.session.options import OPTIONS
from tools.matrix.comparing import change_lines

_PLACES = {"sme2": "**SME2**", "neon": "NEON", "portable": "portable", "": "fails"}


def option_lines() -> Iterator[str]:
    """Pytest's options of the plugin: flag, ini value, meaning."""
    yield "| option | ini value | meaning |"
    yield "| --- | --- | --- |"
    for option in OPTIONS:
        value = f"[={option.metavar}]" if option.bare else f" {option.metavar}"
        flag = f"{option.flag}{value}".rstrip()
        ini = f"`{option.destination}`" if option.ini else ""
        yield f"| {_code(flag)} | {ini} | {_cell(option.help)} |"


def command_lines() -> Iterator[str]:
    """Each command of ``sme2`` with its arguments and its example."""
    for name, summary in cli.COMMANDS.items():
        parser = cli.fill_parser(argparse.ArgumentParser(), name)
        yield f"### `sme2 {name}`"
        yield ""
        yield f"{summary[:1].upper()}{summary[1:]}."
        yield ""
        yield from _arguments(parser)
        example = (parser.epilog or "").removeprefix("example:\n").partition("\n\n")[0]
        yield ""
        yield "```bash"
        yield from (line.strip() for line in example.splitlines())
        yield "```"
        yield ""


def _arguments(parser: argparse.ArgumentParser) -> Iterator[str]:
    yield "| argument | meaning |"
    yield "| --- | --- |"
    for action in parser._actions:
        if not isinstance(action, argparse._HelpAction) and action.help != argparse.SUPPRESS:
            yield f"| {_code(_argument(action))} | {_cell(action.help or '')} |"


def _argument(action: argparse.Action) -> str:
    metavar = action.metavar
    if isinstance(metavar, tuple):
        metavar = " ".join(metavar)
    if not action.option_strings:
        return metavar or action.dest
    flag = ", ".join(action.option_strings)
    if action.nargs == 0:
        return flag
    return f"{flag} {metavar or action.dest.upper()}"


def fixture_lines(module: ModuleType = fixtures) -> Iterator[str]:
    """The fixtures with scope, type and docstring, read from the source."""
    yield "| fixture | gives | scope |"
    yield "| --- | --- | --- |"
    for node in ast.parse(inspect.getsource(module)).body:
        scope = _fixture_scope(node)
        if isinstance(node, ast.FunctionDef) and scope is not None:
            kind = ast.unparse(node.returns) if node.returns else "None"
            kind = kind.removeprefix("Iterator[").removesuffix("]")
            shown = "" if kind == "None" else f"`{kind}`. "
            yield f"| `{node.name}` | {shown}{_cell(ast.get_docstring(node) or '')} | {scope} |"


def _fixture_scope(node: ast.stmt) -> str | None:
    for decorator in getattr(node, "decorator_list", ()):
        call = decorator if isinstance(decorator, ast.Call) else None
        if ast.unparse(call.func if call else decorator) != "pytest.fixture":
            continue
        scopes = [word.value for word in call.keywords if word.arg == "scope"] if call else []
        return str(ast.literal_eval(scopes[0])) if scopes else "function"
    return None


def matrix_lines() -> Iterator[str]:
    """Where each operator runs in each data type, by the newest shipped matrix."""
    matrix = shipped_matrix(shipped_versions()[-1])
    cells = [*(answer.cell for answer in matrix.answers), *matrix.missing]
    data_types = list(dict.fromkeys(cell.data_type for cell in cells))
    yield f"| operator | {' | '.join(data_types)} |"
    yield f"| --- |{' --- |' * len(data_types)}"
    for operator in dict.fromkeys(cell.operator for cell in cells):
        places = [
            _place(matrix, Cell(operator, data_type, 32, "regular")) for data_type in data_types
        ]
        yield f"| {operator} | {' | '.join(places)} |"


def _place(matrix: KernelMatrix, cell: Cell) -> str:
    answer = matrix.by_cell.get(cell)
    if answer is not None:
        return _PLACES[answer.family]
    return "?" if cell in matrix.missing else ""


def changes_lines() -> Iterator[str]:
    """What changed between the two newest shipped matrices."""
    versions = shipped_versions()
    if len(versions) < 2:
        yield "There is only one matrix so far."
        return
    before, after = (shipped_matrix(version) for version in versions[-2:])
    yield "```text"
    yield from change_lines(before, after)
    yield "```"


def _code(text: str) -> str:
    return f"`{text}`".replace("|", "\\|")


def _cell(text: str) -> str:
    return " ".join(text.replace("%%", "%").replace("|", "\\|").split())


class Generated(SphinxDirective):
    """Prints what one of the functions above says."""

    makers: ClassVar = {
        "sme2-options": option_lines,
        "sme2-commands": command_lines,
        "sme2-fixtures": fixture_lines,
        "sme2-kernel-matrix": matrix_lines,
        "sme2-kernel-changes": changes_lines,
    }

    def run(self) -> list[nodes.Node]:
        self.env.note_dependency(__file__)
        lines = StringList(list(self.makers[self.name]()), source=f"<{self.name}>")
        place = nodes.section()
        place.document = self.state.document
        self.state.nested_parse(lines, self.content_offset, place, match_titles=True)
        return place.children


def setup(app: Sphinx) -> dict[str, bool]:
    for name in Generated.makers:
        app.add_directive(name, Generated)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
