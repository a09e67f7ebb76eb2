"""The sweep with real programs, a real emulator and kernels that are broken on purpose."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from pytest_sme2.export.server import export_environment
from pytest_sme2.results import Arm
from pytest_sme2.runners.sme2 import wheel_runner
from pytest_sme2.system.qemu import DEFAULT_CPU, find_qemu
from pytest_sme2.targets.emulated import EmulatedTarget
from tests.support.planted_kernels import DEPTH_TAIL, EXECUTORCH, planted
from tools.many_exports import ManyExports
from tools.sweep.programs import CONVOLUTION, LINEAR, Layer, RandomProgram, draw
from tools.sweep.running import Difference, Sweep
from tools.sweep.script import script

ODD_DEPTH = RandomProgram(3, "fp32", (17, 33), (Layer(LINEAR, 24),))

# Of a maintainer's tool.
pytestmark = pytest.mark.nightly


@pytest.fixture(scope="module")
def exports(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ManyExports]:
    """One process for all of them: importing torch takes longer than an export."""
    log = tmp_path_factory.mktemp("sweep") / "export.log"
    made = ManyExports("tools.sweep.networks", log, lambda line: None)
    yield made
    made.close()


def test_it_finds_a_wrong_tail_and_nothing_in_kernels_as_they_are(
    exports: ManyExports, tmp_path: Path
) -> None:
    target = EmulatedTarget(find_qemu())
    runner = wheel_runner(target.platform, executorch=EXECUTORCH)
    programs = [ODD_DEPTH, dataclasses.replace(ODD_DEPTH, shape=(17, 32))]
    whole = Sweep(exports, [target], runner)
    artifact, problem = whole.exported(programs, tmp_path / "program")
    assert artifact is not None, problem
    assert whole.compared(programs, artifact, tmp_path / "whole") == []
    broken = Sweep(exports, [target], planted(runner, DEPTH_TAIL, tmp_path / "runner"))
    found = broken.compared(programs, artifact, tmp_path / "broken")
    assert [(entry.program, entry.kind) for entry in found] == [(ODD_DEPTH, "on is not off")]


def test_fp16_convolutions_are_wrong_with_vectors_of_128_bits(
    exports: ManyExports, tmp_path: Path
) -> None:
    """What the sweep found: docs/findings.md says so, and must be changed once this fails."""
    program = RandomProgram(1, "fp16", (1, 4, 4, 4), (Layer(CONVOLUTION, 4, (3, 3)),))
    qemu = find_qemu()
    targets = [
        EmulatedTarget(qemu, cpu=dataclasses.replace(DEFAULT_CPU, vector_bits=bits))
        for bits in (512, 256, 128)
    ]
    sweep = Sweep(exports, targets, wheel_runner(targets[0].platform))
    artifact, problem = sweep.exported([program], tmp_path / "program")
    assert artifact is not None, problem
    found = sweep.compared([program], artifact, tmp_path / "runs")
    assert [entry.cpu for entry in found] == ["strict:128"]


def test_a_script_exports_what_the_sweep_ran(exports: ManyExports, tmp_path: Path) -> None:
    program = draw(0, 5, "int8 per channel")
    target = EmulatedTarget(find_qemu())
    sweep = Sweep(exports, [target], wheel_runner(target.platform))
    artifact, problem = sweep.exported([program], tmp_path / "program")
    assert artifact is not None, problem
    found = Difference(program, "on is not off", "strict", Arm.ON, "largest error 1")
    (tmp_path / "difference.py").write_text(script(found, "difference", EXECUTORCH))
    done = subprocess.run(
        [sys.executable, "difference.py"],
        cwd=tmp_path,
        env=export_environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert "largest error on this machine" in done.stdout, done.stderr[-2000:]
    for theirs, ours in (
        ("difference.input_0.bin", "input_0.bin"),
        ("difference.reference_0.bin", "reference_0.bin"),
    ):
        assert (tmp_path / theirs).read_bytes() == (artifact.folder / ours).read_bytes()
    assert (tmp_path / "difference.pte").stat().st_size == artifact.pte.stat().st_size
