"""Python in the pages is valid, imports what exists, and runs where an ETDump is all it needs.

Links of pages that Sphinx does not see are checked here, too.
"""

from __future__ import annotations

import ast
import importlib
import re
import shutil
from pathlib import Path

import pytest

from tests.docs.pages import PAGES, ROOT, Block, blocks, prose

EXAMPLES = [block for page in PAGES for block in blocks(page) if block.language == "python"]
SAMPLE = ROOT / "docs" / "sample" / "emulated" / "toy_cnn-fp16" / "runs" / "emulated"
_LINK = re.compile(r"\]\((?!\w+:)([^)#\s]*)(#[^)\s]*)?\)")


def example_of(page: str) -> Block:
    (block,) = [block for block in EXAMPLES if block.page.name == page]
    return block


@pytest.mark.parametrize("block", EXAMPLES, ids=str)
def test_it_imports_what_exists(block: Block) -> None:
    for node in ast.walk(ast.parse(block.text)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("pytest_sme2"):
            module = importlib.import_module(node.module or "")
            for name in node.names:
                assert hasattr(module, name.name), f"{block}: {node.module} has no {name.name}"


@pytest.mark.parametrize("page", ["reading.md", "reference.md"])
def test_it_runs(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, arm in (("on", "on"), ("off", "off"), ("model", "on")):
        shutil.copy(SAMPLE / f"emulated_sme2_{arm}" / "run.etdump", tmp_path / f"{name}.etdump")
    monkeypatch.chdir(tmp_path)
    exec(compile(example_of(page).text, page, "exec"), {})
    assert capsys.readouterr().out


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    for target, anchor in _LINK.findall(prose(page)):
        path = (page.parent / target).resolve() if target else page
        assert path.exists(), target
        if anchor and path.suffix == ".md":
            headings = re.findall(r"^#+ (.+)$", path.read_text("utf-8"), re.MULTILINE)
            assert anchor[1:] in [anchor_of(heading) for heading in headings], target + anchor


def anchor_of(heading: str) -> str:
    """As GitHub and MyST make it."""
    return re.sub(r"[^\w\- ]", "", heading.replace("`", "")).strip().lower().replace(" ", "-")
