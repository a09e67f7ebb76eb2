"""The runner against a source tree's install prefix, whose targets have bare names.

No ExecuTorch source tree is at hand here, so the prefix is made of the wheel's own libraries and
headers under the names a source build installs them by. With cpuinfo's header (Debian's
libcpuinfo-dev) the switch goes through ``cpuinfo_isa``, as it does on Android.
"""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path

import pytest

from pytest_sme2.errors import Sme2Error
from pytest_sme2.profile.categories import classify
from pytest_sme2.results import PAIR, Arm, Artifact, Run, RunRequest
from pytest_sme2.runners.sdk import executorch_sdk
from pytest_sme2.runners.sme2 import PROGRAM, Sme2Runner, build_runner, wheel_runner
from pytest_sme2.system.cache import cache_folder
from pytest_sme2.system.platforms import LINUX_AARCH64
from pytest_sme2.system.provision import find_compiler, system_sources, unpack_packages, with_suites
from pytest_sme2.system.qemu import Qemu
from pytest_sme2.targets.emulated import EmulatedTarget
from pytest_sme2.trace.etdump import read_etdump

# By bare name: the wheel's library that holds it.
LIBRARIES = {
    "executorch": "executorch",
    "extension_data_loader": "executorch",
    "etdump": "executorch_etdump",
    "xnnpack_backend": "executorch_backend_xnnpack",
    "optimized_native_cpu_ops_lib": "executorch_kernels_optimized",
    "quantized_ops_lib": "executorch_kernels_quantized",
    "extension_threadpool": "executorch_threadpool",
}


@pytest.fixture(scope="module")
def prefix(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An install prefix as a source build leaves it, as far as CMake can see."""
    root = tmp_path_factory.mktemp("prefix")
    sdk = executorch_sdk(LINUX_AARCH64)
    include = sdk / "include"
    c10 = include / "executorch" / "runtime" / "core" / "portable_type" / "c10"
    lines = [
        f"add_library({name} SHARED IMPORTED)\n"
        f"set_target_properties({name} PROPERTIES\n"
        f'  IMPORTED_LOCATION "{sdk / "lib" / f"lib{library}.so"}"\n'
        f'  INTERFACE_INCLUDE_DIRECTORIES "{include};{c10}"\n'
        '  INTERFACE_LINK_OPTIONS "LINKER:--no-as-needed")\n'
        for name, library in LIBRARIES.items()
    ]
    config = root / "lib" / "cmake" / "ExecuTorch" / "executorch-config.cmake"
    config.parent.mkdir(parents=True)
    config.write_text("".join(lines), "utf-8")
    return root


@pytest.fixture(scope="module")
def cpuinfo() -> Path:
    """The folder of cpuinfo.h."""
    folder = cache_folder() / "test-tools" / "cpuinfo"
    if not (folder / "usr" / "include" / "cpuinfo.h").exists():
        try:
            archives = with_suites(system_sources(), ["forky"])
            unpack_packages(["libcpuinfo-dev"], archives, folder)
        except Sme2Error as error:
            pytest.skip(str(error))
    return folder / "usr" / "include"


def built(prefix: Path, folder: Path, options: dict[str, str]) -> Sme2Runner:
    """The runner built against the prefix, beside the libraries of the one from the wheel."""
    wheel = wheel_runner(LINUX_AARCH64)
    build = build_runner(
        prefix,
        folder / "build",
        log=folder / "build.log",
        compiler=find_compiler(LINUX_AARCH64),
        options={"SME2_EXECUTORCH_VERSION": "1.5.1", **options},
    )
    bundle = folder / "bundle"
    shutil.copytree(wheel.folder, bundle)
    shutil.copy2(build / PROGRAM, bundle / PROGRAM)
    return dataclasses.replace(wheel, kind="source", folder=bundle)


def run(runner: Sme2Runner, qemu: Qemu, pte: Path, arm: Arm, folder: Path) -> Run:
    artifact = Artifact("toy", "fp32", pte.parent, pte, "", (), ())
    request = RunRequest(artifact, arm, warmup=0, runs=1, traced=True)
    # The CPU keeps SME2 in both arms, so what hides it is the runner.
    return EmulatedTarget(qemu, switch_cpu=False).run(runner, request, folder / str(arm))


def matrix_operators(run: Run) -> set[bool]:
    # The data type tells packed operands, which SME2 kernels alone take here.
    return {"PF32" in name for name in read_etdump(run.etdump).names if classify(name).matrix}


@pytest.mark.parametrize(
    "through_cpuinfo",
    [
        pytest.param(False, id="getauxval"),
        pytest.param(True, id="cpuinfo_isa", marks=pytest.mark.nightly),
    ],
)
def test_it_builds_and_switches_sme2(
    prefix: Path,
    qemu: Qemu,
    programs: dict[str, Path],
    tmp_path: Path,
    request: pytest.FixtureRequest,
    through_cpuinfo: bool,
) -> None:
    options = {}
    if through_cpuinfo:
        options["SME2_CPUINFO_INCLUDE"] = str(request.getfixturevalue("cpuinfo"))
    runner = built(prefix, tmp_path, options)
    on, off = (run(runner, qemu, programs["toy_fp32"], arm, tmp_path) for arm in PAIR)
    assert (on.sme2_effective, off.sme2_effective) == (True, False)
    assert matrix_operators(on) == {True}
    assert matrix_operators(off) == {False}
    told = (tmp_path / "on" / "runner.json").read_text("utf-8")
    assert ("cpuinfo_isa" if through_cpuinfo else "getauxval") in told


def test_a_prefix_without_a_library_is_named(prefix: Path, tmp_path: Path) -> None:
    config = next(prefix.rglob("executorch-config.cmake"))
    poor = tmp_path / "poor" / "lib" / "cmake" / "ExecuTorch" / config.name
    poor.parent.mkdir(parents=True)
    poor.write_text(config.read_text("utf-8").replace("xnnpack_backend", "other"), "utf-8")
    with pytest.raises(Sme2Error, match="has no xnnpack_backend"):
        built(tmp_path / "poor", tmp_path, {})
