"""``sme2 bisect`` over commits of a real repository and real wheels, on the emulator and here."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from pytest_sme2.session.run_directory import find_records, read_record
from pytest_sme2.system.qemu import Qemu
from tests.support import Command
from tests.support.git import git

PROGRAMS = Path(__file__).parents[1] / "data" / "programs"
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
    good, wide = MODEL.replace("WIDTH", "16"), MODEL.replace("WIDTH", "32")
    broken = good.replace("torch.ones", "torch.no_such_function")
    commit_all(tmp_path, [*[good] * 4, broken, good, *[wide] * 3])
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_commit_is_found_and_the_search_goes_on_where_it_was(
    repository: Path, qemu: Qemu, sme2: Command
) -> None:
    words = ["bisect", "small", "--good", "HEAD~8", "--qemu"]
    printed = sme2(*words, qemu.path, code=1).out
    culprit = git(repository, "rev-parse", "--short=12", "HEAD~2")
    first, subject, *_ = printed.splitlines()
    assert first.startswith(f"{culprit} made small-fp32 worse: instructions with SME2 on ")
    assert subject == "  change 7"
    assert "cannot be measured: Model 'small'" in printed
    assert f"git checkout {culprit} && sme2 run small --variant fp32" in printed
    # Nothing of it shows up in the repository.
    assert git(repository, "status", "--porcelain") == ""
    # All is known by now, so no emulator is needed. What failed is tried again.
    found = json.loads(sme2(*words, repository / "no-emulator", "--json", code=1).out)
    assert found["first_bad"] == git(repository, "rev-parse", "HEAD~2")
    assert found["last_good"] == git(repository, "rev-parse", "HEAD~3")
    assert (found["figure"], found["changes"]) == ("cost", 9)
    printed = sme2("bisect", "small", "--good", "HEAD~8", "--bad", "HEAD~3").out
    assert "small-fp32: nothing is worse at " in printed


def test_a_program_that_git_tracks_is_searched_from_the_commit_that_has_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sme2: Command
) -> None:
    git(tmp_path, "init", "-q", "-b", "main")
    monkeypatch.chdir(tmp_path)
    # The first commit has no program, the fourth another one, with two that change nothing of it.
    programs = (None, "toy_int8", "toy_int8", "mobile_fp16", "mobile_fp16")
    for number, name in enumerate(programs, 1):
        if name is not None:
            shutil.copy(PROGRAMS / f"{name}.pte", tmp_path / "net.pte")
            git(tmp_path, "add", "net.pte")
        git(tmp_path, "commit", "-q", "--allow-empty", "-m", f"change {number}")
    printed = sme2("bisect", "net.pte", "--good", "HEAD~4", "--figure", "size", code=1).out
    culprit = git(tmp_path, "rev-parse", "--short=12", "HEAD~1")
    assert printed.startswith(f"{culprit} made net.pte worse: bytes of the program")
    told = sme2("bisect", "nothing", "--good", "HEAD~4", code=2).err
    assert "which --good names, cannot be measured: The models folder" in told
    assert "change 3" not in told, "only the ends were looked at"
    (tmp_path / "other.pte").write_bytes(b"")
    told = sme2("bisect", "other.pte", "--good", "HEAD~4", code=2).err
    assert "other.pte is not a file of this repository" in told


# As the installed package says it is: what a version changes in an export shows like this.
BY_VERSION = "import importlib.metadata\n" + MODEL.replace(
    "WIDTH", "(32 if importlib.metadata.version('executorch') == '1.5.1' else 16)"
)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """No repository: versions of a package need none."""
    made = tmp_path / "models" / "small"
    made.mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    return made


@pytest.mark.nightly
def test_the_version_is_found_and_one_that_does_not_exist_is_passed_over(
    folder: Path, qemu: Qemu, sme2: Command
) -> None:
    (folder / "model.py").write_text(BY_VERSION, "utf-8")
    words = ["bisect", "small", "--good", "executorch==1.5.0", "--bad", "executorch==1.5.1"]
    words += ["--versions", "1.5.0.99"]
    printed = sme2(*words, "--qemu", qemu.path, code=1).out
    assert printed.startswith("executorch==1.5.1 made small-fp32 worse: instructions with SME2 on ")
    assert "1 version between could not be judged" in printed
    assert "cannot be measured: executorch==1.5.0.99 could not be installed: ERROR" in printed
    assert "Before it: PYTHONPATH=" in printed
    # Each was exported by its own version, and ran on its own runtime.
    names = ("executorch-1.5.0", "executorch-1.5.1")
    old, new = (
        read_record(next(find_records(Path("sme2-bisect", name)))).measured for name in names
    )
    assert (old.versions["executorch"], new.versions["executorch"]) == ("1.5.0", "1.5.1")
    assert old.runtime != new.runtime
    # All is known by now, but for a model that has changed.
    found = json.loads(sme2(*words, "--qemu", "no-emulator", "--json", code=1).out)
    assert found["first_bad"] == "executorch-1.5.1"
    (folder / "model.py").write_text(BY_VERSION.replace("else 16", "else 24"), "utf-8")
    assert "no-emulator" in sme2(*words, "--qemu", "no-emulator", code=3).err


def test_a_slower_commit_is_found_by_pairs_on_this_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sme2: Command
) -> None:
    """So much slower that no load hides it; one commit before changes the program a little."""
    widths = (512, 520, 50000, 50000)
    commit_all(tmp_path, [MODEL.replace("WIDTH", str(width)) for width in widths])
    monkeypatch.chdir(tmp_path)
    words = ["bisect", "small", "--good", "HEAD~3", "--device", "linux", "--budget", "5s"]
    first, subject, *rest = sme2(*words, code=1).out.splitlines()
    culprit = git(tmp_path, "rev-parse", "--short=12", "HEAD~1")
    assert first.startswith(f"{culprit} made small-fp32 worse: latency with SME2 ")
    assert subject == "  change 3"
    assert any("  good  change 2" in line for line in rest)
    assert any(line.startswith("See it run: git checkout") for line in rest)
    # Goes on where it was: nothing is measured again, so nothing can come out differently.
    again = json.loads(sme2(*words, "--json", code=1).out)
    assert (again["figure"], again["first_bad"][:12]) == ("latency", culprit)


def test_wrong_words_are_refused(repository: Path, sme2: Command) -> None:
    for words, message in (
        ("small --good HEAD~8 --versions 1.5.0", "--versions belongs to the versions of a"),
        ("small --good HEAD~8 --bad torch==2.13.0", "--good does not"),
        ("small --good torch==2.13.0 --bad HEAD", "'HEAD' is not a version, and --good names"),
        ("small --good numpy==2.0", "Choose one of: executorch, torch, torchao"),
        ("small --good HEAD~8 --figure latency", "Name a device, as in --device linux"),
        ("small --good HEAD~8 --models-folder ..", "is not in this repository"),
        ("some.pte --good HEAD~8", "no commit changes it"),
        ("some.pte --good torch==2.0 --bad torch==2.1", "only the runner of executorch makes a"),
        ("other --good HEAD~8", "--good names, cannot be measured: 'other' is not a model"),
    ):
        assert message in sme2("bisect", *words.split(), code=2).err
