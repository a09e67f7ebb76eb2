"""A stranger with an empty home reads README and the first page, and types what stands there.

They have Python, git, an emulator and a package index. Their git finds the last commit of this
clone at the project's address, so that what is tested is what is here.
"""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from pytest_sme2.errors import SOURCE
from pytest_sme2.system.qemu import find_qemu
from tests.docs.pages import ROOT, blocks, shell_lines
from tests.docs.shell import typed

README, START, AGENTS = (ROOT / name for name in ("README.md", "docs/index.md", "AGENTS.md"))
# How this machine reaches its package index.
INDEX = ("PIP_", "UV_", "SSL_", "HTTP", "http", "NO_PROXY", "no_proxy", "REQUESTS_")
WORKFLOW = Path(".github/workflows/performance.yml")


@dataclass
class Stranger:
    home: Path
    environment: dict[str, str]

    def type(self, text: str, folder: Path | None = None, code: int = 0) -> str:
        found, printed = typed(text, folder or self.home, self.environment)
        assert found == code, f"{text}\nexited with {found}\n{printed}"
        return printed

    def put_first(self, folder: Path) -> None:
        self.environment["PATH"] = f"{folder}{os.pathsep}{self.environment['PATH']}"


@pytest.fixture(scope="module")
def stranger(programs: Path, tmp_path_factory: pytest.TempPathFactory) -> Stranger:
    """``programs`` skips where there is no emulator or no bash."""
    if not (ROOT / ".git").exists():
        pytest.skip("only a clone can be cloned")
    home = tmp_path_factory.mktemp("stranger")
    kept = {name: value for name, value in os.environ.items() if name.startswith(INDEX)}
    # What is never imported need not be compiled.
    uncompiled = {"PIP_NO_COMPILE": "1", "UV_COMPILE_BYTECODE": "0"}
    added = {"HOME": str(home), "PATH": os.defpath, **uncompiled}
    made = Stranger(home, {**kept, **added})
    (home / "bin").mkdir()
    python = getattr(sys, "_base_executable", sys.executable)
    for name, path in {"python3": python, "qemu-aarch64": find_qemu().path}.items():
        (home / "bin" / name).symlink_to(path)
    made.put_first(home / "bin")
    address = SOURCE.partition("git+")[2]
    for name, value in {
        f"url.file://{ROOT}.insteadOf": address,
        "user.name": "reader",
        "user.email": "reader@example.org",
    }.items():
        command = ["git", "config", "--global", name, value]
        subprocess.run(command, env=made.environment, check=True)
    return made


@pytest.fixture(scope="module")
def clone(stranger: Stranger) -> Path:
    stranger.type(lines(README, "git clone"))
    return stranger.home / "pytest-sme2"


def lines(page: Path, beginning: str) -> str:
    """What stands on the page to be typed, of the first block that begins so."""
    each = ("\n".join(shell_lines(block)) for block in blocks(page) if block.language == "bash")
    return next(text for text in each if text.startswith(beginning))


@pytest.mark.parametrize(
    ("command", "more", "said"),
    [
        # All but the tests themselves.
        ("python3 start.py suite", "-- -n 0 --collect-only -q", "kernels_run[toy_cnn-fp32]"),
        pytest.param("python3 start.py tests", "--notest", "tests: OK", marks=pytest.mark.nightly),
    ],
)
def test_each_of_the_two_commands_installs_what_it_needs(
    command: str, more: str, said: str, stranger: Stranger, clone: Path
) -> None:
    assert said in stranger.type(f"{lines(README, command)} {more}", clone)


@pytest.mark.nightly
def test_from_the_installation_to_a_workflow_that_fails(stranger: Stranger, clone: Path) -> None:
    stranger.type("python3 -m venv env")
    stranger.put_first(stranger.home / "env" / "bin")
    assert lines(README, "pip install") == lines(START, "pip install")
    stranger.type(lines(START, "pip install"))

    project = stranger.home / "project"
    (model,) = (block for block in blocks(README) if block.file)
    (project / model.file).parent.mkdir(parents=True)
    (project / model.file).write_text(model.text, "utf-8")
    stranger.type("git init -q", project)
    stranger.type(lines(START, "sme2 init"), project)
    stranger.type(lines(START, "pytest --update-baselines"), project)

    stranger.type("git clone -q project elsewhere")
    job = yaml.safe_load((project / WORKFLOW).read_text("utf-8"))["jobs"]["structure"]
    *before, compare = (step["run"] for step in job["steps"] if "run" in step)
    for command in (*before, compare):
        stranger.type(command, stranger.home / "elsewhere")
    changed = model.text.replace("torch.nn.ReLU()", "torch.nn.ReLU(), torch.nn.CELU()")
    (project / model.file).write_text(changed, "utf-8")
    stranger.type("git commit -q -a -m 'Change the model'", project)
    stranger.type("git pull -q", stranger.home / "elsewhere")
    assert "REGRESSED" in stranger.type(compare, stranger.home / "elsewhere", code=1)

    # Of an editable installation it is no other package.
    stranger.type(lines(AGENTS, "pip install -e").partition("\n")[0], clone)
    suite = lines(START, "pytest --pyargs pytest_sme2.suite").partition("\n")[0]
    collected = stranger.type(f"{suite} --collect-only -q", project)
    assert "[my_net-fp32]" in collected
    assert "toy_cnn" in stranger.type("sme2 models", clone)
