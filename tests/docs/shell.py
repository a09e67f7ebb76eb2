"""Types commands as a reader would: in bash, in a project of their own, on the shared cache."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pytest_sme2.system.cache import cache_folder
from tests.docs.pages import ROOT, Block, shell_lines
from tests.support.nested import without_other_plugins

# Only for a command that hangs: on a busy machine minutes become many.
TIMEOUT_SECONDS = 3600
# Of the run that this is part of; a reader's shell has none of it.
_OURS = ("PYTEST_", "GITHUB_", "COVERAGE_", "COV_CORE_")


@dataclass(frozen=True)
class Shell:
    """A folder to work in, and a PATH on which this Python's programs come first."""

    folder: Path
    programs: Path

    def follow(self, blocks: list[Block]) -> str:
        """Write the files and run the commands, in order; all that was printed."""
        printed = []
        for block in blocks:
            if block.file is not None:
                path = self.folder / block.file
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(block.text, encoding="utf-8")
            elif "run" in block.flags:
                code, output = self.run("\n".join(shell_lines(block)))
                assert code == 0, f"{block} exited with {code}\n{block.text}\n{output}"
                printed.append(output)
        return "".join(printed)

    def run(self, text: str) -> tuple[int, str]:
        environment = {
            name: value for name, value in os.environ.items() if not name.startswith(_OURS)
        }
        environment["PATH"] = f"{self.programs}{os.pathsep}{environment['PATH']}"
        environment["PYTEST_ADDOPTS"] = without_other_plugins()
        environment["SME2_CACHE_DIR"] = str(cache_folder())
        for who in ("AUTHOR", "COMMITTER"):
            environment |= {f"GIT_{who}_NAME": "reader", f"GIT_{who}_EMAIL": "reader@example.org"}
        return typed(text, self.folder, environment)


def typed(text: str, folder: Path, environment: Mapping[str, str]) -> tuple[int, str]:
    """The exit code and what was printed, of the first command that failed or of all."""
    process = subprocess.Popen(
        ["bash", "-euo", "pipefail", "-c", text],
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        output, _ = process.communicate(timeout=TIMEOUT_SECONDS)
    except BaseException:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        raise
    return process.returncode, output


def make_programs(folder: Path) -> Path:
    """``sme2``, ``pytest`` and ``python`` of the Python that runs these tests."""
    folder.mkdir()
    entry = "import sys; from pytest_sme2.cli.main import main; sys.exit(main())"
    for name, arguments in {"python": "", "sme2": f"-c '{entry}'", "pytest": "-m pytest"}.items():
        path = folder / name
        path.write_text(f'#!/bin/sh\nexec "{sys.executable}" {arguments} "$@"\n', encoding="utf-8")
        path.chmod(0o755)
    return folder


SAMPLE = ROOT / "docs" / "sample" / "emulated" / "toy_cnn-fp16" / "runs" / "emulated"
ETRECORD = ROOT / "tests" / "data" / "etrecords"
PROGRAM = ROOT / "tests" / "data" / "programs" / "toy_fp16.pte"


def put_results(folder: Path) -> None:
    """What pages take for granted that came from a run: dumps, and run directories of devices."""
    on, off = (SAMPLE / f"emulated_sme2_{arm}" / "run.etdump" for arm in ("on", "off"))
    for name, dump in {"toy": on, "on": on, "off": off, "before": off, "after": on}.items():
        shutil.copy(dump, folder / f"{name}.etdump")
    shutil.copy(PROGRAM, folder / "toy.pte")
    shutil.copy(ETRECORD / "toy.etdump", folder / "run.etdump")
    shutil.copy(ETRECORD / "toy.etrecord", folder / "toy_cnn_xnnpack_fp16.pte.etrecord")
    for name in ("out_toy/runs/mac", "out-mac", "out-phone"):
        shutil.copytree(SAMPLE, folder / name)


def make_project(folder: Path) -> Path:
    """What a reader starts from: nothing of their own yet but what a device left."""
    folder.mkdir()
    subprocess.run(["git", "init", "-q", folder], check=True)
    put_results(folder)
    return folder


def make_source(folder: Path) -> Path:
    """The parts of the project's own source that the pages work with, and one small model."""
    folder.mkdir()
    for name in ("models/toy_cnn", "tests/performance", "skills", "docs/sample"):
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / name, folder / name, ignore=ignored)
    shutil.copy(ROOT / "pyproject.toml", folder)
    put_results(folder)
    return folder
