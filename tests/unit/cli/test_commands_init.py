"""``sme2 init`` in an empty repository, in a used one, and twice."""

from __future__ import annotations

import importlib.metadata
import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from pytest_sme2 import __version__
from pytest_sme2.cli.commands import init
from tests.support import Command

ROOT = Path(__file__).parents[3]


def test_an_empty_repository_gets_all_it_needs(tmp_path: Path, sme2: Command) -> None:
    written = json.loads(sme2("init", tmp_path, "--json").out)["written"]
    assert sorted(written) == [
        ".github/workflows/performance.yml",
        ".gitignore",
        "models/toy_cnn/model.py",
        "pytest.ini",
        "tests/test_performance.py",
    ]
    model = tmp_path / "models" / "toy_cnn" / "model.py"
    assert model.read_bytes() == (ROOT / "models" / "toy_cnn" / "model.py").read_bytes()
    assert (
        "\naddopts = -p no:hydra_pytest -p no:hypothesispytest\n"
        in (tmp_path / "pytest.ini").read_text()
    )
    workflow = (tmp_path / ".github" / "workflows" / "performance.yml").read_text()
    assert "pytest tests/test_performance.py --sme2-device=emulated" in workflow


def test_nothing_is_overwritten(tmp_path: Path, sme2: Command) -> None:
    test = tmp_path / "tests" / "test_performance.py"
    test.parent.mkdir()
    test.write_text("mine")
    assert "tests/test_performance.py: there already" in sme2("init", tmp_path, code=2).err
    assert test.read_text() == "mine"
    assert not (tmp_path / "models").exists()


def test_settings_of_others_stay(tmp_path: Path, sme2: Command) -> None:
    for name in (".gitignore", "pyproject.toml"):
        (tmp_path / name).write_text("# mine\n")
    printed = sme2("init", tmp_path).out
    assert "kept   .gitignore, as it was" in printed
    assert "kept   pyproject.toml, as it was" in printed
    assert "pytest tests/test_performance.py --sme2-device " in printed
    assert not (tmp_path / "pytest.ini").exists()


def test_a_killed_one_can_be_repeated(tmp_path: Path, sme2: Command) -> None:
    sme2("init", tmp_path)
    whole = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    for name in ("pytest.ini", ".github/workflows/performance.yml"):
        (tmp_path / name).unlink()
    sme2("init", tmp_path)
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == whole


def test_a_folder_that_may_not_be_written_is_named_with_what_to_type(
    tmp_path: Path, sme2: Command
) -> None:
    (tmp_path / "file").write_text("")
    told = sme2("init", tmp_path / "file" / "folder", code=3).err
    assert "cannot be written: Not a directory. Name a folder that you may write to" in told
    assert "--sme2-out" not in told


@pytest.mark.parametrize(
    ("source", "told", "version"),
    [
        ("", None, f"=={__version__}"),
        (
            " @ git+https://x",
            '{"url": "https://x", "vcs_info": {"commit_id": "1f"}}',
            " @ git+https://x@1f",
        ),
        (" @ git+https://x", '{"url": "file:///x", "dir_info": {}}', " @ git+https://x"),
        (" @ git+https://x", None, " @ git+https://x"),
    ],
    ids=["released", "from a repository", "from a folder", "from a wheel"],
)
def test_the_workflow_installs_what_is_installed_here(
    source: str, told: str | None, version: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(init, "SOURCE", source)
    known = SimpleNamespace(read_text=lambda name: {"direct_url.json": told}[name])
    monkeypatch.setattr(importlib.metadata, "distribution", lambda name: known)
    before = f"pip install 'pytest-sme2[export]{source}'"
    assert init.pinned(before) == f"pip install 'pytest-sme2[export]{version}'"
