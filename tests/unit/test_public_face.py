"""What users may import: everything the docs name, from the package itself, and only that."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest

import pytest_sme2
from pytest_sme2 import Check, Limits, RunRequest, Settings

ROOT = Path(__file__).parents[2]
PAGES = [
    ROOT / "README.md",
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted((ROOT / "skills").glob("*.md")),
    *sorted((ROOT / "models").glob("*/model.py")),
    *sorted((ROOT / "tests" / "performance").glob("*.py")),
]


@pytest.mark.parametrize("name", pytest_sme2.__all__)
def test_every_public_name_can_be_imported(name: str) -> None:
    assert getattr(pytest_sme2, name) is not None
    assert name in dir(pytest_sme2)


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


def test_what_a_user_has_to_name_is_public() -> None:
    """What functions and fixtures take and give, and what users make is made of."""
    source = "\n".join(path.read_text("utf-8") for path in (ROOT / "pytest_sme2").rglob("*.py"))
    ours = {*re.findall(r"^class (\w+)", source, re.MULTILINE)}
    public = [getattr(pytest_sme2, name) for name in pytest_sme2.__all__]
    functions = filter(inspect.isfunction, public)
    taken = [str(inspect.signature(function)) for function in functions]
    given = (ROOT / "pytest_sme2" / "plugin" / "fixtures.py").read_text("utf-8")
    taken += re.findall(r"^def sme2_\w+(\(.*?):$", given, re.MULTILINE | re.DOTALL)
    for made in (Check, Limits, RunRequest, Settings):
        taken.append(str(made.__annotations__))
    assert len(taken) > 20
    named = {*re.findall(r"\w+", " ".join(taken))}
    assert {"Gate", "Analysis", "Target"} <= named & ours <= {*pytest_sme2.__all__}


CONSUMER = """
from pathlib import Path

from pytest_sme2 import (
    Analysis, Arm, Check, Executor, Gate, Outcome, analyze_file, compare, read_etdump,
    register_model,
)


def test_model(sme2_gate: Gate) -> None:
    sme2_gate.check_evidence()
    measured = sme2_gate.measured
    portable: int = measured.structures[measured.arm].executed_by(Executor.PORTABLE)
    few = Outcome.PASS if portable <= 2 else Outcome.REGRESSED
    sme2_gate.check(Check("portable", few, f"{portable} of at most 2 fell back."))
    assert all(check.verdict is Outcome.PASS for check in sme2_gate.take_checks())


def slower(path: Path) -> float | None:
    found: Analysis = analyze_file(path)
    assert read_etdump(path).name.size
    return compare(found.profile, found.profile).end_to_end.ratio


@register_model("net", variants=("fp32",))
class Net:
    arms: tuple[Arm, ...] = (Arm.ON, Arm.OFF)
"""


@pytest.mark.slow
def test_a_consumer_can_check_its_types(tmp_path: Path) -> None:
    file = tmp_path / "consumer.py"
    mypy = [sys.executable, "-m", "mypy", "--strict", "--config-file=", file.name]
    file.write_text(CONSUMER, encoding="utf-8")
    done = subprocess.run(mypy, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.stdout.startswith("Success"), done.stdout + done.stderr
    # What it is told is the truth: a type of its own, and not Any.
    file.write_text(CONSUMER.replace("check_evidence", "check_nothing"), encoding="utf-8")
    done = subprocess.run(mypy, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert '"Gate" has no attribute "check_nothing"' in done.stdout
    assert "Found 1 error" in done.stdout
