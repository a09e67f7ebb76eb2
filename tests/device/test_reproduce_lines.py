"""Every command that the product prints to see a result again is run, from a user's project."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from pytest_sme2.system.cache import cache_folder
from tests.support.toy_project import export_here

CACHE = cache_folder()
ROOT = Path(__file__).parents[2]
SME2 = "import sys; from pytest_sme2.cli.main import main; sys.exit(main())"
OWN = """
def test_own(sme2_gate):
    sme2_gate.check_coverage()
"""


def typed(command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """The command as somebody types it, with the programs of this Python."""
    program, *words = shlex.split(command)
    start = {"pytest": ["-m", "pytest"], "sme2": ["-c", SME2]}[program]
    return subprocess.run(
        [sys.executable, *start, *words],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, emulated_runner: object) -> Path:
    """A repository with a model, a test in a folder of its own, and two lines of ini."""
    monkeypatch.setenv("SME2_CACHE_DIR", str(CACHE))
    shutil.copytree(ROOT / "models" / "toy_cnn", tmp_path / "nets" / "toy_cnn")
    for variant in ("fp32", "fp16"):
        export_here(tmp_path / "nets", variant)
    (tmp_path / "checks").mkdir()
    (tmp_path / "checks" / "test_own.py").write_text(OWN)
    (tmp_path / "pytest.ini").write_text(
        "[pytest]\nsme2_models = nets\nsme2_device = emulated\naddopts = -p no:cacheprovider\n"
    )
    return tmp_path


def printed(text: str, word: str) -> set[str]:
    """The commands that a run's output gives; in CI, pytest's short summary repeats them."""
    return set(re.findall(rf"Reproduce: (pytest .*{word}.*)$", text, re.MULTILINE))


def test_a_failed_test_says_how_to_run_it_again(project: Path) -> None:
    limits = "--sme2-variants=fp16 --sme2-limit=min_coverage=100%"
    folder = project / "checks"
    text = typed(f"pytest {limits}", folder).stdout
    (line,) = printed(text, "test_own")
    assert "--sme2-limit=min_coverage=100%" in line
    again = typed(line, folder)
    assert "1 failed" in again.stdout, again.stdout
    assert printed(again.stdout, "test_own") == {line}


def test_a_run_directory_says_how_to_measure_it_again(project: Path) -> None:
    first = typed("sme2 run toy_cnn --models-folder nets --device emulated", project)
    assert first.returncode == 0, first.stdout
    (manifest,) = (project / "sme2-out").rglob("manifest.json")
    document = json.loads(manifest.read_text())
    assert re.fullmatch("[0-9a-f]{40}", document["executorch"]["commit"])
    program = Path(document["program"]["path"])
    assert program.suffix == ".pte"
    again = typed(document["reproduce"], project)
    assert again.returncode == 0, again.stdout
    # The same program in a file of the profiling kit's form.
    entry = {"runner_path": "cmake-out/mac/executor_runner", "runs": 1, "warmup": 0}
    plan = {
        "model": str(program),
        "output_root": "out/runs/mac",
        "experiments": [
            {"name": f"mac_sme2_{arm}", "mode": "timing", "threads": [1], **entry}
            for arm in ("on", "off")
        ],
        "analysis": {"compare_pairs": []},
    }
    (project / "kit.json").write_text(json.dumps(plan))
    done = typed("sme2 run --config kit.json --device emulated", project)
    assert done.returncode == 0, done.stdout
    assert "executor_runner: the wheel's runner runs it" in done.stdout
    document = json.loads((project / "out/runs/mac/manifest.json").read_text())
    assert document["reproduce"] == "sme2 run --config kit.json --device emulated"
    assert document["program"]["path"] == str(program)
    assert {entry["experiment"] for entry in document["results"]} == {"mac_sme2_on", "mac_sme2_off"}
    assert all("latency_ms" not in entry["metrics"] for entry in document["results"])
    analyzed = typed("sme2 report analyze out/runs/mac", project)
    assert analyzed.returncode == 0
    assert not re.search(r"median|latency|\d (ms|s)\b", analyzed.stdout), analyzed.stdout
