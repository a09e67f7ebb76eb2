"""The kernels a real program really runs, in a real emulator."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from pytest_sme2.errors import RunError
from pytest_sme2.results.evidence import KernelCensus, KernelFamily
from pytest_sme2.results.run import Arm, RunRequest
from pytest_sme2.system.platforms import LINUX_AARCH64, host_platform
from pytest_sme2.targets.emulated import collect_census
from pytest_sme2.trace.kernel_log import census_from_qemu_log
from tests.device import provision
from tests.support import Command

VARIANTS = ("fp32", pytest.param("fp16", marks=pytest.mark.nightly), "int8")


def census(variant: str, arm: Arm, folder: Path, **choices: bool) -> KernelCensus:
    request = RunRequest(provision.artifact(variant), arm)
    return collect_census(provision.emulator(**choices), provision.runner(), request, folder)


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_runners_switch_selects_what_a_cpu_without_sme2_does(
    tmp_path: Path, variant: str
) -> None:
    without = census(variant, Arm.OFF, tmp_path / "cpu")
    hidden = census(variant, Arm.OFF, tmp_path / "runner", switch_cpu=False)
    assert {kernel.name: kernel.family for kernel in hidden.kernels} == {
        kernel.name: kernel.family for kernel in without.kernels
    }
    # Where the CPU has SME2 and the runner alone hides it: none in the whole run.
    assert hidden.streaming == without.streaming == 0
    assert without.of(KernelFamily.NEON)
    assert not without.of(KernelFamily.SME)
    assert not without.of(KernelFamily.SME2)


@pytest.mark.parametrize("variant", VARIANTS)
def test_sme2_kernels_run_when_it_is_on(tmp_path: Path, variant: str) -> None:
    found = census(variant, Arm.ON, tmp_path)
    assert found.blocks > 1000
    assert found.streaming > 0
    matrix = [kernel.name for kernel in found.of(KernelFamily.SME2)]
    assert any("matmul" in name for name in matrix), matrix
    assert list(tmp_path.glob("*.log")), "the run's own log is kept"


def test_a_device_without_xnnpacks_log_says_what_to_build(tmp_path: Path) -> None:
    request = RunRequest(provision.artifact("int8"), Arm.OFF)
    device = provision.OtherDevice()
    with pytest.raises(RunError, match="sme2 build --variant xnnlog"):
        collect_census(device, provision.runner(), request, tmp_path)  # type: ignore[arg-type]


def test_the_command_takes_a_program_and_speaks_json(tmp_path: Path, sme2: Command) -> None:
    provision.emulator()
    provision.runner()
    words = [provision.artifact("int8").pte, "--json", "--out", tmp_path]
    document = json.loads(sme2("run", "--kernels", *words).out)
    assert document["on"]["source"] == "emulator"
    assert any("_sme2_" in kernel["name"] for kernel in document["on"]["kernels"])
    assert {kernel["family"] for kernel in document["off"]["kernels"]} <= {"neon", "other"}


def test_a_program_that_carries_its_kernels_itself(tmp_path: Path) -> None:
    """As a stock runner does that is linked statically: no loader says where it is mapped."""
    compiler = shutil.which("aarch64-linux-gnu-gcc") or shutil.which("gcc")
    if compiler is None or (host_platform() != LINUX_AARCH64 and "aarch64" not in compiler):
        pytest.skip("no compiler for aarch64")
    source = tmp_path / "main.c"
    source.write_text(
        "__attribute__((noinline)) int xnn_f32_gemm_minmax_ukernel_6x8__neonfma(int x)"
        "{ return x * 3; }\n"
        "__attribute__((noinline)) int xnn_pf32_gemm_minmax_ukernel_32x32__neonsme2(int x)"
        "{ return x * 5; }\n"
        "int main(int count, char** words) { return count > 9\n"
        "  ? xnn_pf32_gemm_minmax_ukernel_32x32__neonsme2(count)\n"
        "  : xnn_f32_gemm_minmax_ukernel_6x8__neonfma(count) - 3; }\n"
    )
    program, log = tmp_path / "program", tmp_path / "log"
    subprocess.run([compiler, "-O1", "-static", source, "-o", program], check=True)
    launcher = provision.emulator(options=("-d", "in_asm,strace", "-D", str(log)))
    subprocess.run([*launcher.launcher(Arm.OFF), program], check=True)
    found = census_from_qemu_log(log, [program], Arm.OFF)
    assert [kernel.name for kernel in found.kernels] == ["xnn_f32_gemm_minmax_ukernel_6x8__neonfma"]
