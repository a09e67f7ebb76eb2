"""The playbooks are followed from first to last, and their own checks say that it worked."""

from __future__ import annotations

import importlib.util
import re
import shlex
from pathlib import Path
from types import ModuleType

import pytest

from tests.docs.pages import ROOT, blocks
from tests.docs.shell import Shell

SKILLS = sorted((ROOT / "skills").glob("[0-9]*.md"))
SECTIONS = ("Prerequisites", "Commands", "Success", "When it fails", "Check")


@pytest.fixture(scope="module")
def check() -> ModuleType:
    specification = importlib.util.spec_from_file_location("check", ROOT / "skills" / "check.py")
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


def test_there_are_eight_in_order() -> None:
    assert [path.name[:2] for path in SKILLS] == [f"{number:02}" for number in range(1, 9)]


@pytest.mark.parametrize("path", SKILLS, ids=lambda path: path.stem)
def test_each_has_the_same_parts(path: Path, check: ModuleType) -> None:
    headings = re.findall(r"^## (.+)$", path.read_text("utf-8"), re.MULTILINE)
    assert [heading for heading in headings if heading in SECTIONS] == list(SECTIONS)
    assert check.read_check(path)
    assert any("run" in block.flags for block in blocks(path))
    listed = (ROOT / "skills" / "README.md").read_text("utf-8")
    assert f"({path.name})" in listed


@pytest.mark.nightly
def test_they_can_be_followed(source: Shell) -> None:
    for path in [*SKILLS[:1], ROOT / "skills" / "README.md", *SKILLS[1:]]:
        source.follow(blocks(path))
        if path in SKILLS:
            code, output = source.run(
                f"python skills/check.py {shlex.quote(f'skills/{path.name}')}"
            )
            assert code == 0, f"{path.name}: {output}"


def test_a_playbook_without_a_check_is_refused(tmp_path: Path, check: ModuleType) -> None:
    page = tmp_path / "page.md"
    page.write_text("# Nothing\n", "utf-8")
    assert check.main([str(page)]) == 2
    page.write_text("```json check\n{}\n```\n", "utf-8")
    assert check.main([str(page)]) == 2
    assert check.main([]) == 2
