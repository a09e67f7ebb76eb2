"""The house: which folder may import which. The map of it is in CONTRIBUTING.md."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

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
LONGEST_MODULE = 500


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
    done: set[str] = set()

    def visit(name: str, path: list[str]) -> list[str]:
        if name in path:
            return [*path[path.index(name) :], name]
        if name in done:
            return []
        for other in sorted(arrows.get(name, ())):
            if found := visit(other, [*path, name]):
                return found
        done.add(name)
        return []

    return next((found for name in sorted(arrows) if (found := visit(name, []))), [])


def test_imports_run_downward() -> None:
    assert upward(graph()) == []


def test_no_module_imports_itself_through_others() -> None:
    assert circle(graph()) == []


@pytest.mark.parametrize(
    ("source", "imported"),
    [
        ("from pytest_sme2.report import terminal", "pytest_sme2.report.terminal"),
        (
            "def f():\n    from pytest_sme2.report.terminal import run_lines",
            "pytest_sme2.report.terminal",
        ),
        ("import pytest_sme2.report.terminal", "pytest_sme2.report.terminal"),
    ],
)
def test_an_arrow_that_runs_upward_is_found(source: str, imported: str) -> None:
    found = set(imports_of(source, modules()))
    assert found == {imported}
    assert upward({"pytest_sme2.timing.pairs": found}) == [
        f"pytest_sme2.timing.pairs imports {imported}"
    ]


def test_a_circle_is_found() -> None:
    assert circle({"a": {"b"}, "b": {"c"}, "c": {"b"}}) == ["b", "c", "b"]


def test_every_folder_is_in_the_order_and_says_what_it_is_for() -> None:
    folders = {path.name for path in PACKAGE.iterdir() if (path / "__init__.py").is_file()}
    top = {path.stem for path in PACKAGE.glob("*.py")} - {"__init__"}
    assert folders | top == set(ORDER)
    for name in folders:
        text = ast.get_docstring(ast.parse((PACKAGE / name / "__init__.py").read_text("utf-8")))
        assert text is not None
        assert len(text.splitlines()) >= 3, f"{name}/__init__.py says too little"


def test_no_module_is_too_long() -> None:
    long = {
        name: lines
        for name, path in modules().items()
        if (lines := len(path.read_text("utf-8").splitlines())) > LONGEST_MODULE
    }
    assert long == {}


def test_tests_and_benchmarks_share_only_the_helpers() -> None:
    for path in (ROOT / "tests").rglob("*.py"):
        assert "benchmarks" not in _top_level_imports(path), path
    for path in (ROOT / "benchmarks").rglob("*.py"):
        for name in _imported_names(path):
            assert not name.startswith("tests.") or name.startswith("tests.support"), path


def _imported_names(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module


def _top_level_imports(path: Path) -> set[str]:
    return {name.partition(".")[0] for name in _imported_names(path)}
