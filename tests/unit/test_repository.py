"""What strangers see first: workflows, forms, pre-commit and metadata are right, and agree."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement

import pytest_sme2
from tests.unit.test_ci import ROOT, load, metadata, pins, tox_settings

GITHUB = ROOT / ".github"
WORKFLOWS = sorted(GITHUB.glob("workflows/*.yml"))
ACTIONS = sorted(GITHUB.glob("actions/*/action.yml"))
PINNED = re.compile(r"[\w-]+/[\w-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+")
# Who may do more than read, and what for.
RIGHTS: dict[tuple[str, str | None], dict[str, str]] = {
    ("ci", None): {"contents": "read"},
    ("release", None): {},
    ("release", "build"): {"contents": "read"},
    ("release", "publish"): {"id-token": "write", "attestations": "write"},
    ("release", "page"): {"contents": "write"},
}


def named(path: Path) -> str:
    return str(path.relative_to(ROOT))


def read(path: Path) -> dict[str, Any]:
    document: dict[str, Any] = yaml.safe_load(path.read_text("utf-8"))
    return document


def jobs() -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path in WORKFLOWS:
        for name, job in read(path)["jobs"].items():
            yield path.stem, name, job


def environments(job: dict[str, Any]) -> Iterator[str]:
    """Those of tox that a job runs, a matrix written out."""
    for step in job["steps"]:
        for words in re.findall(r"tox run -e (\$\{\{.+?\}\}|\S+)", step.get("run", "")):
            name = re.fullmatch(r"\$\{\{ matrix\.(\w+) \}\}", words)
            yield from job["strategy"]["matrix"][name[1]] if name else words.split(",")


def test_every_file_of_its_kind_is_held_to_a_schema() -> None:
    """Pre-commit has a test of its own here, since no schema of it is at hand."""
    kinds = load("schemas").KINDS.values()
    held = {path for patterns in kinds for pattern in patterns for path in ROOT.glob(pattern)}
    folders = (ROOT.glob("*"), GITHUB.rglob("*"), (ROOT / "docs" / "ci").glob("*"))
    ours = {
        path for folder in folders for path in folder if path.suffix in {".yml", ".yaml", ".cff"}
    }
    assert ours - held == {ROOT / ".pre-commit-config.yaml"}
    assert "python .ci{/}schemas.py" in tox_settings()["testenv:lint"]["commands"]


@pytest.mark.parametrize("path", [*WORKFLOWS, *ACTIONS], ids=named)
def test_every_action_is_pinned(path: Path) -> None:
    used = re.findall(r"\buses: *(.+)", path.read_text("utf-8"))
    assert used
    for action in used:
        local = action.startswith("./")
        assert (ROOT / action / "action.yml").is_file() if local else PINNED.fullmatch(action), (
            action
        )


def test_one_action_has_one_version() -> None:
    text = "\n".join(path.read_text("utf-8") for path in (*WORKFLOWS, *ACTIONS))
    used = {*PINNED.findall(text)}
    assert len(used) == len({action.partition("@")[0] for action in used})


def test_the_workflows_run_the_environments_of_tox() -> None:
    there = {name.removeprefix("testenv:") for name in tox_settings().sections()}
    by_workflow: dict[str, set[str]] = {}
    for workflow, _, job in jobs():
        by_workflow.setdefault(workflow, set()).update(environments(job))
    assert set().union(*by_workflow.values()) <= there
    script = (ROOT / ".ci" / "run").read_text("utf-8")
    (locally,) = re.findall(r"--notest -e (\S+)", script)
    assert {*locally.split(","), "quick", "nightly", "bench", "vm", "sweep"} <= by_workflow["ci"]
    assert by_workflow["release"] == {"package", "release"}


def test_every_python_that_is_promised_is_tried() -> None:
    (job,) = [job for _, name, job in jobs() if name == "quick"]
    promised = re.findall(r"Python :: (3\.\d+)", "\n".join(metadata()["classifiers"]))
    assert job["strategy"]["matrix"]["python"] == promised
    assert metadata()["requires-python"] == f">={promised[0]}"


def test_the_rights_are_the_least() -> None:
    given: dict[tuple[str, str | None], Any] = {}
    given |= {(path.stem, None): read(path)["permissions"] for path in WORKFLOWS}
    given |= {
        (flow, name): job["permissions"] for flow, name, job in jobs() if "permissions" in job
    }
    assert given == RIGHTS
    for flow, name, job in jobs():
        assert job["timeout-minutes"] <= 360
        # Who may write runs nothing of the checkout but this page's own line.
        if "write" in RIGHTS.get((flow, name), {}).values():
            assert not [*environments(job)]
        for step in job["steps"]:
            if step.get("uses", "").startswith("actions/checkout"):
                assert step["with"]["persist-credentials"] is False
            if step.get("uses", "").startswith("actions/cache"):
                assert re.fullmatch(
                    r"\d GB", read(GITHUB / "workflows" / f"{flow}.yml")["env"]["SME2_CACHE_LIMIT"]
                )
    for path in WORKFLOWS:
        assert "pull_request_target" not in path.read_text("utf-8")
        assert read(path)["concurrency"]["group"]


def test_pre_commit_uses_the_tools_and_versions_of_tox() -> None:
    config = read(ROOT / ".pre-commit-config.yaml")
    (hooks,) = [repository["hooks"] for repository in config["repos"]]
    assert len({hook["id"] for hook in hooks}) == len(hooks)
    locked = pins("requirements.txt")
    for hook in hooks:
        for requirement in map(Requirement, hook.get("additional_dependencies", ())):
            newest = locked[requirement.name][-1][0]
            assert str(requirement.specifier) == f"=={newest}", hook["id"]
    commands = tox_settings()["testenv:lint"]["commands"].replace("{/}", "/").split("\n")
    for line in filter(None, commands):
        words = line.replace(" --check", "").removesuffix(" .")
        assert any(hook["entry"].startswith(words) for hook in hooks), line
    assert any(hook["entry"].endswith("-e types") for hook in hooks)


def test_the_version_has_one_place() -> None:
    assert "version" in metadata()["dynamic"]
    changelog, citation = (
        (ROOT / name).read_text("utf-8") for name in ("CHANGELOG.md", "CITATION.cff")
    )
    package = load("package")
    assert package.unready(pytest_sme2.__version__, changelog, citation) == []
    assert len(package.unready("99.0", changelog, citation)) == 2
    headings = re.findall(r"^## (.+)$", changelog, re.MULTILINE)
    assert headings[:2] == ["Unreleased", pytest_sme2.__version__]
    assert all(len(part.splitlines()) <= 60 for part in changelog.split("\n## "))


def test_who_made_it_and_where_it_lives_is_said_once() -> None:
    (author,) = metadata()["authors"]
    citation = read(ROOT / "CITATION.cff")
    assert citation["authors"] == [author]
    assert citation["license"] == metadata()["license"]
    home = metadata()["urls"]["Homepage"]
    assert citation["repository-code"] == home
    assert all(
        url.startswith(("https://pytest-sme2.readthedocs.io", home))
        for url in metadata()["urls"].values()
    )
    assert home in (ROOT / "docs" / "conf.py").read_text("utf-8")
    for link in read(GITHUB / "ISSUE_TEMPLATE" / "config.yml")["contact_links"]:
        assert link["url"].startswith((home, metadata()["urls"]["Documentation"]))


def test_the_page_for_agents_is_short_and_true() -> None:
    text = (ROOT / "AGENTS.md").read_text("utf-8")
    assert len(text.splitlines()) <= 60
    paths = re.findall(r"`((?:\.?[\w]+/)[\w./]*)`", text)
    assert len(paths) > 10
    assert [name for name in paths if not (ROOT / name).exists()] == []
    told = {name for words in re.findall(r"tox run -e ([\w,]+)", text) for name in words.split(",")}
    assert told <= {name.removeprefix("testenv:") for name in tox_settings().sections()}
