"""What only a kernel can show: its page size, its handling of SME, and calls that it denies."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from pytest_sme2.cli.main import main
from pytest_sme2.results.run import PAIR, Arm, Artifact, Run, RunRequest, Turn
from pytest_sme2.runners.sme2 import Sme2Runner
from pytest_sme2.targets.base import Job
from pytest_sme2.targets.phone.target import AndroidTarget
from pytest_sme2.trace.etdump import read_etdump
from tests.support import HANGS
from tests.vm.machine import Machine, boot


def request_of(artifact: Artifact, arm: Arm, **choices: Any) -> RunRequest:
    return RunRequest(artifact, arm, timeout_seconds=HANGS, **choices)


def digests(run: Run) -> list[str | None]:
    return [output.sha256 for output in run.outputs]


def test_the_machine_is_like_a_phone(machine: Machine) -> None:
    device = machine.device
    assert device.check("getconf PAGESIZE") == "16384\n"
    assert device.check("getenforce") == "Enforcing\n"
    assert device.check("cat /proc/self/attr/current").rstrip("\0\n") == "u:r:shell"
    assert device.check("id").startswith("uid=2000(shell) gid=2000(shell) groups=")
    assert "hidepid=" in device.check("grep ' /proc ' /proc/mounts")
    assert " sme2 " in device.check("grep -m1 Features /proc/cpuinfo")


def test_calls_that_android_denies_are_denied(machine: Machine) -> None:
    answers = dict(
        line.split(" ", 1) for line in machine.device.check("/vendor/bin/denied").splitlines()
    )
    assert answers == {
        "execmem": "Permission denied",
        "execstack": "Permission denied",
        "mkfifo": "Permission denied",
        "pipe": "allowed",
    }


def test_both_arms_run_and_show_what_they_ran(
    target: AndroidTarget, bundle: Sme2Runner, toy: Artifact, tmp_path: Path
) -> None:
    assert target.capabilities().sme2
    operators = {}
    for arm in PAIR:
        request = request_of(toy, arm, warmup=0, runs=1, traced=True)
        run = target.run(bundle, request, tmp_path / str(arm))
        assert run.sme2_effective is (arm is Arm.ON)
        assert run.vector_bits == 512
        assert run.etdump is not None
        operators[arm] = {name for name in read_etdump(run.etdump).names if "PF32" in name}
    assert operators[Arm.ON]
    assert not operators[Arm.OFF]


def test_two_processes_share_a_core_and_keep_their_own_matrices(
    target: AndroidTarget, bundle: Sme2Runner, toy: Artifact, tmp_path: Path
) -> None:
    """The kernel saves ZA and the streaming registers when it switches between them."""
    request = request_of(toy, Arm.ON, warmup=0, runs=6, cpus=(1,))
    alone = target.run(bundle, request, tmp_path / "alone")
    places = [tmp_path / "first", tmp_path / "second"]
    with ThreadPoolExecutor(2) as pool:
        both = list(pool.map(lambda place: target.run(bundle, request, place), places))
    assert [digests(run) for run in both] == [digests(alone)] * 2


@pytest.mark.parametrize("threads", [1, 2])
def test_cycles_are_counted_where_the_kernel_lets_a_shell(
    target: AndroidTarget, bundle: Sme2Runner, toy: Artifact, tmp_path: Path, threads: int
) -> None:
    """QEMU's cores have a counter that runs at 1 GHz; what the kernel does is not counted."""
    run = target.run(bundle, request_of(toy, Arm.ON, runs=20, threads=threads), tmp_path)
    assert run.uncounted == ""
    assert run.clock_ghz is not None
    assert 0.2 < run.clock_ghz < 1.05


def test_turns_need_nothing_that_is_denied(
    target: AndroidTarget, bundle: Sme2Runner, toy: Artifact, tmp_path: Path
) -> None:
    jobs = [
        Job(bundle, request_of(toy, arm, warmup=0, runs=4, turn=Turn(2, lead=1)), tmp_path / arm)
        for arm in PAIR
    ]
    runs = target.run_in_turns(jobs)
    assert [len(run.wall_ns) for run in runs] == [4, 4]
    assert [run.sme2_effective for run in runs] == [True, False]


def test_a_model_runs_from_its_export_to_its_report(
    machine: Machine, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    device = machine.device
    where = ["--phone", f"adb-server={device.server}", "--serial", device.serial]
    models = ["--models-folder", str(Path(__file__).parents[2] / "models")]
    words = ["run", "toy_cnn", "--variant", "fp32", "--device", "android", *where, *models]
    assert main([*words, "--out", str(tmp_path)]) == 0, capsys.readouterr()
    assert "6 of 6" in capsys.readouterr().out


def test_the_suite_passes(machine: Machine, tmp_path: Path) -> None:
    device, here = machine.device, Path(__file__).parents[2]
    where = [f"--sme2-phone=adb-server={device.server}", f"--sme2-serial={device.serial}"]
    where.append(f"--sme2-out={tmp_path}")
    chosen = ["--sme2-models=toy_cnn", "--sme2-variants=fp32,int8"]
    command = [sys.executable, "-m", "pytest", "tests/performance", "-q", "-p", "no:cacheprovider"]
    command += ["--device=android", *where, *chosen]
    done = subprocess.run(command, cwd=here, capture_output=True, text=True, timeout=HANGS)
    assert done.returncode == 0, done.stdout[-5000:]
    assert not re.search(r"\b[1-9]\d* (?:failed|error)", done.stdout)


def test_the_doctor_knows_the_machine(
    machine: Machine, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    device, out = machine.device, tmp_path / "phone.json"
    where = ["--phone", f"adb-server={device.server}", "--serial", device.serial]
    code = main(["doctor", "--device", "android", *where, "--out", str(out)])
    assert code == 0, capsys.readouterr().out
    found = json.loads(out.read_text("utf-8"))["machine"]
    facts = found["machine"]
    assert facts["page size"] == "16384 bytes"
    assert device.check("getenforce").strip() == "Enforcing"
    assert found["arms"]["on"]["vector_bits"] == 512
    assert found["proven"] is True


def test_a_kernel_that_hides_sme_is_told_apart(tmp_path: Path) -> None:
    with boot(tmp_path, options="arm64.nosme") as machine:
        target = AndroidTarget(machine.device)
        target.prepare()
        able = target.capabilities()
        target.restore()
    assert not able.sme2
    assert "its kernel shows no SME2 on its SoC" in able.reason
    assert "16k" in able.reason
