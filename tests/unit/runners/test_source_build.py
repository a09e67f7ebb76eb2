from __future__ import annotations

import os
import re
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import pytest

from pytest_sme2.errors import BuildError
from pytest_sme2.results import PAIR, Arm, KernelFamily
from pytest_sme2.runners import source_build
from pytest_sme2.runners.source_build import SourceBuild, Tools
from pytest_sme2.system import provision
from tests.support import Command
from tests.support.elf_writer import write_elf

TOOLS = Tools(
    cmake=Path("/tools/cmake"), ninja=Path("/tools/ninja"), compiler=Path("/tools/clang++")
)

ANDROID_DRY_RUN = """\
# android, xnnlog, SME2 off: /out/android-xnnlog-sme2-off/executor_runner
/tools/cmake -S '/src/with space/executorch' -B /out/android-xnnlog-sme2-off -G Ninja \\
    -DCMAKE_BUILD_TYPE=Release \\
    -DPYTHON_EXECUTABLE=/venv/bin/python \\
    -DEXECUTORCH_BUILD_EXECUTOR_RUNNER=ON \\
    -DEXECUTORCH_BUILD_EXTENSION_EVALUE_UTIL=ON \\
    -DEXECUTORCH_BUILD_EXTENSION_RUNNER_UTIL=ON \\
    -DEXECUTORCH_BUILD_XNNPACK=ON \\
    -DEXECUTORCH_XNNPACK_ENABLE_KLEIDI=ON \\
    -DEXECUTORCH_BUILD_DEVTOOLS=ON \\
    -DEXECUTORCH_ENABLE_EVENT_TRACER=ON \\
    -DEXECUTORCH_BUILD_KERNELS_OPTIMIZED=ON \\
    -DEXECUTORCH_BUILD_KERNELS_QUANTIZED=ON \\
    -DEXECUTORCH_ENABLE_LOGGING=ON \\
    -DXNNPACK_ENABLE_ARM_SME=OFF \\
    -DXNNPACK_ENABLE_ARM_SME2=OFF \\
    -DEXECUTORCH_XNNPACK_LOG_LEVEL=5 \\
    -DKLEIDIAI_SOURCE_DIR=/kleidiai \\
    -DCMAKE_MAKE_PROGRAM=/tools/ninja \\
    -DCMAKE_TOOLCHAIN_FILE=/ndk/build/cmake/android.toolchain.cmake \\
    -DANDROID_ABI=arm64-v8a \\
    -DANDROID_PLATFORM=android-28 \\
    -DANDROID_SUPPORT_FLEXIBLE_PAGE_SIZES=ON
/tools/cmake --build /out/android-xnnlog-sme2-off --target executor_runner --parallel 2

# then: pytest --device=android --sme2-runner ON,/out/android-xnnlog-sme2-off/executor_runner
"""


def test_the_dry_run_is_the_same_everywhere() -> None:
    request = SourceBuild(
        tree=Path("/src/with space/executorch"),
        platform="android",
        sides=(Arm.OFF,),
        variant="xnnlog",
        ndk=Path("/ndk"),
        kleidiai=Path("/kleidiai"),
        python=Path("/venv/bin/python"),
        out=Path("/out"),
        jobs=2,
    )
    assert source_build.dry_run(request, TOOLS) == ANDROID_DRY_RUN


def variables(step: source_build.BuildStep) -> dict[str, str]:
    set_words = (word[2:].partition("=") for word in step.configure if word.startswith("-D"))
    return {name: value for name, _, value in set_words}


def test_off_switches_both_extensions_off() -> None:
    request = SourceBuild(tree=Path("/executorch"), platform="linux", out=Path("/out"))
    on, off = source_build.plan(request, TOOLS)
    for step, switch in ((on, "ON"), (off, "OFF")):
        assert variables(step)["XNNPACK_ENABLE_ARM_SME"] == switch
        assert variables(step)["XNNPACK_ENABLE_ARM_SME2"] == switch
    assert on.folder != off.folder
    assert "EXECUTORCH_XNNPACK_LOG_LEVEL" not in variables(on)


def test_a_users_option_wins() -> None:
    request = SourceBuild(
        tree=Path("/executorch"), platform="mac", options={"CMAKE_BUILD_TYPE": "Debug"}
    )
    assert variables(source_build.plan(request, TOOLS)[0])["CMAKE_BUILD_TYPE"] == "Debug"


def test_builds_stay_out_of_the_checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SME2_CACHE_DIR", str(tmp_path))
    first = SourceBuild(tree=Path("/a/executorch"), platform="linux")
    second = SourceBuild(tree=Path("/b/executorch"), platform="linux")
    assert tmp_path in first.folder.parents
    assert first.folder != second.folder


def make_tree(folder: Path, name: str = "executorch") -> Path:
    tree = folder / name
    (tree / "backends/xnnpack").mkdir(parents=True)
    (tree / "CMakeLists.txt").touch()
    (tree / "backends/xnnpack/CMakeLists.txt").touch()
    return tree


def program(path: Path, *lines: str) -> Path:
    """A stand-in for a tool that only has to answer what it is."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\n" + "\n".join(f"echo {line!r}" for line in lines) + "\n")
    path.chmod(0o755)
    return path


class Machine(NamedTuple):
    request: SourceBuild
    tools: Tools


@pytest.fixture
def fit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    """A machine on which nothing is missing."""
    monkeypatch.setattr("platform.system", lambda: "Linux")
    monkeypatch.setattr("platform.machine", lambda: "aarch64")
    tools = Tools(
        cmake=program(tmp_path / "bin/cmake", "cmake version 3.31.2"),
        ninja=program(tmp_path / "bin/ninja", "1.12"),
        compiler=program(tmp_path / "bin/clang++", "Debian clang version 19.1.7"),
    )
    request = SourceBuild(make_tree(tmp_path), "linux", out=tmp_path / "out")
    return Machine(request, tools)


def expect(problem: str, request: SourceBuild, tools: Tools) -> None:
    """This one alone, or none."""
    found = source_build.check(request, tools)
    assert len(found) == bool(problem), found
    assert problem in "".join(found)


def test_everything_missing_is_one_list(tmp_path: Path, fit: Machine) -> None:
    tree = make_tree(tmp_path, "executorch-main")
    (tree / ".gitmodules").write_text(
        '[submodule "x"]\n\tpath = backends/xnnpack/third-party/XNNPACK\n'
        "\tpath = third-party/flatcc\n\tpath = backends/vulkan/third-party/volk\n"
    )
    (tree / "third-party/flatcc").mkdir(parents=True)
    request = replace(fit.request, tree=tree, platform="android", ndk=None)
    tools = Tools(None, None, None, ("Building the runner needs CMake",))
    found = source_build.check(request, tools)
    text = "\n".join(found)
    assert len(found) == 4
    for expected in (
        "is named 'executorch-main'",
        "2 of ExecuTorch's submodules are not checked out "
        "(backends/xnnpack/third-party/XNNPACK, third-party/flatcc)",
        "needs CMake",
        "needs the NDK",
    ):
        assert expected in text
    assert "volk" not in text


def test_folder_that_is_not_a_checkout_is_refused(tmp_path: Path, fit: Machine) -> None:
    other, gone = (replace(fit.request, tree=tmp_path / name) for name in ("bin", "gone"))
    expect("is not an ExecuTorch checkout", other, fit.tools)
    expect("is not a folder", gone, fit.tools)


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ("clang version 17.0.6", "clang 17.0, but XNNPACK builds SME2 kernels only with 18"),
        ("Apple clang version 16.0.0", "Apple clang 16.0"),
        ("Apple clang version 17.0.0", ""),
        ("clang version 18.1.3", ""),
        ("aarch64-linux-gnu-g++ (Debian 12.2.0-14) 12.2.0", "gcc 12.2, which fails"),
        ("g++ (Ubuntu 13.2.0) 13.2.0", ""),
        ("tcc", "does not print its version"),
    ],
)
def test_compilers(tmp_path: Path, fit: Machine, answer: str, expected: str) -> None:
    tools = replace(fit.tools, compiler=program(tmp_path / "cxx", answer))
    expect(expected, fit.request, tools)
    # An old clang is good enough for off.
    expect("" if "clang" in answer else expected, replace(fit.request, sides=(Arm.OFF,)), tools)


def test_an_old_cmake_and_a_missing_ninja_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(provision, "_from_package", lambda *names: None)
    monkeypatch.setenv("PATH", str(program(tmp_path / "cmake", "cmake version 3.25.1").parent))
    found = source_build.find_tools()
    assert (found.cmake, found.ninja) == (None, None)
    assert "cmake is 3.25.1" in found.problems[0]
    assert "needs Ninja" in found.problems[1]


@pytest.mark.parametrize(
    ("properties", "expected"),
    [
        (None, "is not an Android NDK"),
        ("Pkg.Revision = 26.3.11579264", "is NDK 26.3, whose clang is older than 18"),
        ("Pkg.Desc = Android NDK", "does not say its version"),
        ("Pkg.Desc = Android NDK\nPkg.Revision = 28.2.13676358\n", ""),
    ],
)
def test_ndks(tmp_path: Path, fit: Machine, properties: str | None, expected: str) -> None:
    ndk = tmp_path / "ndk"
    ndk.mkdir()
    if properties is not None:
        (ndk / "build/cmake").mkdir(parents=True)
        (ndk / "build/cmake/android.toolchain.cmake").touch()
        (ndk / "source.properties").write_text(properties)
    expect(expected, replace(fit.request, platform="android", ndk=ndk), fit.tools)


@pytest.mark.parametrize(
    ("platform", "host", "expected"),
    [
        ("mac", "Linux aarch64", "built on an Apple Silicon Mac"),
        ("mac", "Darwin x86_64", "built on an Apple Silicon Mac"),
        ("mac", "Darwin arm64", ""),
        ("linux", "Darwin arm64", "must be built on Linux"),
        ("linux", "Linux x86_64", "this machine is x86_64, but only Arm has SME2"),
    ],
)
def test_hosts(
    fit: Machine, monkeypatch: pytest.MonkeyPatch, platform: str, host: str, expected: str
) -> None:
    system, machine = host.split()
    monkeypatch.setattr("platform.system", lambda: system)
    monkeypatch.setattr("platform.machine", lambda: machine)
    expect(expected, replace(fit.request, platform=platform), fit.tools)


def test_kernels_of_a_binary_are_found_by_symbols(tmp_path: Path) -> None:
    symbols = [
        (0x1100, 16, "xnn_pf32_gemm_minmax_ukernel_32x32__neonsme2"),
        (0x1200, 16, "xnn_f32_gemm_minmax_ukernel_6x8__neonfma"),
        (0x1300, 16, "main"),
    ]
    binary = write_elf(tmp_path / "executor_runner", symbols)
    assert source_build.families_in(binary) == {KernelFamily.SME2, KernelFamily.NEON}
    assert source_build.families_in(write_elf(tmp_path / "stripped", [])) is None
    (tmp_path / "macho").write_bytes(b"\xcf\xfa\xed\xfe")
    assert source_build.families_in(tmp_path / "macho") is None


native = pytest.mark.skipif(
    sys.platform != "linux" or shutil.which("g++") is None, reason="needs a native g++"
)

MINIATURE = """\
cmake_minimum_required(VERSION 3.26)
project(miniature LANGUAGES C)
option(XNNPACK_ENABLE_ARM_SME2 "" ON)
option(XNNPACK_ENABLE_ARM_SME "" ON)
file(WRITE ${CMAKE_BINARY_DIR}/main.c "
  void xnn_f32_gemm_minmax_ukernel_6x8__neonfma(void) {}
  int main(void) { return 0; }
")
if(XNNPACK_ENABLE_ARM_SME2)
  file(APPEND ${CMAKE_BINARY_DIR}/main.c "void kai_run_x_sme2_mopa(void) {}")
endif()
if(XNNPACK_ENABLE_ARM_SME)
  file(APPEND ${CMAKE_BINARY_DIR}/main.c "void kai_run_x_sme_mopa(void) {}")
endif()
%s
add_executable(executor_runner ${CMAKE_BINARY_DIR}/main.c)
"""


@pytest.fixture
def miniature(fit: Machine) -> Machine:
    """The fit machine's tree with something to build, and real tools."""
    found = source_build.find_tools()
    tools = Tools(found.cmake, found.ninja, compiler=fit.tools.compiler)
    (fit.request.tree / "CMakeLists.txt").write_text(MINIATURE % "")
    options = {"CMAKE_C_COMPILER": shutil.which("gcc") or ""}
    return Machine(replace(fit.request, options=options), tools)


@native
@pytest.mark.parametrize(
    ("sides", "text", "message"),
    [
        # A switch without effect.
        ((Arm.OFF,),
         MINIATURE % 'file(APPEND ${CMAKE_BINARY_DIR}/main.c "void kai_run_y_sme(void) {}")',
         "built with SME2 off but has SME kernels"),
        ((Arm.ON,), (MINIATURE % "").replace("if(XNNPACK_ENABLE_ARM_SME2)", "if(OFF)"),
         "has no SME2 kernel"),
        (PAIR, MINIATURE % 'message(FATAL_ERROR "no flatcc here")',
         f"(?s)could not be configured.*no flatcc here.*{source_build.LOG}"),
        (PAIR, MINIATURE % 'file(APPEND ${CMAKE_BINARY_DIR}/main.c "int x = y;")',
         f"(?s)could not be compiled.*error.*{source_build.LOG}"),
    ],
    ids=["SME2 is never off", "SME2 is never on", "cannot be configured", "cannot be compiled"],
)  # fmt: skip
def test_a_failed_build_shows_its_reason(
    miniature: Machine, sides: tuple[Arm, ...], text: str, message: str
) -> None:
    (miniature.request.tree / "CMakeLists.txt").write_text(text)
    with pytest.raises(BuildError, match=message):
        source_build.build(replace(miniature.request, sides=sides), miniature.tools)


@pytest.mark.slow
@native
def test_a_build_that_hangs_is_ended(miniature: Machine) -> None:
    line = "execute_process(COMMAND sleep 60)"
    (miniature.request.tree / "CMakeLists.txt").write_text(MINIATURE % line)
    with pytest.raises(BuildError, match="could not be configured within 1 s"):
        source_build.build(*miniature, timeout_seconds=1)


@native
def test_a_second_build_in_the_same_place_is_refused(miniature: Machine) -> None:
    import filelock

    miniature.request.folder.mkdir()
    with (
        filelock.FileLock(miniature.request.folder / ".lock"),
        pytest.raises(BuildError, match="Another process is building in"),
    ):
        source_build.build(*miniature)


def test_the_command_lists_everything_and_builds_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sme2: Command
) -> None:
    monkeypatch.delenv("ANDROID_NDK", raising=False)
    out = tmp_path / "out"
    words = ("build", "--executorch", tmp_path, "--platform", "android", "--out", out)
    told = sme2(*words, code=3).err
    assert "is not an ExecuTorch checkout" in told
    assert "needs the NDK" in told
    assert "stand in the way of this build" in told
    assert not out.exists()
    assert "-DXNNPACK_ENABLE_ARM_SME2=OFF" in sme2(*words, "--dry-run", code=3).out
    assert not out.exists()


def test_an_option_of_cmake_has_a_value(sme2: Command) -> None:
    words = ("build", "--executorch", ".", "--platform", "linux", "--cmake-option", "A")
    assert "NAME=VALUE" in sme2(*words, code=2).err


@pytest.mark.slow
@native
def test_the_command_prints_how_to_use_what_it_built(
    miniature: Machine, monkeypatch: pytest.MonkeyPatch, sme2: Command
) -> None:
    monkeypatch.setenv("CXX", str(miniature.tools.compiler))
    request = miniature.request
    before = sorted((path, path.stat().st_mtime_ns) for path in request.tree.rglob("*"))
    words = ["build", "--platform", "linux", "--sme2", "both", "--jobs", "1"]
    words += ["--executorch", str(request.tree), "--out", str(request.out)]
    words += ["--cmake-option", f"CMAKE_C_COMPILER={shutil.which('gcc')}"]
    printed, progress = sme2(*words)
    on, off, use = printed.splitlines()
    assert "kernels: neon, sme, sme2" in on
    assert "kernels: neon)" in off
    assert re.fullmatch(r"pytest --device=linux --sme2-runner /\S+-on/\S+,/\S+-off/\S+", use)
    assert [progress.count(word) for word in ("being configured", "being compiled")] == [2, 2]
    binary = request.folder / "linux-timing-sme2-off" / source_build.RUNNER
    assert os.access(binary, os.X_OK)
    assert sorted((path, path.stat().st_mtime_ns) for path in request.tree.rglob("*")) == before
