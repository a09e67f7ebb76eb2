"""Which folder may import which; CONTRIBUTING.md says what is in each."""

from __future__ import annotations

import ast
import importlib
import re

import pytest

from pytest_sme2.session.options import OPTIONS, PATH
from tests.support.house import (
    LONGEST_MODULE,
    ORDER,
    PACKAGE,
    ROOT,
    circle,
    drawing,
    graph,
    modules,
    upward,
)

CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text("utf-8")


def test_imports_run_downward() -> None:
    assert upward(graph()) == []


def test_no_module_imports_itself_through_others() -> None:
    assert circle(graph()) == []


@pytest.mark.parametrize("parse", sorted({option.parse for option in OPTIONS} - {"", PATH}))
def test_what_reads_an_option_exists(parse: str) -> None:
    """It is imported only when the option is given."""
    module, _, function = parse.partition(":")
    assert callable(getattr(importlib.import_module(f"pytest_sme2.{module}"), function))


def test_every_folder_is_in_the_order_and_says_what_it_is_for() -> None:
    folders = {
        path.name
        for path in PACKAGE.iterdir()
        if (path / "__init__.py").is_file() and not path.is_symlink()
    }
    top = {path.stem for path in PACKAGE.glob("*.py")} - {"__init__"}
    assert folders | top == set(ORDER)
    for name in folders:
        text = ast.get_docstring(ast.parse((PACKAGE / name / "__init__.py").read_text("utf-8")))
        assert len(text.splitlines()) >= 3, f"{name}/__init__.py says too little"


def test_no_module_is_too_long() -> None:
    long = {
        name: lines
        for name, path in modules().items()
        if (lines := len(path.read_text("utf-8").splitlines())) > LONGEST_MODULE
    }
    assert long == {}


def test_durations_are_not_taken_from_the_wall_clock() -> None:
    """It may jump. Only dates, ages of files and marks, and a file's date on a phone are of it."""
    clock = re.compile(r"time\.time(_ns)?\(\)|datetime\.now\(|CLOCK_REALTIME|system_clock")
    sources = (path for path in PACKAGE.rglob("*") if path.suffix in (".py", ".cpp"))
    assert {path.stem for path in sources if clock.search(path.read_text("utf-8"))} == {
        "adb", "cache", "case_result", "clean", "locks",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("folder", "forbidden"),
    [
        # What is installed needs nothing that is not.
        ("pytest_sme2", r"(benchmarks|tests|tools)\b"),
        ("tests", r"benchmarks\b"),
        ("benchmarks", r"tests\.(?!support)"),
    ],
)
def test_the_folders_beside_the_package_share_only_the_helpers(folder: str, forbidden: str) -> None:
    importing = re.compile(rf"^ *(from|import) {forbidden}", re.MULTILINE)
    for path in (ROOT / folder).rglob("*.py"):
        assert not importing.search(path.read_text("utf-8")), path


def test_the_map_lists_the_folders_from_the_top_down() -> None:
    rows = re.findall(r"^\| `([a-z_]+)(?:/|\.py)` \|", CONTRIBUTING, re.MULTILINE)
    assert rows == list(reversed(ORDER))


def test_the_picture_is_drawn_from_the_imports() -> None:
    assert f"```mermaid\n{drawing()}\n```" in CONTRIBUTING, (
        "The folders import each other differently now. Put the output of "
        "`python -m tests.support.house` into CONTRIBUTING.md."
    )


def test_the_way_of_a_case_is_short_and_names_what_exists() -> None:
    way = CONTRIBUTING.partition("## The way of one case")[2].partition("\n## ")[0]
    steps = re.findall(r"^\d+\. `([^`]+\.py)`:(.+?)(?=^\d|^$)", way, re.MULTILINE | re.DOTALL)
    assert 5 < len(steps) <= 10
    assert len(way.split()) <= 400
    for file, text in steps:
        source = (ROOT / file).read_text("utf-8")
        functions = [name for name in re.findall(r"`([a-z_]+)`", text) if name != "sme2_gate"]
        assert functions
        for name in functions:
            assert re.search(rf"def {name}\(", source), f"{file}: {name}"


def test_the_files_that_the_guide_names_exist() -> None:
    for name in re.findall(
        r"`((?:pytest_sme2|tests|tools|docs|benchmarks|models|\.ci)/[\w./-]+)`", CONTRIBUTING
    ):
        assert (ROOT / name).exists(), name
