"""The workflow to copy is run in a repository that `sme2 init` made, and that is not this one."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.docs.shell import Shell

FIND = "python -c 'import importlib.util as u; print(u.find_spec(\"pytest_sme2.suite\"))'"


@pytest.fixture
def repository(tmp_path: Path, programs: Path) -> Shell:
    """An empty folder."""
    return Shell(tmp_path, programs)


def test_the_steps_of_the_workflow_pass(repository: Shell) -> None:
    yaml = pytest.importorskip("yaml")
    if repository.run(FIND)[1].strip() == "None":
        pytest.skip("the package is not installed from a wheel, and has no suite in it")
    # One variant is enough here; the commands are those that people have.
    one = "export PYTEST_ADDOPTS=--sme2-variants=fp32\n"
    code, printed = repository.run(f"sme2 init\n{one}pytest\npytest --update-baselines")
    assert code == 0, printed
    document = yaml.safe_load(
        (repository.folder / ".github/workflows/performance.yml").read_text("utf-8")
    )
    steps = [step["run"] for step in document["jobs"]["structure"]["steps"] if "run" in step]
    commands = [step for step in steps if not step.startswith("pip install")]
    assert [command.split()[0] for command in commands] == ["sme2", "pytest"]
    for command in commands:
        code, printed = repository.run(one + command)
        assert code == 0, printed
    cases = ElementTree.parse(repository.folder / "junit.xml").getroot().iter("testcase")
    assert sum(1 for _ in cases) >= 5
    assert "<html" in (repository.folder / "report.html").read_text("utf-8")
