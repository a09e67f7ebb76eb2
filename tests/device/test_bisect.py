"""``sme2 bisect`` over the commits of a real repository, with the real emulator."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pytest_sme2.cli.main import main
from pytest_sme2.system.qemu import Qemu
from tests.support.git import git

MODEL = """
import torch
from pytest_sme2 import register_model

@register_model("small", variants=("fp32",))
class Small:
    def get_eager_model(self):
        return torch.nn.Sequential(torch.nn.Linear(16, WIDTH), torch.nn.Linear(WIDTH, 8))

    def get_example_inputs(self):
        return (torch.ones(4, 16),)
"""


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Nine commits: the fifth has a model that fails, the seventh makes a layer wider."""
    git(tmp_path, "init", "-q", "-b", "main")
    folder = tmp_path / "models" / "small"
    folder.mkdir(parents=True)
    for number in range(1, 10):
        text = MODEL.replace("WIDTH", "32" if number >= 7 else "16")
        if number == 5:
            text = text.replace("torch.ones", "torch.no_such_function")
        (folder / "model.py").write_text(text, "utf-8")
        (tmp_path / "notes").write_text(str(number))
        git(tmp_path, "add", "notes", "models")
        git(tmp_path, "commit", "-q", "-m", f"change {number}")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_commit_is_found_and_the_search_goes_on_where_it_was(
    repository: Path, qemu: Qemu, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["bisect", "small", "--good", "HEAD~8", "--qemu"]
    assert main([*words, str(qemu.path)]) == 1
    printed = capsys.readouterr().out
    culprit = git(repository, "rev-parse", "--short=12", "HEAD~2")
    first, subject, *_ = printed.splitlines()
    assert first.startswith(f"{culprit} made small-fp32 worse: instructions with SME2 on ")
    assert subject == "  change 7"
    assert "cannot be measured: Model 'small'" in printed
    assert f"git checkout {culprit} && sme2 run small --variant fp32" in printed
    # Nothing of it shows up in the repository.
    assert git(repository, "status", "--porcelain") == ""
    # All is known by now, so no emulator is needed. What failed is tried again.
    assert main([*words, str(repository / "no-emulator"), "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert found["first_bad"] == git(repository, "rev-parse", "HEAD~2")
    assert found["last_good"] == git(repository, "rev-parse", "HEAD~3")
    assert (found["figure"], found["commits"]) == ("cost", 9)
    assert main(["bisect", "small", "--good", "HEAD~8", "--bad", "HEAD~3"]) == 0
    assert "nothing is worse at HEAD~3 than at HEAD~8" in capsys.readouterr().out


def test_wrong_words_are_refused(repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bisect", "small", "--good", "HEAD~8", "--models-folder", ".."]) == 2
    assert "is not in this repository" in capsys.readouterr().err
    assert main(["bisect", "other", "--good", "HEAD~8"]) == 2
    assert "which --good names, cannot be measured: 'other' is not a model" in (
        capsys.readouterr().err
    )
