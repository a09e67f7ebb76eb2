"""The house as the source has it: modules, their imports, and the graph of the folders.

``python -m tests.support.house`` prints the graph for CONTRIBUTING.md.
"""

from __future__ import annotations

import ast
import functools
import graphlib
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "pytest_sme2"

# A folder may import those before it. Lazy and type-only imports count as well.
ORDER = (
    "errors",
    "results",
    "system",
    "export",
    "trace",
    "runners",
    "profile",
    "targets",
    "fake_phone",
    "timing",
    "verdict",
    "session",
    "report",
    "plugin",
    "cli",
)
LONGEST_MODULE = 700


def modules() -> dict[str, Path]:
    """Every module of the package by its dotted name."""
    found = {}
    for path in PACKAGE.rglob("*.py"):
        parts = path.relative_to(ROOT).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imports_of(source: str, known: dict[str, Path]) -> Iterator[str]:
    """The modules of the package that a source text imports, wherever in it."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in known)
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                name = whole if whole in known else node.module
                if name in known:
                    yield name


def folder(module: str) -> str:
    return module.split(".")[1]


@functools.cache
def graph() -> dict[str, set[str]]:
    known = modules()
    return {
        name: set(imports_of(path.read_text("utf-8"), known)) - {name}
        for name, path in known.items()
        # The public face hands names on from every folder.
        if name != "pytest_sme2"
    }


def upward(arrows: dict[str, set[str]]) -> list[str]:
    """The arrows that run from a folder to one above it."""
    return [
        f"{name} imports {other}"
        for name, others in sorted(arrows.items())
        for other in sorted(others - {"pytest_sme2"})
        if ORDER.index(folder(other)) > ORDER.index(folder(name))
    ]


def circle(arrows: dict[str, set[str]]) -> list[str]:
    """Modules that import each other in a ring; empty where there is no ring."""
    try:
        graphlib.TopologicalSorter(arrows).prepare()
    except graphlib.CycleError as error:
        return list(error.args[1])
    return []


def folder_graph() -> dict[str, set[str]]:
    """By folder, the other folders that it imports."""
    found: dict[str, set[str]] = {name: set() for name in ORDER}
    for name, others in graph().items():
        found[folder(name)] |= {folder(other) for other in others - {"pytest_sme2"}}
    return {name: others - {name} for name, others in found.items()}


def drawing() -> str:
    """The folders as a Mermaid graph, the highest on top.

    ``errors`` and ``results`` are left out, since every folder uses them. So are arrows that a
    longer way already shows.
    """
    ground = {"errors", "results"}
    arrows = {
        name: others - ground for name, others in folder_graph().items() if name not in ground
    }

    def reach(name: str) -> set[str]:
        return arrows[name].union(*(reach(other) for other in arrows[name]))

    lines = ["graph TD"]
    for name in reversed(ORDER):
        for other in sorted(arrows.get(name, ()), key=ORDER.index, reverse=True):
            if not any(other in reach(via) for via in arrows[name] - {other}):
                lines.append(f"    {name} --> {other}")
    return "\n".join(lines)


if __name__ == "__main__":
    print(drawing())  # noqa: T201
