"""What users may import: everything the docs name, from the package itself, and only that."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import pytest_sme2

ROOT = Path(__file__).parents[2]
PAGES = [
    ROOT / "README.md",
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted((ROOT / "skills").glob("*.md")),
    *sorted((ROOT / "models").glob("*/model.py")),
    ROOT / "pytest_sme2" / "plugin" / "hookspecs.py",
]


@pytest.mark.parametrize("name", pytest_sme2.__all__)
def test_every_public_name_can_be_imported(name: str) -> None:
    assert getattr(pytest_sme2, name) is not None
    assert name in dir(pytest_sme2)


def test_other_names_are_refused() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        pytest_sme2.nothing  # noqa: B018


def test_importing_the_package_loads_nothing_else_of_it() -> None:
    code = (
        "import sys, pytest_sme2; "
        "print(*sorted(name for name in sys.modules if name.startswith('pytest_sme2')))"
    )
    found = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT
    )
    assert found.stdout.split() == ["pytest_sme2"]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_pages_and_models_import_public_names_only(page: Path) -> None:
    text = page.read_text("utf-8")
    # The hook specifications import for type checkers; examples stand in their docstrings.
    if page.suffix == ".py" and page.parent.name == "plugin":
        text = "\n".join(re.findall(r'"""(.*?)"""', text, re.DOTALL))
    inner = re.findall(r"(?:from|import) (pytest_sme2\.[a-z_.]+)", text)
    # The suite is run by name, and a warning filter names a class by its module.
    assert [name for name in inner if not name.startswith("pytest_sme2.suite")] == []
    for names in re.findall(r"from pytest_sme2 import \(?([^)\n]+)", text):
        for name in re.split(r"[,\s]+", names.partition("#")[0].strip()):
            assert name in pytest_sme2.__all__, f"{page}: {name}"


def test_the_reference_documents_every_name() -> None:
    reference = (ROOT / "docs" / "reference.md").read_text("utf-8")
    missing = [
        name
        for name in pytest_sme2.__all__
        if not re.search(rf"pytest_sme2\.(?:[a-z_0-9.]+\.)?{name}\b", reference)
        and name != "__version__"
    ]
    assert missing == []
