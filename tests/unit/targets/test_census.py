"""What is made of the emulator's log, with a stand-in for the emulator that writes one."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path

import pytest

from pytest_sme2.errors import StorageError
from pytest_sme2.results import Arm, Artifact, RunRequest
from pytest_sme2.runners.sme2 import Sme2Runner
from pytest_sme2.system.qemu import Qemu
from pytest_sme2.targets.census import observed_run
from pytest_sme2.targets.emulated import EmulatedTarget

WHOLE = "IN: kai_run_x_sme2_mopa\n0x0000000000001000:  d503201f  nop\n\n81 exit_group(0)\n"
CUT = "IN: kai_run_x_sme2_mopa\n0x0000000000001000:  d503201f  nop\n"

PROGRAM = """#!{python}
import json, sys
from pathlib import Path

words = sys.argv[1:]
log, result = (words[words.index(name) + 1] for name in ("-D", "--json"))
assert not Path(log).exists()
Path(log).write_text({log!r})
Path(result).write_text(json.dumps({{
    "schema": 1, "sme2": {{"requested": "on", "effective": True}}, "cpu_features": [],
    "load_ns": 1, "warmup_wall_ns": [], "wall_ns": [1], "cpu_ns": [1],
    "peak_rss_load_bytes": None, "peak_rss_bytes": None, "outputs": [],
}}))
"""


def target(folder: Path, log: str) -> EmulatedTarget:
    program = folder / "qemu-aarch64"
    program.write_text(PROGRAM.format(python=sys.executable, log=log))
    program.chmod(0o755)
    return EmulatedTarget(Qemu(program, "11.1"))


@pytest.fixture
def runner(tmp_path: Path) -> Sme2Runner:
    folder = tmp_path / "runner"
    folder.mkdir()
    return Sme2Runner("wheel", "linux-aarch64", "1.5.1", folder)


@pytest.fixture
def request_on(tmp_path: Path) -> RunRequest:
    pte = tmp_path / "toy.pte"
    artifact = Artifact("toy", "fp32", tmp_path, pte, "", (), ())
    return RunRequest(artifact, Arm.ON, warmup=0, runs=1)


@pytest.mark.parametrize("name", ["out", "100%d"])
def test_the_log_is_read_and_removed(
    tmp_path: Path, runner: Sme2Runner, request_on: RunRequest, name: str
) -> None:
    folder = tmp_path / name
    folder.mkdir()
    # What a killed run left must not pass for this one's.
    (folder / "qemu.log").write_text("IN: kai_run_old_sme2\n0x0: \n")
    if "%" in name:
        (folder / "qemu.log").unlink()
    census = observed_run(target(tmp_path, WHOLE), runner, request_on, folder).census
    assert [kernel.name for kernel in census.kernels] == ["kai_run_x_sme2_mopa"]
    assert not (folder / "qemu.log").exists()


def test_a_log_that_was_cut_short_says_nothing_about_kernels(
    tmp_path: Path, runner: Sme2Runner, request_on: RunRequest
) -> None:
    with pytest.raises(StorageError, match=r"qemu\.log.*cut short.*Free space in .*out"):
        observed_run(target(tmp_path, CUT), runner, request_on, tmp_path / "out")
    assert not (tmp_path / "out" / "qemu.log").exists()
    # More runs behind the call than usual do not make it refuse.
    longer = dataclasses.replace(request_on, seed=1)
    late = WHOLE + "82 futex(0x1) = 0\n" * 100
    observed_run(target(tmp_path, late), runner, longer, tmp_path / "out")
