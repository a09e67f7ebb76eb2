"""What strangers see first: workflows, forms, pre-commit and metadata are right, and agree."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement

import pytest_sme2
from pytest_sme2.errors import SOURCE, install
from tests.unit.test_ci import METADATA, ROOT, here, load, pins, tox_settings

GITHUB = ROOT / ".github"
TEMPLATES = ROOT / "docs" / "ci"
WORKFLOWS = sorted(GITHUB.glob("workflows/*.yml"))
ACTIONS = sorted(GITHUB.glob("actions/*/action.yml"))
PINNED = re.compile(r"([\w-]+/[\w-]+)(?:/[\w-]+)?(@[0-9a-f]{40} # v\d+\.\d+\.\d+)")
INSTALLS = re.compile(r"pip install '?pytest-sme2(?![-\w{])(\[\w+\])?(.*)")
# What users copy.
COPIED = [path for path in sorted(TEMPLATES.glob("*.yml")) if "gitlab" not in path.name]
# Who may do more than read, and what for.
RIGHTS: dict[tuple[str, str | None], dict[str, str]] = {
    ("ci", None): {"contents": "read"},
    ("release", None): {},
    ("release", "build"): {"contents": "read"},
    ("release", "publish"): {"id-token": "write", "attestations": "write"},
    ("release", "page"): {"contents": "write"},
}


def text_of(*names: str) -> str:
    return ROOT.joinpath(*names).read_text("utf-8")


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


@pytest.mark.parametrize("path", [*WORKFLOWS, *ACTIONS, *COPIED], ids=lambda path: path.name)
def test_every_action_is_pinned(path: Path) -> None:
    used = re.findall(r"\buses: *(.+)", path.read_text("utf-8"))
    assert used
    for name in used:
        local = name.startswith("./")
        assert (ROOT / name / "action.yml").is_file() if local else PINNED.fullmatch(name), name


def test_what_users_copy_is_linted() -> None:
    lines = tox_settings()["testenv:lint"]["commands"].replace("{/}", "/").split("\n")
    (words,) = ({*line.split()} for line in lines if line.startswith("zizmor"))
    assert {"--persona=auditor", "--min-severity=medium"} < words
    assert {str(path.relative_to(ROOT)) for path in COPIED} < words
    # `sme2 init` names a version of our own package.
    split = here("requirements.txt")["pytest-split"]
    assert f" pytest-split=={split}\n" in text_of("docs", "ci", "shards.yml")


def test_only_main_makes_a_cache() -> None:
    """What is in the cache is believed: what a pull request wrote there would be, too."""
    for path in (*WORKFLOWS, *COPIED):
        steps = [step for job in read(path)["jobs"].values() for step in job["steps"]]
        kinds = [step["uses"].partition("@")[0] for step in steps if "actions/cache" in str(step)]
        assert not {*kinds} - {"actions/cache/restore", "actions/cache/save"}
        assert kinds.count("actions/cache/restore") == kinds.count("actions/cache/save")
        for step in steps:
            if "actions/cache/" in str(step):
                # Not in the workspace, where a branch could commit it.
                assert step["with"]["path"] == "~/.cache/pytest-sme2"
                saved = "cache/save" in step["uses"]
                assert step.get("if") == ("github.ref == 'refs/heads/main'" if saved else None)


def test_the_workflows_run_the_environments_of_tox() -> None:
    called: dict[str, set[str]] = {"ci": set(), "release": set()}
    for workflow, _, job in jobs():
        called[workflow].update(environments(job))
        # They are installed by the lock beforehand, and nothing is installed after that.
        locked = [step["with"]["environments"] for step in job["steps"] if "/tox" in str(step)]
        ran = re.findall(r"tox run -e (\$\{\{.+?\}\}|\S+) (?=--skip|--installpkg)", str(job))
        assert ",".join(ran) == "".join(locked)
    assert {f"testenv:{name}" for names in called.values() for name in names} <= {*tox_settings()}
    (locally,) = re.findall(r"--notest -e (\S+)", text_of(".ci", "run"))
    assert {*locally.split(","), "quick", "nightly", "bench", "vm"} <= called["ci"]
    assert called["release"] == {"package", "release"}


def test_every_python_that_is_promised_is_tried() -> None:
    (job,) = [job for _, name, job in jobs() if name == "quick"]
    promised = re.findall(r"Python :: (3\.\d+)", "\n".join(METADATA["classifiers"]))
    assert job["strategy"]["matrix"]["python"] == promised
    assert METADATA["requires-python"] == f">={promised[0]}"


def test_the_rights_are_the_least() -> None:
    given: dict[tuple[str, str | None], Any] = {}
    for path in COPIED:
        # A pull request's code runs there.
        assert read(path)["permissions"] in ({}, {"contents": "read"})
        steps = [step for job in read(path)["jobs"].values() for step in job["steps"]]
        checkouts = [step for step in steps if "actions/checkout" in step.get("uses", "")]
        assert checkouts
        assert all(step["with"]["persist-credentials"] is False for step in checkouts)
    for path in WORKFLOWS:
        given[path.stem, None] = read(path)["permissions"]
        assert "pull_request_target" not in path.read_text("utf-8")
        assert read(path)["concurrency"]["group"]
    for flow, name, job in jobs():
        if "permissions" in job:
            given[flow, name] = job["permissions"]
        assert job["timeout-minutes"] <= 360
        # Who may write runs nothing of the checkout.
        assert "write" not in job.get("permissions", {}).values() or not [*environments(job)]
        for step in job["steps"]:
            if step.get("uses", "").startswith("actions/checkout"):
                assert step["with"]["persist-credentials"] is False
    assert given == RIGHTS
    for path in (GITHUB / "workflows" / "ci.yml", TEMPLATES / "github-actions.yml"):
        assert re.search(r"SME2_CACHE_LIMIT: \d GB", path.read_text("utf-8"))


def test_pre_commit_uses_the_tools_and_versions_of_tox() -> None:
    config = read(ROOT / ".pre-commit-config.yaml")
    (hooks,) = [repository["hooks"] for repository in config["repos"]]
    locked = pins("requirements.txt")
    for hook in hooks:
        for requirement in map(Requirement, hook.get("additional_dependencies", ())):
            newest, *_ = locked[requirement.name][-1]
            assert str(requirement.specifier) == f"=={newest}", hook["id"]
    entries = [hook["entry"] for hook in hooks]
    for line in tox_settings()["testenv:lint"]["commands"].replace("{/}", "/").strip().split("\n"):
        words = line.replace(" --check", "").removesuffix(" .")
        assert any(entry.startswith(words) for entry in entries), line
    assert "tox run -q -e types" in entries


def test_the_version_has_one_place() -> None:
    assert "version" in METADATA["dynamic"]
    changelog, citation = text_of("CHANGELOG.md"), text_of("CITATION.cff")
    unready = load("package").unready
    assert unready(pytest_sme2.__version__, changelog, citation) == []
    assert len(unready("99.0", changelog, citation)) == 2
    headings = re.findall(r"^## (.+)$", changelog, re.MULTILINE)
    assert headings[:2] == ["Unreleased", pytest_sme2.__version__]
    assert all(len(part.splitlines()) <= 110 for part in changelog.split("\n## "))


def committed(*folders: str) -> Iterator[Path]:
    command = ["git", "ls-files", "--", *folders]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for path in map(ROOT.joinpath, listed.splitlines()):
        if path.suffix in {".md", ".py", ".yml"} and path.is_file():
            yield path


def test_every_place_installs_in_the_words_of_one_function() -> None:
    known = {f"[{extra}]" for extra in METADATA["optional-dependencies"]}
    for path in committed("README.md", "docs", "skills", "pytest_sme2"):
        for extra, rest in INSTALLS.findall(path.read_text("utf-8")):
            assert {extra} <= known | {""}, path
            assert rest.startswith(f"{SOURCE}'"), f"{path}: not as errors.install says"
    for page in ("README.md", "docs/index.md", "docs/mac.md", "docs/ci/github-actions.yml"):
        assert install("export") in text_of(page)


def test_a_release_installs_from_the_registry(tmp_path: Path) -> None:
    package = load("package")
    (tmp_path / "page.md").write_text(f"```bash\n{install('export')}\n```\n")
    (tmp_path / "errors.py").write_text(f'SOURCE = "{SOURCE}"\n')
    for words in (["init", "-q"], ["add", "."]):
        subprocess.run(["git", *words], cwd=tmp_path, check=True)
    assert bool(package.install_from_git(tmp_path)) == bool(SOURCE)
    package.install_as_published(tmp_path)
    assert package.install_from_git(tmp_path) == []
    assert "\npip install 'pytest-sme2[export]'\n" in (tmp_path / "page.md").read_text()
    assert (tmp_path / "errors.py").read_text() == 'SOURCE = ""\n'


def test_forks_do_not_run_on_a_machine_of_ones_own() -> None:
    workflow = read(TEMPLATES / "github-actions.yml")["jobs"]
    assert "self-hosted" in workflow["timing"]["runs-on"]
    assert workflow["timing"]["if"] == (
        "vars.SME2_MACHINE != '' && (github.event_name != 'pull_request' "
        "|| github.event.pull_request.head.repo.full_name == github.repository)"
    )
    assert "self-hosted" not in workflow["structure"]["runs-on"]
    mac = text_of("docs", "ci", "mac.yml")
    assert "self-hosted" in mac
    assert not re.search(r"^\s*pull_request", mac, re.M)
    for text in (mac, text_of("docs", "ci", "github-actions.yml")):
        assert "pull_request_target" not in text
        # Nothing that waits is cancelled.
        assert not re.search(r"^\s*concurrency:", text, re.M)


def test_creep_on_main_fails() -> None:
    steps = read(TEMPLATES / "github-actions.yml")["jobs"]["timing"]["steps"]
    assert any("--sme2-history=../sme2-history" in str(step.get("env")) for step in steps)
    (last,) = [step for step in steps if "sme2 history" in step.get("run", "")]
    assert "--fail-on" in last["run"]
    assert last["if"] == "github.ref == 'refs/heads/main'"
