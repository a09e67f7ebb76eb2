"""Which commit or version of ExecuTorch made a model worse, as docs/history.md finds it."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from pytest_sme2.system.qemu import Qemu
from tests.support.git import git
from tests.support.toy_project import export_here

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


def commit_all(folder: Path, models: list[str]) -> None:
    """A repository with a commit for each text of the model."""
    folder.mkdir()
    git(folder, "init", "-q", "-b", "main")
    file = folder / "models" / "small" / "model.py"
    file.parent.mkdir(parents=True)
    for number, text in enumerate(models, 1):
        file.write_text(text, "utf-8")
        (folder / "notes").write_text(str(number))
        git(folder, "add", "notes", "models")
        git(folder, "commit", "-q", "-m", f"change {number}")


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Nine commits: the fifth has a model that fails, the seventh makes a layer wider."""
    # In CI a model that fails is red, too, for what its baseline promises.
    monkeypatch.delenv("CI", raising=False)
    good, wide = MODEL.replace("WIDTH", "16"), MODEL.replace("WIDTH", "32")
    broken = good.replace("torch.ones", "torch.no_such_function")
    commit_all(tmp_path / "here", [*[good] * 4, broken, good, *[wide] * 3])
    return tmp_path / "here"


def test_git_finds_the_commit_and_passes_over_one_that_cannot_be_judged(
    repository: Path, qemu: Qemu
) -> None:
    judge = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--device=emulated"]
    judge += ["--pyargs", "pytest_sme2.suite", "--sme2-models=small"]
    judge += ["--sme2-baseline-dir=../good", "--sme2-out=../out"]
    for commit in ("main", "main~8"):
        git(repository, "checkout", "-q", commit)
        export_here(repository / "models", name="small")
    subprocess.run([*judge, "--update-baselines"], check=True, cwd=repository)
    culprit = git(repository, "rev-parse", "main~2")
    git(repository, "bisect", "start", "main", "HEAD")
    told = git(repository, "bisect", "run", *judge)
    assert f"{culprit} is the first bad commit" in told
    log = git(repository, "bisect", "log")
    assert "# skip:" in log
    assert "change 5" in log.partition("# skip:")[2].splitlines()[0]
    assert log.count("# bad:") + log.count("# good:") >= 4


LOOP = """
for version in 1.5.1 1.5.0; do
  {judge} -k against --against executorch==$version || break
done
echo "the last was $version"
"""


@pytest.mark.nightly
def test_versions_of_executorch_are_tried_in_a_loop(repository: Path, qemu: Qemu) -> None:
    judge = f"{shlex.quote(sys.executable)} -m pytest -q -p no:cacheprovider --device=emulated"
    judge += " --pyargs pytest_sme2.suite --sme2-models=small"
    told = subprocess.run(
        ["bash", "-c", LOOP.format(judge=judge)],
        cwd=repository, check=True, capture_output=True, text=True,
    ).stdout  # fmt: skip
    assert "cost (on) against executorch 1.5.1" in told
    assert told.endswith("the last was 1.5.0\n")
