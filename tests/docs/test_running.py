"""The commands of README and docs that can run here are run, in the order they are read in."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.docs.pages import PAGES, ROOT, Block, blocks
from tests.docs.shell import Shell
from tests.support.toy_project import export_here

# A page may build on what pages before it left behind.
READING_ORDER = ("README.md", "docs/index.md", "docs/reading.md", "docs/ci.md")


def in_source(block: Block) -> bool:
    return "suite" in block.flags


PROJECT_PAGES = [
    pytest.param(page, marks=() if page.name == "README.md" else pytest.mark.nightly)
    for page in PAGES
    if page.parent != ROOT / "skills"
    and any(not in_source(block) and "run" in block.flags for block in blocks(page))
]


@pytest.mark.parametrize("page", PROJECT_PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_reader_can_follow_the_page(page: Path, project: Shell) -> None:
    chosen = [block for block in blocks(page) if not in_source(block)]
    if page.name == "README.md":
        # Quicker than the reader's own export: this process imports torch once for all tests.
        project.follow([block for block in chosen if block.file])
        export_here(project.folder / "models", name="my_net")
    project.follow(chosen)


def test_the_suite_is_run_as_the_pages_say(source: Shell) -> None:
    named = [ROOT / name for name in READING_ORDER]
    pages = [
        *named,
        *(page for page in PAGES if page not in named and page.parent != ROOT / "skills"),
    ]
    chosen = [block for page in pages for block in blocks(page) if in_source(block)]
    assert chosen
    for variant in ("fp32", "fp16"):
        export_here(source.folder / "models", variant)
    printed = source.follow(chosen)
    assert "toy_cnn-fp32 " in printed
    assert (source.folder / "sme2-out" / "report.md").is_file()
    assert "<html" in (source.folder / "report.html").read_text("utf-8")
    assert "<testcase" in (source.folder / "junit.xml").read_text("utf-8")


FIND = "python -c 'import pytest_sme2.suite as suite; print(*suite.__path__)'"


@pytest.fixture
def repository(tmp_path: Path, programs: Path) -> Shell:
    """An empty folder."""
    return Shell(tmp_path, programs)


def test_the_steps_of_the_workflow_pass(repository: Shell) -> None:
    yaml = pytest.importorskip("yaml")
    code, suite = repository.run(FIND)
    if code:
        pytest.skip("the package is not installed from a wheel, and has no suite in it")
    for file in (ROOT / "tests" / "performance").glob("*.py"):
        assert (Path(suite.strip()) / file.name).read_bytes() == file.read_bytes()
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
    assert sum(1 for _ in cases) == 1
    assert "<html" in (repository.folder / "report.html").read_text("utf-8")
